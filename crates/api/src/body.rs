//! Reads request bodies: one type per body. Its derived JSON Schema is the schema in OpenAPI and validates the body;
//! then serde reads it (docs/design/api.md).

use std::{
    any::{TypeId, type_name},
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, LazyLock},
    time::Duration,
};

use axum::{
    body::{Body, HttpBody},
    http::{HeaderMap, header},
};
use bytes::Bytes;
use longhaul_guards::cpu_lane::CpuLane;
use longhaul_guards::json_schema::Schema;
use longhaul_sdk::{json_pointer, spec::SkillSpec};
use longhaul_shared::nearest::nearest;
use parking_lot::RwLock;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{
    Deserialize,
    de::{DeserializeOwned, value::MapDeserializer},
};
use serde_json::{Map, Value, value::RawValue};
use serde_path_to_error::Segment;

use crate::{
    error::{ApiError, ApiResult, Violation},
    extract::{find_nul, oversized_number},
    schema,
};

/// Body limit of one submit, in bytes.
pub(crate) const SUBMIT_LIMIT: usize = 1024 * 1024;
/// Body limit of a batch of submits, in bytes.
pub(crate) const BATCH_LIMIT: usize = 16 * 1024 * 1024;
/// Body limit of documents for an index, in bytes.
pub(crate) const DOCUMENTS_LIMIT: usize = 8 * 1024 * 1024;
/// Body limit of a skill, in bytes: twice its texts, for escapes.
pub(crate) const SKILL_LIMIT: usize = 2 * SkillSpec::MAX_BYTES;
/// Body limit of all other requests, in bytes.
pub(crate) const BODY_LIMIT: usize = 256 * 1024;
/// Time limit for a body to arrive.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest body that is parsed on the async thread, in bytes: less than a millisecond of work.
const BRIEF_BODY: usize = 64 * 1024;

/// Pattern of a text that Postgres can store: U+0000 is not in it.
pub(crate) const NO_NUL: &str = r"^[^\u0000]*$";

static LARGE_BODIES: CpuLane = CpuLane::new();
/// One schema per type of body.
static COMPILED: LazyLock<RwLock<HashMap<TypeId, Arc<Compiled>>>> = LazyLock::new(RwLock::default);

/// The schema of a type of body.
struct Compiled {
    schema: Schema,
    /// Names of all fields, its own and those of the types in it.
    fields: BTreeSet<String>,
}

/// Reads a JSON body of at most `limit` bytes, without parsing it.
pub(crate) async fn read_body(headers: &HeaderMap, body: Body, limit: usize) -> ApiResult<Bytes> {
    read_as(headers, body, "application/json", limit).await
}

/// Reads a body of a media type and of at most `limit` bytes.
///
/// # Errors
/// It has another type, is too large, or does not arrive in time.
pub(crate) async fn read_as(headers: &HeaderMap, body: Body, expected: &str, limit: usize) -> ApiResult<Bytes> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case(expected) {
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

/// The members of a JSON object as text. Null counts as absent; of a repeated name the last member counts.
pub(crate) type Members<'a> = BTreeMap<String, &'a RawValue>;

/// # Errors
/// The text is not JSON, or not an object.
pub(crate) fn members(text: &[u8]) -> ApiResult<Members<'_>> {
    let text = std::str::from_utf8(text).map_err(|_| ApiError::MalformedJson("it is not UTF-8".into()))?;
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| ApiError::MalformedJson(error.to_string()))?;
    let mut members: Members<'_> =
        serde_json::from_str(raw.get()).map_err(|_| ApiError::invalid("", "must be an object"))?;
    members.retain(|_, raw| raw.get() != "null");
    Ok(members)
}

/// A body as its type, and its members as values, which keep numbers exactly.
#[derive(Debug)]
pub(crate) struct Read<T> {
    pub(crate) body: T,
    pub(crate) values: Map<String, Value>,
}

/// Reads a body whose type has no rules beyond its schema.
///
/// # Errors
/// See [`read`] and [`read_body`].
pub(crate) async fn read_json<T: JsonSchema + DeserializeOwned + Send + 'static>(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> ApiResult<T> {
    let bytes = read_body(headers, body, limit).await?;
    Ok(in_turn(bytes.len(), || read(&bytes, |_: &T| Vec::new())).await?.body)
}

/// Reads a body that may be left out.
///
/// # Errors
/// See [`read_json`].
pub(crate) async fn read_optional<T: JsonSchema + DeserializeOwned + Default + Send + 'static>(
    headers: &HeaderMap,
    body: Body,
) -> ApiResult<T> {
    if body.is_end_stream() { Ok(T::default()) } else { read_json(headers, body, BODY_LIMIT).await }
}

/// Reads a body. `rules` finds violations that no schema can express.
///
/// # Errors
/// The text is not JSON, or it has violations, which are reported together.
pub(crate) fn read<T: JsonSchema + DeserializeOwned + 'static>(
    text: &[u8],
    rules: impl FnOnce(&T) -> Vec<Violation>,
) -> ApiResult<Read<T>> {
    let mut members = members(text)?;
    let mut faults = Faults::default();
    let mut values = Map::new();
    for (name, raw) in &members {
        let at = format!("/{}", json_pointer::token(name));
        // As raw text, lone surrogates, deep nesting and oversized numbers pass; parsing finds them.
        match serde_json::from_str(raw.get()) {
            Err(error) => faults.0.push(Violation::new(at, format!("cannot be stored: {error}"))),
            Ok(value) => match oversized_number(&value, &at) {
                Some(oversized) => faults.0.push(oversized),
                None => drop(values.insert(name.clone(), value)),
            },
        }
    }
    let values = Value::Object(values);
    let compiled = compiled::<T>()?;
    let found = schema::violations_now(&compiled.schema, &values)?;
    faults.add(found.into_iter().map(|one| with_meant(one, &compiled.fields)).collect());
    // The rules see the whole body if serde can read it, and else what is left without the members at fault.
    let read = typed::<T>(&members).or_else(|violation| {
        members.retain(|name, _| !faults.has_member(name));
        if faults.0.is_empty() { Err(violation) } else { typed::<T>(&members) }
    });
    match &read {
        Ok(body) => faults.add(rules(body)),
        // A required member with a violation is missing here: that says nothing new.
        Err(violation) if violation.path.is_empty() && !faults.0.is_empty() => {}
        Err(violation) => faults.add(vec![violation.clone()]),
    }
    faults.none()?;
    match (read, values) {
        (Ok(body), Value::Object(values)) => Ok(Read { body, values }),
        (Ok(_) | Err(_), _) => Err(ApiError::Internal),
    }
}

/// Reads a body of which every text is stored as text in Postgres, which refuses U+0000.
///
/// # Errors
/// See [`read`].
pub(crate) fn read_storable<T: JsonSchema + DeserializeOwned + 'static>(
    text: &[u8],
    rules: impl FnOnce(&T) -> Vec<Violation>,
) -> ApiResult<T> {
    let Read { body, values } = read(text, rules)?;
    match find_nul(&Value::Object(values), "") {
        Some(path) => Err(ApiError::InputContainsNul { path }),
        None => Ok(body),
    }
}

/// Reads members as their type, without the type's schema.
///
/// # Errors
/// The first member that does not fit.
pub(crate) fn typed<'de, T: Deserialize<'de>>(members: &Members<'de>) -> Result<T, Violation> {
    let members = MapDeserializer::new(members.iter().map(|(name, raw)| (name.as_str(), *raw)));
    serde_path_to_error::deserialize(members).map_err(|error| {
        let text = error.inner().to_string();
        // Drop the position: it is relative to a member's text, which the caller cannot map.
        Violation::new(pointer(error.path()), text.split(" at line ").next().unwrap_or_default())
    })
}

/// The violations of a body. Of those at one place, the first stage has the last word.
#[derive(Default)]
struct Faults(Vec<Violation>);

impl Faults {
    fn has_member(&self, name: &str) -> bool {
        self.0.iter().any(|known| is_within(&known.path, &format!("/{}", json_pointer::token(name))))
    }

    fn add(&mut self, mut found: Vec<Violation>) {
        let is_new = |one: &Violation| {
            !self.0.iter().any(|known| is_within(&known.path, &one.path) || is_within(&one.path, &known.path))
        };
        found.retain(is_new);
        self.0.extend(found);
    }

    fn none(mut self) -> ApiResult<()> {
        self.0.sort_by(|one, other| one.path.cmp(&other.path));
        if self.0.is_empty() { Ok(()) } else { Err(ApiError::InvalidRequest(self.0)) }
    }
}

/// True if `path` names `place` or something in it. The whole body counts as a place of its own.
fn is_within(path: &str, place: &str) -> bool {
    let rest = path.strip_prefix(place);
    rest.is_some_and(|rest| rest.is_empty() || (rest.starts_with('/') && !place.is_empty()))
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    let segment = |segment: &Segment| match segment {
        Segment::Seq { index } => Some(format!("/{index}")),
        Segment::Map { key } => Some(format!("/{}", json_pointer::token(key))),
        Segment::Enum { .. } | Segment::Unknown => None,
    };
    path.iter().filter_map(segment).collect()
}

/// The compiled schema of a type of body.
fn compiled<T: JsonSchema + 'static>() -> ApiResult<Arc<Compiled>> {
    let id = TypeId::of::<T>();
    if let Some(known) = COMPILED.read().get(&id) {
        return Ok(Arc::clone(known));
    }
    let document = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    let schema = schema::compile(document.as_value()).map_err(|error| {
        tracing::error!(error, body = type_name::<T>(), "the schema of a body does not compile");
        ApiError::Internal
    })?;
    let mut fields = BTreeSet::new();
    field_names(document.as_value(), &mut fields);
    let compiled = Arc::new(Compiled { schema, fields });
    COMPILED.write().insert(id, Arc::clone(&compiled));
    Ok(compiled)
}

/// The names under `properties`, anywhere in a schema.
fn field_names(of: &Value, found: &mut BTreeSet<String>) {
    match of {
        Value::Object(members) => {
            if let Some(Value::Object(properties)) = members.get("properties") {
                found.extend(properties.keys().cloned());
            }
            members.values().for_each(|member| field_names(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| field_names(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// An unknown field, with the field that was probably meant.
fn with_meant(mut violation: Violation, fields: &BTreeSet<String>) -> Violation {
    if violation.message == schema::UNKNOWN_FIELD {
        let name = violation.path.rsplit('/').next().unwrap_or_default();
        if let Some(meant) = nearest(name, fields.iter().map(String::as_str)) {
            violation.message.push_str(&format!("; did you mean `{meant}`?"));
        }
    }
    violation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Order {
        name: String,
        #[schemars(range(max = 9))]
        count: Option<u8>,
        #[serde(default)]
        nested: Vec<Line>,
        #[schemars(with = "Option<Value>")]
        input: Option<Box<RawValue>>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "read by serde alone")]
    struct Line {
        units: u32,
        kind: Option<Kind>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        /// Sold by the piece.
        Piece,
        /// Sold by weight.
        Weight,
    }

    fn paths(text: &str) -> Vec<String> {
        let rule = |order: &Order| {
            if order.name == "none" { vec![Violation::new("/name", "is reserved")] } else { Vec::new() }
        };
        match read(text.as_bytes(), rule) {
            Err(ApiError::InvalidRequest(violations)) => violations.into_iter().map(|one| one.path).collect(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn every_violation_is_reported_with_its_path() {
        assert_eq!(
            paths(
                r#"{"name":7,"count":10,"colour/tone":1,"nested":[{"units":-1},{"units":1,"x":2},[1]],"input":1e999}"#
            ),
            ["/colour~1tone", "/count", "/input", "/name", "/nested/0/units", "/nested/1/x", "/nested/2"]
        );
        assert_eq!(paths(r#"{"name":"none","count":10}"#), ["/count", "/name"]);
        assert_eq!(paths(r#"{"nested":[{"units":1,"kind":"litre"}]}"#), ["/name", "/nested/0/kind"]);
        // Within the schema, beyond the type.
        assert_eq!(paths(r#"{"name":"a","nested":[{"units":4294967296}]}"#), ["/nested/0/units"]);
        assert_eq!(paths("[1]"), [""]);
    }

    #[test]
    fn nulls_are_absent_and_text_is_kept() {
        let read = read(br#"{"name":"a","count":null,"input":{"a": 1e2,"a":-0.0}}"#, |_: &Order| Vec::new()).unwrap();
        assert_eq!((read.body.name.as_str(), read.body.count, read.body.nested.len()), ("a", None, 0));
        assert_eq!(read.body.input.unwrap().get(), r#"{"a": 1e2,"a":-0.0}"#);
    }

    #[test]
    fn violations_are_bounded_in_number_and_size() {
        let lines = vec![r#"{"units":"x"}"#; 5_000].join(",");
        assert_eq!(paths(&format!(r#"{{"name":"a","nested":[{lines}]}}"#)).len(), crate::error::MAX_VIOLATIONS);
        let long = "n".repeat(100_000);
        let found = paths(&format!(r#"{{"name":"a","{long}":1}}"#));
        assert!(found.len() == 1 && found[0].len() < 1_000, "{}", found[0].len());
    }

    #[test]
    fn text_other_than_json_is_malformed() {
        for text in [&b"{"[..], b"\xff", b""] {
            let read = read(text, |_: &Order| Vec::new());
            assert!(matches!(read.err(), Some(ApiError::MalformedJson(_))));
        }
    }
}
