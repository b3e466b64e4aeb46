//! Sessions of the page: an API key is checked once and becomes a signed cookie for twelve hours.
//!
//! The cookie holds the key's hash and the time of signing in, signed by us, so it cannot be forged. Every request
//! looks the key up: revoking it ends the session, and signing out ends all sessions of the key.

use axum::{
    Form,
    extract::{FromRequestParts, State, rejection::FormRejection},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse, Redirect, Response},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;

use crate::{
    auth::{self, Principal},
    body::BODY_LIMIT,
    error::{ApiError, ApiResult},
    state::ApiState,
};

const COOKIE: &str = "longhaul_session";
const LIFE_SECONDS: i64 = 12 * 3_600;
const PURPOSE: &str = "status-page-session";

/// The key of the request's session.
///
/// # Errors
/// There is no valid session, the request changes something and a page of another site sent it, or Postgres is
/// unavailable.
pub(crate) async fn principal(state: &ApiState, parts: &Parts) -> ApiResult<Principal> {
    let session = Session::read(state, &parts.headers).ok_or(ApiError::Unauthenticated)?;
    // Browsers send the cookie with every request to this host, so a request that changes something must name its
    // origin. Only browsers have cookies, and those that do not name it are too old.
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    if !is_read && (!names_its_origin(&parts.headers) || !is_same_site(&parts.headers)) {
        return Err(ApiError::CrossSite);
    }
    match auth::by_hash(state, session.key_hash).await {
        Ok(principal) if principal.key().sessions_ended_at.is_none_or(|at| session.began_at > at) => Ok(principal),
        Ok(_) | Err(ApiError::InvalidApiKey) => Err(ApiError::Unauthenticated),
        Err(error) => Err(error),
    }
}

fn names_its_origin(headers: &HeaderMap) -> bool {
    headers.contains_key("sec-fetch-site") || headers.contains_key(header::ORIGIN)
}

/// A session as its cookie states it. The caller checks that its key has not ended it.
struct Session {
    key_hash: Vec<u8>,
    began_at: DateTime<Utc>,
}

impl Session {
    /// Reads the session of a cookie with a valid signature that has not expired.
    fn read(state: &ApiState, headers: &HeaderMap) -> Option<Self> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let value = cookies.flat_map(|value| value.split(';')).find_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            (name == COOKIE).then(|| value.to_owned())
        })?;
        let mut parts = value.splitn(3, '.');
        let (hash, began_at, code) = (parts.next()?, parts.next()?, parts.next()?);
        let code = URL_SAFE_NO_PAD.decode(code).ok()?;
        if !state.pepper.verifies(PURPOSE, &[hash.as_bytes(), began_at.as_bytes()], &code) {
            return None;
        }
        let began_at = DateTime::from_timestamp_micros(began_at.parse().ok()?)?;
        let is_live = state.store.believed_now() - began_at < TimeDelta::seconds(LIFE_SECONDS);
        is_live.then_some(Self { key_hash: URL_SAFE_NO_PAD.decode(hash).ok()?, began_at })
    }
}

/// Extractor that refuses requests sent by pages of other sites. Such a page could sign a visitor in with its own
/// key (login CSRF).
pub(crate) struct SameSite;

impl FromRequestParts<ApiState> for SameSite {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, ApiError> {
        if is_same_site(&parts.headers) { Ok(Self) } else { Err(ApiError::CrossSite) }
    }
}

/// Browsers state where a request comes from; a request that states nothing does not come from a browser.
fn is_same_site(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    match (text("sec-fetch-site"), text("origin")) {
        (Some(site), _) => matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => {
            let host = text("host").filter(|host| !host.is_empty());
            origin.split_once("://").is_some_and(|(_, from)| Some(from) == host)
        }
        (None, None) => true,
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
    form: Result<Form<Login>, FormRejection>,
) -> ApiResult<Response> {
    let Form(login) = form.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::PayloadTooLarge { limit_bytes: BODY_LIMIT },
        _ => ApiError::invalid("/key", "is required, in a form"),
    })?;
    let key = login.key.trim();
    match auth::authenticate(&state, key).await {
        Ok(_) => {}
        Err(ApiError::InvalidApiKey) => {
            return Ok(Redirect::to("/login?problem=invalid_api_key").into_response());
        }
        Err(error) => return Err(error),
    }
    let hash = URL_SAFE_NO_PAD.encode(state.pepper.key_hash(key));
    let began_at = state.store.now().await?.timestamp_micros().to_string();
    let code = URL_SAFE_NO_PAD.encode(state.pepper.mac(PURPOSE, &[hash.as_bytes(), began_at.as_bytes()]));
    Ok(with_cookie(&state, &format!("{hash}.{began_at}.{code}"), LIFE_SECONDS, own_page(&login.next)))
}

/// `next` if it is an address of this page, and no other site's.
fn own_page(next: &str) -> &str {
    let is_own = next.starts_with('/') && !next.starts_with("//") && !next.contains(['\\', '\r', '\n']);
    if is_own { next } else { "/" }
}

pub(crate) async fn logout(State(state): State<ApiState>, _: SameSite, headers: HeaderMap) -> ApiResult<Response> {
    if let Some(session) = Session::read(&state, &headers) {
        state.store.end_sessions(&session.key_hash, session.began_at).await?;
        state.keys.forget(&session.key_hash);
    }
    Ok(with_cookie(&state, "", 0, "/login"))
}

fn with_cookie(state: &ApiState, value: &str, life_seconds: i64, to: &str) -> Response {
    let secure = if state.options.secure_cookies { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life_seconds}{secure}");
    let mut response = Redirect::to(to).into_response();
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_page_is_never_another_site() {
        assert_eq!(own_page("/executions?status=FAILED"), "/executions?status=FAILED");
        for other in ["", "//evil", "https://evil", "/\\\\evil", "/a\r\nb"] {
            assert_eq!(own_page(other), "/", "{other}");
        }
    }

    #[test]
    fn cross_site_request_is_detected() {
        let is_same = |headers: &[(&'static str, &str)]| {
            is_same_site(&headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect())
        };
        let host = ("host", "api:8080");
        assert!(is_same(&[host]));
        assert!(is_same(&[host, ("origin", "http://api:8080")]));
        // A proxy may have changed `Host`; the browser's `Sec-Fetch-Site` decides.
        assert!(is_same(&[host, ("origin", "https://status.example"), ("sec-fetch-site", "same-origin")]));
        assert!(!is_same(&[host, ("origin", "http://evil")]));
        assert!(!is_same(&[host, ("origin", "null")]));
        for site in ["cross-site", "same-site", ""] {
            assert!(!is_same(&[host, ("origin", "http://api:8080"), ("sec-fetch-site", site)]), "{site}");
        }
    }
}
