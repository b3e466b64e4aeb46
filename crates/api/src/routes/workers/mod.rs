//! `/v1/workers`: the workers of the fleet, for operators.

pub(crate) mod drain;
pub(crate) mod read;
pub(crate) mod remote;
mod view;

use longhaul_store::fleet::roster::ListedWorker;
use uuid::Uuid;

use crate::{
    error::{ApiError, ApiResult},
    state::ApiState,
};

/// The id in the path. A malformed one is not found.
fn id(text: &str) -> ApiResult<Uuid> {
    Uuid::parse_str(text).map_err(|_| ApiError::NotFound("worker"))
}

async fn find(state: &ApiState, id: Uuid) -> ApiResult<ListedWorker> {
    state.store.find_worker(id).await?.ok_or(ApiError::NotFound("worker"))
}
