//! Cookies whose values only this installation can write: signed under the pepper, and valid for a time.

use axum::http::{HeaderMap, header};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    error::{ApiError, ApiResult},
    state::ApiState,
};

/// A cookie that no script can read.
pub(crate) struct SealedCookie {
    pub(crate) name: &'static str,
    /// Purpose of the signature: a value of one cookie is none of another.
    pub(crate) purpose: &'static str,
    pub(crate) same_site: &'static str,
    pub(crate) life_seconds: i64,
}

impl SealedCookie {
    /// The header that sets the cookie to a value of the time `at`.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub(crate) fn set<T: Serialize>(&self, state: &ApiState, value: &T, at: DateTime<Utc>) -> ApiResult<String> {
        let text = serde_json::to_vec(&(value, at)).map_err(|_| ApiError::Internal)?;
        let code = state.pepper.mac(self.purpose, &[&text]);
        let sealed = format!("{}.{}", URL_SAFE_NO_PAD.encode(text), URL_SAFE_NO_PAD.encode(code));
        Ok(self.header(state, &sealed, self.life_seconds))
    }

    /// The header that removes the cookie.
    pub(crate) fn remove(&self, state: &ApiState) -> String {
        self.header(state, "", 0)
    }

    /// The value that the request sends and its time, if it has a valid signature and is not too old.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        state: &ApiState,
        headers: &HeaderMap,
    ) -> Option<(T, DateTime<Utc>)> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let sealed = cookies.flat_map(|value| value.split(';')).find_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            (name.strip_prefix(prefix(state))? == self.name).then_some(value)
        })?;
        let (text, code) = sealed.split_once('.')?;
        let (text, code) = (URL_SAFE_NO_PAD.decode(text).ok()?, URL_SAFE_NO_PAD.decode(code).ok()?);
        if !state.pepper.verifies(self.purpose, &[&text], &code) {
            return None;
        }
        let (value, at): (T, DateTime<Utc>) = serde_json::from_slice(&text).ok()?;
        let is_live = state.store.believed_now() - at < TimeDelta::seconds(self.life_seconds);
        is_live.then_some((value, at))
    }

    fn header(&self, state: &ApiState, value: &str, life_seconds: i64) -> String {
        let (prefix, secure) = (prefix(state), if state.options.secure_cookies { "; Secure" } else { "" });
        let Self { name, same_site, .. } = self;
        format!("{prefix}{name}={value}; Path=/; HttpOnly; SameSite={same_site}; Max-Age={life_seconds}{secure}")
    }
}

/// With the prefix, browsers take the cookie from this host only, so that a host beside it cannot plant one
/// (RFC 6265bis, section 4.1.3.2).
fn prefix(state: &ApiState) -> &'static str {
    if state.options.secure_cookies { "__Host-" } else { "" }
}
