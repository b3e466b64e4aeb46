//! `DELETE /v1/executions/{id}/content`: erases the texts of an ended execution.

use axum::{Json, extract::State};
use longhaul_store::{history::erasure::Erasure, tenants::api_keys::Scope};
use serde::Serialize;
use utoipa::ToSchema;

use super::ExecutionError;
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::ExecutionPath,
    openapi::params::Id,
    state::ApiState,
};

/// Executions whose texts are gone.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Erased {
    /// The execution named, and everything it started.
    executions: Vec<String>,
}

/// Erases input, output, messages, results, metadata and failure texts of an ended execution and of its descendants.
///
/// Of a message of a session, the transcript keeps a tombstone; summaries that stand for it are erased with it. Ids,
/// times, states, codes, counts, costs and the ledger of effects stay. Retries and forks of it are executions of
/// their own, with their own copies. An erased execution can be neither retried nor forked. Idempotent.
#[utoipa::path(
    delete,
    operation_id = "eraseExecution",
    path = "/v1/executions/{id}/content",
    tag = "executions",
    params(Id),
    responses((status = 200, description = "Its texts are erased, now or before", body = Erased)),
)]
pub(crate) async fn erase(
    State(state): State<ApiState>,
    principal: Principal,
    ExecutionPath(id): ExecutionPath,
) -> ApiResult<Json<Erased>> {
    principal.need(Scope::ExecutionsWrite)?;
    match state.store.erase_execution(principal.tenant(), id).await? {
        Erasure::Done(erased) => {
            let executions = erased.iter().map(|execution| execution.id.to_string()).collect();
            state.forget_replies(erased).await;
            Ok(Json(Erased { executions }))
        }
        Erasure::NotEnded(open) => Err(ExecutionError::ExecutionNotEnded(open).into()),
        Erasure::NotFound => Err(ApiError::NotFound("execution")),
    }
}
