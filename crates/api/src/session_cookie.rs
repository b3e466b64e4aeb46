//! The cookie of a session of the page, and which requests may use it.
//!
//! The cookie holds the hash of a key or an account and the time of signing in, signed by us, so it cannot be forged.
//! Every request looks the key up: revoking it ends the session, and signing out ends all sessions of the key.

use axum::http::{HeaderMap, Method, header, request::Parts};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{DateTime, Utc};

use crate::{
    error::{ApiError, ApiResult},
    sealed_cookie::SealedCookie,
    state::ApiState,
};

const COOKIE: SealedCookie = SealedCookie {
    name: "longhaul_session",
    purpose: "status-page-session",
    same_site: "Strict",
    life_seconds: 12 * 3_600,
};

/// A session as its cookie states it. The caller checks that its key has not ended it.
pub(crate) struct Session {
    pub(crate) key_hash: Vec<u8>,
    pub(crate) began_at: DateTime<Utc>,
}

impl Session {
    /// Reads the session of a cookie with a valid signature that has not expired.
    pub(crate) fn read(state: &ApiState, headers: &HeaderMap) -> Option<Self> {
        let (hash, began_at): (String, _) = COOKIE.read(state, headers)?;
        Some(Self { key_hash: URL_SAFE_NO_PAD.decode(hash).ok()?, began_at })
    }

    /// The cookie of a session that begins at `began_at` with the key of that hash.
    ///
    /// # Errors
    /// None that callers could cause.
    pub(crate) fn cookie(state: &ApiState, key_hash: &[u8], began_at: DateTime<Utc>) -> ApiResult<String> {
        COOKIE.set(state, &URL_SAFE_NO_PAD.encode(key_hash), began_at)
    }

    /// The cookie that removes a session's.
    pub(crate) fn no_cookie(state: &ApiState) -> String {
        COOKIE.remove(state)
    }
}

/// The session of a request. The caller checks that its key has not ended it.
///
/// # Errors
/// There is no valid session, or the request changes something and a page of another site sent it.
pub(crate) fn session_of(state: &ApiState, parts: &Parts) -> ApiResult<Session> {
    let session = Session::read(state, &parts.headers).ok_or(ApiError::Unauthenticated)?;
    // Browsers send the cookie with every request to this host, so a request that changes something must name its
    // origin. Only browsers have cookies, and those that do not name it are too old.
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    if !is_read && (!names_its_origin(&parts.headers) || !is_same_site(&parts.headers)) {
        return Err(ApiError::CrossSite);
    }
    Ok(session)
}

fn names_its_origin(headers: &HeaderMap) -> bool {
    headers.contains_key("sec-fetch-site") || headers.contains_key(header::ORIGIN)
}

/// Browsers state where a request comes from; a request that states nothing does not come from a browser.
pub(crate) fn is_same_site(headers: &HeaderMap) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

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
