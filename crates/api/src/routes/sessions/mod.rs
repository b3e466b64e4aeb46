//! `/v1/sessions`, and `/api/chat` over them: conversations whose messages become executions.

pub(crate) mod budget;
mod caller_calls;
mod caller_tools;
pub(crate) mod chat;
pub(crate) mod create;
pub(crate) mod end;
mod error;
pub(crate) mod events;
pub(crate) mod frame_data;
mod frames;
pub(crate) mod messages;
pub(crate) mod read;
mod requests;

use axum::{extract::FromRequestParts, http::request::Parts};
use longhaul_domain::SessionId;
use longhaul_store::sessions::Session;

pub(crate) use error::SessionError;

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::Path,
    state::ApiState,
};

/// The session id of a path.
pub(crate) struct SessionPath(pub(crate) SessionId);

impl FromRequestParts<ApiState> for SessionPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|Path(text)| text.parse().ok());
        id.map(Self).ok_or(ApiError::NotFound("session"))
    }
}

/// The caller's session of that id.
pub(crate) async fn find(state: &ApiState, principal: &Principal, id: SessionId) -> ApiResult<Session> {
    let found = state.store.get_session(&principal.tenant().into(), id).await?;
    found.ok_or(ApiError::NotFound("session"))
}
