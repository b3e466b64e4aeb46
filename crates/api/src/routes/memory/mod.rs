//! `/v1/memory`: what agents remember (docs/guide/memory.md).

pub(crate) mod forget;
pub(crate) mod put;
pub(crate) mod read;
pub(crate) mod search;
mod view;

use axum::{extract::FromRequestParts, http::request::Parts};
use longhaul_domain::EpisodeId;

use crate::{
    error::{ApiError, ApiResult},
    extract::Path,
    state::ApiState,
};

/// Maximum characters of a scope: the path of the setting and its value.
const MAX_SCOPE_CHARS: usize = 1_024;

/// The id of an episode in a path.
pub(crate) struct EpisodePath(pub(crate) EpisodeId);

impl FromRequestParts<ApiState> for EpisodePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> ApiResult<Self> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|Path(text)| text.parse().ok());
        id.map(Self).ok_or(ApiError::NotFound("episode"))
    }
}
