//! `GET /v1/workers/{id}/executions/{execution}/journal`: the steps of an execution that the worker holds.

use axum::{Json, extract::State};
use longhaul_domain::{ExecutionId, LeaseToken};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{execution, held, step::RecordedView, worker_of};
use crate::{
    auth::Reader,
    error::ApiResult,
    extract::{Params, Path},
    remote::WorkerError,
    state::ApiState,
};

/// Bytes of one page, beside its first step.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// Recorded steps, in order.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct JournalPage {
    steps: Vec<RecordedView>,
    /// Value of `?after=` for the next page; null on the last one.
    next_after: Option<i32>,
}

/// Reads the steps of an execution that the worker holds, after those that the claim had.
#[utoipa::path(
    get,
    operation_id = "readHeldJournal",
    path = "/v1/workers/{id}/executions/{execution}/journal",
    tag = "worker protocol",
    params(
        ("id" = String, Path, description = "Its id"),
        ("execution" = String, Path, description = "The execution"),
        ("token" = String, Query, description = "Token of its lease"),
        ("after" = Option<i32>, Query, description = "Steps after this number"),
    ),
    responses((status = 200, description = "Steps in order", body = JournalPage)),
)]
pub(crate) async fn journal(
    State(state): State<ApiState>,
    principal: Reader,
    Path((worker, id)): Path<(String, String)>,
    mut params: Params,
) -> ApiResult<Json<JournalPage>> {
    let remote = worker_of(&state, &principal, &worker).await?;
    let (token, after) = (take_token(&mut params), params.take("after").unwrap_or(0));
    params.finish()?;
    let id = execution(&id)?;
    held(&state, &remote, id, token.ok_or(WorkerError::LeaseLost)?).await?;
    Ok(Json(page(&state, id, after, &mut PAGE_BYTES.clone()).await?))
}

/// The parameter `token`.
pub(super) fn take_token(params: &mut Params) -> Option<LeaseToken> {
    params.take::<Uuid>("token").map(LeaseToken)
}

/// The steps after number `after`, as many as fit into `room` bytes, and one. Without room there are none: the worker
/// reads them as its next page.
pub(super) async fn page(state: &ApiState, id: ExecutionId, after: i32, room: &mut usize) -> ApiResult<JournalPage> {
    if *room == 0 {
        return Ok(JournalPage { steps: Vec::new(), next_after: Some(after) });
    }
    let (calls, next_after) = state.store.calls_after(id, after, *room).await?;
    *room = room.saturating_sub(calls.iter().map(|call| call.body.len()).sum());
    Ok(JournalPage { steps: calls.into_iter().filter_map(RecordedView::of).collect(), next_after })
}
