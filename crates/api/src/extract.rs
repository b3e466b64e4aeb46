//! Reads requests: bodies within a limit, fields with all violations at once, query parameters, ids, cursors.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    marker::PhantomData,
    str::FromStr,
    time::Duration,
};

use axum::{
    body::Body,
    extract::{FromRequestParts, Query},
    http::{HeaderMap, header, request::Parts},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use chrono::{DateTime, Datelike, Utc};
use longhaul_sdk::numbers;
use longhaul_shared::{cpu_lane::CpuLane, domain::ExecutionId};
use longhaul_store::api_keys::Scope;
use longhaul_store::tenants::TenantScope;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Value, value::RawValue};
use uuid::Uuid;

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult, Violation},
    state::ApiState,
};

/// Body limit of one submit, in bytes.
pub(crate) const SUBMIT_LIMIT: usize = 1024 * 1024;
/// Body limit of a batch of submits, in bytes.
pub(crate) const BATCH_LIMIT: usize = 16 * 1024 * 1024;
/// Body limit of documents for an index, in bytes.
pub(crate) const DOCUMENTS_LIMIT: usize = 8 * 1024 * 1024;
/// Body limit of all other requests, in bytes.
pub(crate) const BODY_LIMIT: usize = 256 * 1024;
/// Time limit for a body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest body that is parsed on the async thread, in bytes: less than a millisecond of work.
const BRIEF_BODY: usize = 64 * 1024;

static LARGE_BODIES: CpuLane = CpuLane::new();

/// Reads a JSON body of at most `limit` bytes, without parsing it.
pub(crate) async fn read_body(headers: &HeaderMap, body: Body, limit: usize) -> ApiResult<Bytes> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        return Err(ApiError::UnsupportedMediaType);
    }
    let too_large = ApiError::PayloadTooLarge { limit_bytes: limit };
    let stated = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if stated.is_some_and(|length| length > limit) {
        return Err(too_large);
    }
    match tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        // Either the body exceeds the limit, or the caller went away and reads no answer.
        Ok(Err(_)) => Err(too_large),
        Err(_) => Err(ApiError::RequestTimeout),
    }
}

/// Parses a body of `bytes` bytes. Large ones queue for a CPU thread of their own, so that other requests continue.
pub(crate) async fn in_turn<T: Send>(bytes: usize, parse: impl Fn() -> T + Sync) -> T {
    if bytes <= BRIEF_BODY {
        return parse();
    }
    // If no thread can be started, parse here: slow is better than an error.
    LARGE_BODIES.turn().await.run(&parse).unwrap_or_else(|_| parse())
}

/// The fields of a JSON object, taken one by one. Violations are collected; fields left over are unknown.
pub(crate) struct Fields<'a> {
    fields: BTreeMap<String, &'a RawValue>,
    violations: Vec<Violation>,
}

impl<'a> Fields<'a> {
    /// # Errors
    /// The text is not a JSON object.
    pub(crate) fn parse(text: &'a [u8]) -> ApiResult<Self> {
        let text = std::str::from_utf8(text).map_err(|_| ApiError::MalformedJson("it is not UTF-8".into()))?;
        let raw: &RawValue = serde_json::from_str(text).map_err(|error| ApiError::MalformedJson(error.to_string()))?;
        Self::of(raw, "")
    }

    /// # Errors
    /// The value is not an object.
    pub(crate) fn of(raw: &'a RawValue, path: &str) -> ApiResult<Self> {
        let fields = serde_json::from_str(raw.get()).map_err(|_| ApiError::invalid(path, "must be an object"))?;
        Ok(Self { fields, violations: Vec::new() })
    }

    /// The raw text of a field; null counts as absent.
    pub(crate) fn raw(&mut self, name: &str) -> Option<&'a RawValue> {
        self.fields.remove(name).filter(|raw| raw.get() != "null")
    }

    /// A field, deserialized. A value of the wrong type becomes a violation.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let raw = self.raw(name)?;
        match serde_json::from_str(raw.get()) {
            Ok(value) => Some(value),
            Err(error) => {
                let text = error.to_string();
                // Drop the position: it is relative to the field's text, which the caller cannot map.
                let why = text.split(" at line ").next().unwrap_or_default();
                self.violation(format!("/{name}"), why);
                None
            }
        }
    }

    pub(crate) fn violation(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.violations.push(Violation::new(path, message));
    }

    /// Adds a violation for the first number in `value` that is too long to be stored exactly.
    pub(crate) fn oversized_number(&mut self, value: &Value, path: &str) {
        self.violations.extend(oversized_number(value, path));
    }

    /// # Errors
    /// The request has violations or unknown fields.
    pub(crate) fn finish(mut self) -> ApiResult<()> {
        for name in self.fields.keys() {
            let path = format!("/{}", escape_pointer(name));
            self.violations.push(Violation::new(path, "unknown field"));
        }
        if self.violations.is_empty() { Ok(()) } else { Err(ApiError::InvalidRequest(self.violations)) }
    }
}

/// A record that must be written as a JSON object. serde alone also accepts a list of the fields' values.
pub(crate) struct Record<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Record<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
            type Value = T;

            fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
                text.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members))
            }
        }

        deserializer.deserialize_map(Object(PhantomData)).map(Self)
    }
}

/// Deserializes a whole record.
///
/// # Errors
/// The value does not match, or a list stands in place of a record.
pub(crate) fn read_record<T: DeserializeOwned + Serialize>(value: &Value) -> ApiResult<T> {
    let record: T = T::deserialize(value).map_err(|error| ApiError::invalid("", error.to_string()))?;
    let read = serde_json::to_value(&record).map_err(|error| ApiError::invalid("", error.to_string()))?;
    let mut violations = Vec::new();
    find_lists(value, &read, "", &mut violations);
    if violations.is_empty() { Ok(record) } else { Err(ApiError::InvalidRequest(violations)) }
}

/// Finds lists that serde read as records.
fn find_lists(given: &Value, read: &Value, path: &str, violations: &mut Vec<Violation>) {
    match (given, read) {
        (Value::Array(_), Value::Object(_)) => violations.push(Violation::new(path, "must be an object")),
        (Value::Array(given), Value::Array(read)) => {
            for (at, (given, read)) in given.iter().zip(read).enumerate() {
                find_lists(given, read, &format!("{path}/{at}"), violations);
            }
        }
        (Value::Object(given), Value::Object(read)) => {
            for (name, given) in given {
                if let Some(read) = read.get(name) {
                    find_lists(given, read, &format!("{path}/{}", escape_pointer(name)), violations);
                }
            }
        }
        (_, _) => {}
    }
}

pub(crate) fn escape_pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The path of the first U+0000 in a value.
pub(crate) fn find_nul(value: &Value, path: &str) -> Option<String> {
    match value {
        Value::String(text) => text.contains('\0').then(|| path.to_owned()),
        Value::Array(items) => items.iter().enumerate().find_map(|(i, item)| find_nul(item, &format!("{path}/{i}"))),
        Value::Object(fields) => fields.iter().find_map(|(key, item)| {
            if key.contains('\0') {
                Some(path.to_owned())
            } else {
                find_nul(item, &format!("{path}/{}", escape_pointer(key)))
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
    fn every_violation_of_an_object_is_reported() {
        let mut fields = Fields::parse(br#"{"priority":"high","queue":7,"colour/tone":1,"input":{"a":1}}"#).unwrap();
        assert_eq!(fields.take::<u8>("priority"), None);
        assert_eq!(fields.take::<String>("queue"), None);
        assert_eq!(fields.raw("input").unwrap().get(), r#"{"a":1}"#);
        let Err(ApiError::InvalidRequest(violations)) = fields.finish() else { panic!() };
        let paths: Vec<_> = violations.iter().map(|violation| violation.path.as_str()).collect();
        assert_eq!(paths, ["/priority", "/queue", "/colour~1tone"]);
    }

    #[test]
    fn body_other_than_an_object_is_refused() {
        assert!(matches!(Fields::parse(b"{").err(), Some(ApiError::MalformedJson(_))));
        assert!(matches!(Fields::parse(b"\xff").err(), Some(ApiError::MalformedJson(_))));
        assert!(matches!(Fields::parse(b"[1]").err(), Some(ApiError::InvalidRequest(_))));
    }

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
