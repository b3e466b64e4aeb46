//! The worker protocol (docs/reference/worker-protocol.md): `/v1/workers/…` for workers over HTTP.

mod announce;
pub(crate) mod children;
pub(crate) mod claim;
pub(crate) mod ends;
pub(crate) mod heartbeat;
pub(crate) mod journal;
pub(crate) mod register;
pub(crate) mod requests;
pub(crate) mod signals;
mod step;
pub(crate) mod writes;

use std::sync::Arc;

use longhaul_domain::{ExecutionId, LeaseToken};
use longhaul_store::{StoreError, history::journal::Hash, tenants::api_keys::Scope};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    remote::{Remote, WorkerError},
    state::ApiState,
};

/// Writes or ends of one request.
const MAX_ITEMS: usize = 100;
/// Pattern of an id or a token.
const UUID: &str = "^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$";

/// The reason for which an item of a request was not done.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ItemError {
    /// `lease_lost`, `write_refused` or `unavailable`.
    code: &'static str,
    detail: String,
}

impl ItemError {
    fn of(error: &StoreError) -> Self {
        let (code, detail) = match error {
            StoreError::LeaseLost | StoreError::NotFound(_) => {
                ("lease_lost", "the lease belongs to another, or has ended")
            }
            StoreError::Rejected(_) | StoreError::Conflict(_) => ("write_refused", "a value cannot be stored"),
            StoreError::LeaseStale
            | StoreError::TooMuch(_)
            | StoreError::Unavailable(_)
            | StoreError::Unreachable(_)
            | StoreError::TimedOut(_)
            | StoreError::Closed
            | StoreError::Corrupt(_)
            | StoreError::Misconfigured(_) => ("unavailable", "the database gave no answer; send it again"),
        };
        Self { code, detail: detail.to_owned() }
    }
}

/// Reads an id whose pattern was checked.
fn execution(text: &str) -> ApiResult<ExecutionId> {
    Uuid::parse_str(text).map(ExecutionId).map_err(|_| ApiError::NotFound("execution"))
}

/// Reads a key whose pattern was checked.
fn key(text: &str) -> ApiResult<Hash> {
    let mut key = [0; 32];
    hex::decode_to_slice(text, &mut key).map_err(|_| ApiError::Internal)?;
    Ok(key)
}

fn token(text: &str) -> ApiResult<LeaseToken> {
    Uuid::parse_str(text).map(LeaseToken).map_err(|_| WorkerError::LeaseLost.into())
}

/// Checks that the worker holds the execution, and returns its queue.
///
/// # Errors
/// [`WorkerError::LeaseLost`], or Postgres is unavailable.
async fn held(state: &ApiState, remote: &Remote, id: ExecutionId, token: LeaseToken) -> ApiResult<String> {
    Ok(state.store.held_queue(remote.id, id, token).await?.ok_or(WorkerError::LeaseLost)?)
}

/// An error of a fenced statement.
fn fenced(error: StoreError) -> ApiError {
    if matches!(error, StoreError::LeaseLost) {
        return WorkerError::LeaseLost.into();
    }
    // The row changed meanwhile: the same request will find it as it is.
    if matches!(error, StoreError::LeaseStale) {
        return ApiError::Unavailable;
    }
    error.into()
}

/// The worker that the caller speaks for.
///
/// # Errors
/// The key lacks the scope, or the worker is not live or another tenant's.
async fn worker_of(state: &ApiState, principal: &Principal, text: &str) -> ApiResult<Arc<Remote>> {
    principal.need(Scope::WorkersRun)?;
    state.remotes.find(principal, text).await
}
