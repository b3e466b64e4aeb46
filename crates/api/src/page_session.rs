//! Signing in to the page and out: an API key is checked once and becomes a signed cookie for twelve hours.

use axum::{
    Extension, Form,
    extract::{FromRequestParts, State, rejection::FormRejection},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use crate::{
    audit::AuditSlot,
    auth::{self, Age},
    body::BODY_LIMIT,
    error::{ApiError, ApiResult},
    session_cookie::{Session, is_same_site},
    state::ApiState,
};

/// Extractor that refuses requests sent by pages of other sites. Such a page could sign a visitor in with its own
/// key (login CSRF).
pub(crate) struct SameSite;

impl FromRequestParts<ApiState> for SameSite {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, ApiError> {
        if is_same_site(&parts.headers) { Ok(Self) } else { Err(ApiError::CrossSite) }
    }
}

#[derive(Deserialize)]
pub(crate) struct Login {
    key: String,
    /// Address of the page to show then.
    #[serde(default)]
    next: String,
}

pub(crate) async fn login(
    State(state): State<ApiState>,
    _: SameSite,
    Extension(audit): Extension<AuditSlot>,
    form: Result<Form<Login>, FormRejection>,
) -> ApiResult<Response> {
    let Form(login) = form.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::PayloadTooLarge { limit_bytes: BODY_LIMIT },
        _ => ApiError::invalid("/key", "is required, in a form"),
    })?;
    let key = login.key.trim();
    match auth::authenticate(&state, key).await {
        Ok(mut principal) => principal.act_in(&audit),
        Err(ApiError::InvalidApiKey) => {
            return Ok(Redirect::to("/login?problem=invalid_api_key").into_response());
        }
        Err(error) => return Err(error),
    }
    let cookie = Session::cookie(&state, &state.pepper.key_hash(key), state.store.now().await?)?;
    Ok(with_cookies(Redirect::to(own_page(&login.next)).into_response(), &[cookie]))
}

/// `next` if it is an address of this page, and no other site's. Browsers read `\` as `/`, and leave out tabs and line
/// ends (URL Standard, basic URL parser), so that `/<tab>/evil` is another site.
pub(crate) fn own_page(next: &str) -> &str {
    let is_refused = |c: char| c == '\\' || c.is_control();
    let is_own = next.starts_with('/') && !next.starts_with("//") && !next.contains(is_refused);
    if is_own { next } else { "/" }
}

/// Ends all sessions of the key. One that is over already leaves no row in the audit log: it changes nothing.
pub(crate) async fn logout(
    State(state): State<ApiState>,
    _: SameSite,
    Extension(audit): Extension<AuditSlot>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    if let Some(session) = Session::read(&state, &headers) {
        if let Ok(mut principal) = auth::by_hash(&state, session.key_hash.clone(), Age::Cached).await {
            principal.act_in(&audit);
        }
        state.store.end_sessions(&session.key_hash, session.began_at).await?;
        state.keys.forget(&session.key_hash);
    }
    Ok(with_cookies(Redirect::to("/login").into_response(), &[Session::no_cookie(&state)]))
}

pub(crate) fn with_cookies(mut response: Response, cookies: &[String]) -> Response {
    for cookie in cookies {
        if let Ok(cookie) = HeaderValue::from_str(cookie) {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_page_is_never_another_site() {
        assert_eq!(own_page("/executions?status=FAILED"), "/executions?status=FAILED");
        for other in ["", "//evil", "https://evil", "/\\\\evil", "/a\r\nb", "/\t/evil"] {
            assert_eq!(own_page(other), "/", "{other}");
        }
    }
}
