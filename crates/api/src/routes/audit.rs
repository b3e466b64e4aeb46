//! `GET /v1/audit`.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use longhaul_store::tenants::{
    api_keys::Scope,
    audit_log::{AuditFilter, AuditRow},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::Reader,
    error::ApiResult,
    extract::{Params, read_cursor, take_reach},
    openapi::{
        closed,
        params::{Cursor, Limit},
    },
    paging::PageLength,
    state::ApiState,
};

/// A change over the API.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditEntryView {
    id: String,
    /// Time of the request.
    at: DateTime<Utc>,
    /// Organisation of the actor.
    org_id: String,
    group_id: Option<String>,
    #[schema(value_type = closed::ActorKind)]
    actor_kind: String,
    /// Id of the key or the person.
    actor_id: String,
    /// Its name at that time.
    actor_name: String,
    #[schema(example = "POST")]
    method: String,
    /// Template of the path.
    #[schema(example = "/v1/executions/{id}/cancel")]
    route: String,
    /// Parameters of the path, separated by `/`, or the id of what was created.
    #[schema(example = "0197fca0-1c6e-7aa2-9a40-6a3d7b0f2a11")]
    target: Option<String>,
    /// Status of the answer; null if the caller left before it.
    status: Option<i32>,
    /// Id of the request in the log: the caller's, if it sent one.
    request_id: String,
    /// Id of the request that no caller chooses; also the header `Longhaul-Request-Id` of its answer. Null in rows of
    /// earlier releases.
    own_request_id: Option<String>,
}

impl From<AuditRow> for AuditEntryView {
    fn from(row: AuditRow) -> Self {
        Self {
            id: row.id.to_string(),
            at: row.at,
            org_id: row.org_id,
            group_id: row.group_id,
            actor_kind: row.actor_kind,
            actor_id: row.actor_id.to_string(),
            actor_name: row.actor_name,
            method: row.method,
            route: row.route,
            target: row.target,
            status: row.status,
            request_id: row.request_id,
            own_request_id: row.own_request_id.map(|id| id.to_string()),
        }
    }
}

/// Changes, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditPage {
    entries: Vec<AuditEntryView>,
    /// Value of `cursor` for the next page; null at the end.
    next_cursor: Option<String>,
}

/// Lists changes over the API, newest first: which key asked for what, and how it was answered.
///
/// Refused requests are listed too. Submits, messages of sessions and results of the caller's tools are not: their
/// executions hold them. A row appears within about a second.
#[utoipa::path(
    get,
    operation_id = "listAudit",
    path = "/v1/audit",
    tag = "keys",
    params(
        ("actor" = Option<String>, Query, description = "By the key or person with this id"),
        ("route" = Option<String>, Query, description = "With this template of the path"),
        ("target" = Option<String>, Query, description = "With this target"),
        ("since" = Option<String>, Query, description = "At this time or later"),
        ("until" = Option<String>, Query, description = "Before this time"),
        ("org_id" = Option<String>, Query, description = "By keys of this organisation; needs the scope `admin`"),
        ("group_id" = Option<String>, Query, description = "By keys of this group of `org_id`"),
        ("all_tenants" = Option<bool>, Query, description = "By keys of everybody; needs the scope `admin`"),
        Limit,
        Cursor,
    ),
    responses((status = 200, description = "A page", body = AuditPage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    mut params: Params,
) -> ApiResult<Json<AuditPage>> {
    principal.need(Scope::AuditRead)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    let length = PageLength::take(&mut params);
    let filter = AuditFilter {
        actor: params.take("actor"),
        route: params.text("route"),
        target: params.text("target"),
        since: params.instant("since"),
        until: params.instant("until"),
        before: params.named("cursor", read_cursor),
        limit: length.rows(),
    };
    params.finish()?;
    let mut found = state.store.list_audit(&reach, &filter).await?;
    let next_cursor = length.cut(&mut found, |row| row.id);
    Ok(Json(AuditPage { entries: found.into_iter().map(AuditEntryView::from).collect(), next_cursor }))
}
