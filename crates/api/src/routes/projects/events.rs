//! `GET /v1/projects/{id}/events`.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use longhaul_store::tenants::api_keys::Scope;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{ProjectPath, find};
use crate::openapi::params::Id;
use crate::{auth::Reader, error::ApiResult, extract::Params, state::ApiState};

/// An event of a project.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProjectEventView {
    /// Number, from 1, without gaps.
    seq: i32,
    at: DateTime<Utc>,
    #[schema(example = "task_started")]
    kind: String,
    #[schema(value_type = Object)]
    data: Value,
}

/// Events in order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProjectEventPage {
    events: Vec<ProjectEventView>,
}

/// Lists the events of a project.
#[utoipa::path(
    get,
    operation_id = "listProjectEvents",
    path = "/v1/projects/{id}/events",
    tag = "projects",
    params(
        Id,
        ("after" = Option<i32>, Query, description = "Events after this one"),
        ("limit" = Option<i64>, Query, description = "1 to 1000; 200 when absent"),
    ),
    responses((status = 200, description = "Events in order", body = ProjectEventPage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    ProjectPath(id): ProjectPath,
    mut params: Params,
) -> ApiResult<Json<ProjectEventPage>> {
    principal.need(Scope::ExecutionsRead)?;
    let (after, limit) = (params.take("after").unwrap_or(0), params.limit(200, 1_000));
    params.finish()?;
    find(&state, &principal, id).await?;
    let found = state.store.project_events(id, after, limit).await?;
    let events = found.into_iter().map(|event| ProjectEventView {
        seq: event.seq,
        at: event.at,
        kind: event.kind,
        data: event.data,
    });
    Ok(Json(ProjectEventPage { events: events.collect() }))
}
