//! Reads requests: query parameters, ids, cursors. Bodies are read by `body.rs`.

use std::{fmt::Display, str::FromStr};

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{DateTime, Datelike, Utc};
use longhaul_domain::ExecutionId;
use longhaul_sdk::{json_pointer, numbers};
use longhaul_shared::nearest::nearest;
use longhaul_store::tenants::api_keys::Scope;
use longhaul_store::tenants::scope::TenantScope;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult, Violation},
    state::ApiState,
};

/// The path of the first U+0000 in a value.
pub(crate) fn find_nul(value: &Value, path: &str) -> Option<String> {
    match value {
        Value::String(text) => text.contains('\0').then(|| path.to_owned()),
        Value::Array(items) => items.iter().enumerate().find_map(|(i, item)| find_nul(item, &format!("{path}/{i}"))),
        Value::Object(fields) => fields.iter().find_map(|(key, item)| {
            if key.contains('\0') {
                Some(path.to_owned())
            } else {
                find_nul(item, &format!("{path}/{}", json_pointer::token(key)))
            }
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// The violation for the first number in a value that is too long to be stored exactly.
pub(crate) fn oversized_number(value: &Value, path: &str) -> Option<Violation> {
    let oversized = numbers::check(value).err()?;
    Some(Violation::new(format!("{path}{}", oversized.path), oversized.to_string()))
}

/// Query parameters, taken one by one. Parameters left over are unknown.
pub(crate) struct Params {
    pairs: Vec<(String, String)>,
    violations: Vec<Violation>,
}

impl FromRequestParts<ApiState> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, ApiError> {
        let Query(pairs) = Query::try_from_uri(&parts.uri).map_err(|_| ApiError::invalid("/query", "is malformed"))?;
        Ok(Self { pairs, violations: Vec::new() })
    }
}

impl Params {
    /// A parameter as text. U+0000 is a violation, since Postgres cannot store it.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        let at = self.pairs.iter().position(|(key, _)| key == name)?;
        let (_, value) = self.pairs.remove(at);
        if value.contains('\0') {
            self.violation(name, "contains the character U+0000");
            return None;
        }
        Some(value)
    }

    pub(crate) fn take<T: FromStr<Err: Display>>(&mut self, name: &str) -> Option<T> {
        let text = self.text(name)?;
        text.parse().map_err(|error| self.violation(name, format!("`{text}`: {error}"))).ok()
    }

    /// A time in the years 0 to 9999, which both Postgres and execution ids can represent.
    pub(crate) fn instant(&mut self, name: &str) -> Option<DateTime<Utc>> {
        let instant: DateTime<Utc> = self.take(name)?;
        if !(0..=9_999).contains(&instant.year()) {
            self.violation(name, "must be in the years 0 to 9999");
            return None;
        }
        Some(instant)
    }

    /// A parameter that is one of these names, in any case of letters.
    pub(crate) fn chosen<T: Copy>(&mut self, name: &str, all: &[T], name_of: fn(T) -> &'static str) -> Option<T> {
        let text = self.text(name)?;
        let found = all.iter().copied().find(|one| name_of(*one).eq_ignore_ascii_case(&text));
        if found.is_none() {
            let names: Vec<&str> = all.iter().map(|one| name_of(*one)).collect();
            let folded: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
            let meant = nearest(&text.to_lowercase(), folded.iter().map(String::as_str));
            let meant = names.iter().find(|name| meant.is_some_and(|meant| name.eq_ignore_ascii_case(meant)));
            let meant = meant.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
            self.violation(name, format!("`{text}` is none of {}{meant}", names.join(", ")));
        }
        found
    }

    /// A parameter with a closed set of values.
    pub(crate) fn named<T>(&mut self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.text(name)?;
        let parsed = parse(&text);
        if parsed.is_none() {
            self.violation(name, format!("`{text}` is not one of its values"));
        }
        parsed
    }

    /// The parameters named `prefix<rest>`, as `(rest, value)`.
    pub(crate) fn prefixed(&mut self, prefix: &str) -> Vec<(String, String)> {
        let (own, others) = self.pairs.drain(..).partition(|(key, _)| key.starts_with(prefix));
        self.pairs = others;
        let own: Vec<(String, String)> = own;
        own.into_iter().map(|(key, value)| (key[prefix.len()..].to_owned(), value)).collect()
    }

    /// The parameter `limit`, between 1 and `max`.
    pub(crate) fn limit(&mut self, default: i64, max: i64) -> i64 {
        let limit = self.take("limit").unwrap_or(default);
        if !(1..=max).contains(&limit) {
            self.violation("limit", format!("must be between 1 and {max}"));
        }
        limit.clamp(1, max)
    }

    /// Takes parameters that are accepted and have no effect, however often they are given.
    pub(crate) fn ignore(&mut self, names: &[&str]) {
        self.pairs.retain(|(key, _)| !names.contains(&key.as_str()));
    }

    pub(crate) fn violation(&mut self, name: &str, message: impl Into<String>) {
        self.violations.push(Violation::new(format!("/query/{name}"), message));
    }

    /// # Errors
    /// The query has violations, unknown parameters, or one given twice.
    pub(crate) fn finish(mut self) -> ApiResult<()> {
        for (name, _) in std::mem::take(&mut self.pairs) {
            self.violation(&name, "unknown parameter, or given twice");
        }
        if self.violations.is_empty() { Ok(()) } else { Err(ApiError::InvalidRequest(self.violations)) }
    }
}

/// Reads the tenants that the caller asks for: `org_id` with or without `group_id`, or `all_tenants=true`; its own
/// otherwise.
///
/// # Errors
/// The query names other tenants and the key lacks the scope `admin`, or Postgres is unavailable.
pub(crate) async fn take_reach(state: &ApiState, principal: &Principal, params: &mut Params) -> ApiResult<TenantScope> {
    let org = params.text("org_id");
    let group = params.text("group_id");
    let all = params.take::<bool>("all_tenants").unwrap_or(false);
    if org.is_none() && !all {
        if group.is_some() {
            params.violation("group_id", "needs `org_id`");
        }
        return Ok(principal.reach());
    }
    principal.need(Scope::Admin)?;
    match org {
        Some(org) => {
            let tenants = state.store.find_tenants(&org, group.as_deref()).await?;
            Ok(TenantScope::Tenants(tenants.into_iter().map(|tenant| tenant.id).collect()))
        }
        None => Ok(TenantScope::Everybody),
    }
}

/// Like `axum::extract::Path`, but a path that does not parse is [`ApiError::NoSuchRoute`].
#[derive(Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let read = axum::extract::Path::from_request_parts(parts, state).await;
        read.map(|axum::extract::Path(named)| Self(named)).map_err(|_| ApiError::NoSuchRoute)
    }
}

/// The execution id in the path. A malformed id is not found.
pub(crate) struct ExecutionPath(pub(crate) ExecutionId);

impl FromRequestParts<ApiState> for ExecutionPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|Path(text)| text.parse().ok());
        id.map(Self).ok_or(ApiError::NotFound("execution"))
    }
}

/// First byte of a cursor, before the id. Cursors are opaque to callers.
const CURSOR_VERSION: u8 = 1;

pub(crate) fn write_cursor(last: Uuid) -> String {
    let bytes: Vec<u8> = [CURSOR_VERSION].into_iter().chain(*last.as_bytes()).collect();
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn read_cursor(text: &str) -> Option<Uuid> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    match bytes.split_first()? {
        (&CURSOR_VERSION, id) => Uuid::from_slice(id).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip_and_others_are_refused() {
        let id = Uuid::new_v4();
        assert_eq!(read_cursor(&write_cursor(id)), Some(id));
        for bad in ["", "AAAA", "!", &URL_SAFE_NO_PAD.encode([2; 17]), &URL_SAFE_NO_PAD.encode([1; 16])] {
            assert_eq!(read_cursor(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_first_nul_is_found_with_its_path() {
        let value = serde_json::json!({"a": ["x", {"b/c": "y\0"}]});
        assert_eq!(find_nul(&value, "/input").as_deref(), Some("/input/a/1/b~1c"));
        assert_eq!(find_nul(&serde_json::json!([1, "ok"]), "/input"), None);
    }
}
