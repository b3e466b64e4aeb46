//! `/v1/runs`: durable runs of programs outside ([guide](../../../../../docs/guide/crash-safe-frameworks.md)). Their
//! model calls come over the wires of other clients.

pub(crate) mod budget;
pub(crate) mod calls;
pub(crate) mod create;
pub(crate) mod end;
mod error;
pub(crate) mod read;
mod view;

pub(crate) use error::RunError;

use longhaul_store::runs::Run;

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    state::ApiState,
};

/// Keys that need no escape in paths and headers, without two dots side by side.
const KEY_PATTERN: &str = r"^[A-Za-z0-9](\.?[A-Za-z0-9_:-])*$";
/// Maximum characters of a key.
const MAX_KEY: usize = 200;

/// The caller's run of that key.
async fn find(state: &ApiState, principal: &Principal, key: &str) -> ApiResult<Run> {
    // No run has a key with U+0000, which Postgres refuses.
    if key.contains('\0') {
        return Err(ApiError::NotFound("run"));
    }
    let found = state.store.run_by_key(&principal.tenant().into(), key).await?;
    found.ok_or(ApiError::NotFound("run"))
}
