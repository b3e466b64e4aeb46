//! `GET /v1/executions`.

use axum::{Json, extract::State};
use longhaul_domain::{ExecutionId, ExecutionStatus, WaitReason};
use longhaul_store::{executions::list_filter::ListFilter, tenants::api_keys::Scope};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::view::Execution;
use crate::{
    auth::Reader,
    error::ApiResult,
    extract::{Params, read_cursor, take_reach, write_cursor},
    openapi::{
        closed,
        params::{Cursor, Limit, Tenants},
    },
    paging::PageLength,
    state::ApiState,
};

/// A page of executions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExecutionPage {
    /// Executions, newest first.
    executions: Vec<Execution>,
    /// Cursor of the next page; null on the last one.
    next_cursor: Option<String>,
}

/// Lists executions, newest first.
///
/// Filters combine with "and". `metadata.<key>=<text>` selects executions whose metadata has this string at `<key>`;
/// several of these combine. One request examines a bounded number of executions: a page may have fewer than `limit`,
/// even none, and still have a next one.
#[utoipa::path(
    get,
    operation_id = "listExecutions",
    path = "/v1/executions",
    tag = "executions",
    params(
        ("status" = Option<closed::ExecutionStatus>, Query, description = "In this state"),
        ("wait_reason" = Option<closed::WaitReason>, Query, description = "That wait for this reason"),
        ("agent" = Option<String>, Query, description = "By agent key"),
        ("definition" = Option<String>, Query, description = "By definition key"),
        ("failure_code" = Option<String>, Query, description = "By failure code"),
        ("queue" = Option<String>, Query, description = "By queue"),
        ("created_after" = Option<DateTime<Utc>>, Query, description = "Inclusive"),
        ("created_before" = Option<DateTime<Utc>>, Query, description = "Exclusive"),
        ("parent" = Option<String>, Query, description = "Started by this execution"),
        ("root" = Option<String>, Query, description = "Of the tree whose topmost execution this is, itself included"),
        Tenants,
        Limit,
        Cursor,
    ),
    responses((status = 200, description = "A page", body = ExecutionPage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    mut params: Params,
) -> ApiResult<Json<ExecutionPage>> {
    principal.need(Scope::ExecutionsRead)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    let metadata: Map<String, Value> =
        params.prefixed("metadata.").into_iter().map(|(key, value)| (key, Value::String(value))).collect();
    if metadata.iter().any(|(key, value)| key.contains('\0') || value.as_str().is_some_and(|text| text.contains('\0')))
    {
        params.violation("metadata", "contains the character U+0000");
    }
    let length = PageLength::take(&mut params);
    let filter = ListFilter {
        status: params.chosen("status", ExecutionStatus::ALL, ExecutionStatus::as_str),
        wait_reason: params.chosen("wait_reason", WaitReason::ALL, WaitReason::as_str),
        agent: params.text("agent"),
        definition: params.text("definition"),
        failure_code: params.text("failure_code"),
        queue: params.text("queue"),
        metadata: (!metadata.is_empty()).then_some(Value::Object(metadata)),
        parent: params.take("parent"),
        root: params.take("root"),
        created_after: params.instant("created_after"),
        created_before: params.instant("created_before"),
        before: params.named("cursor", read_cursor).map(ExecutionId),
        limit: length.rows(),
    };
    params.finish()?;
    let mut found = state.store.list_executions(&reach, &filter).await?;
    let mut next_cursor = length.cut(&mut found, |one| one.id.0);
    if next_cursor.is_none()
        && let Some(last) = state.store.list_goes_on(&reach, &filter).await?
    {
        // Those after it, of other tenants, come with the next page.
        found.retain(|one| one.id.0 >= last.0);
        next_cursor = Some(write_cursor(last.0));
    }
    Ok(Json(ExecutionPage { executions: found.into_iter().map(Execution::from).collect(), next_cursor }))
}
