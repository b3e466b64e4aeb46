//! Validation of contract requests. The first problem is reported to the caller, and nothing is stored.
//!
//! `null` counts as absent everywhere. Unknown fields are ignored.

use longhaul_domain::{
    RuntimeProfile,
    retrieval::{INVALID_RETRIEVAL_INPUT, INVALID_RETRIEVAL_MESSAGE, RetrievalRequest},
};
use longhaul_sdk::numbers;
use serde_json::{Map, Value};

use super::{Message, PlatformRuntime, messages::prompt_text};

/// Maximum bytes of an agent id, a role, an organisation id or a group id.
const MAX_NAME_BYTES: usize = 256;

/// A refused request: an error response without `details`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContractRefusal {
    /// HTTP status.
    pub status: u16,
    /// Error code.
    pub error: &'static str,
    /// Message for people.
    pub message: &'static str,
}

impl ContractRefusal {
    /// The body is not a JSON object.
    pub const PAYLOAD: Self = Self::bad("invalid_payload", "Expected JSON object");
    /// A field of the request is invalid.
    pub const FIELD: Self = Self::bad("invalid_payload", "Expected valid payload");
    /// The agent id is missing or invalid.
    pub const AGENT: Self = Self::bad("invalid_agent_id", "agent_id is required");
    /// `input` is not an object.
    pub const INPUT: Self = Self::bad("invalid_input", "input must be an object when provided");
    /// `input` contains U+0000, which Postgres cannot store.
    pub const NUL: Self = Self::bad("invalid_input", "input must not contain the character U+0000");
    /// The retrieval request is invalid.
    pub const RETRIEVAL: Self = Self::bad(INVALID_RETRIEVAL_INPUT, INVALID_RETRIEVAL_MESSAGE);
    /// The service token is missing or wrong.
    pub const TOKEN: Self =
        Self { status: 401, error: "invalid_service_token", message: "Missing or invalid service token" };
    /// The route does not exist.
    pub const ROUTE: Self = Self { status: 404, error: "not_found", message: "Route not found" };
    /// The route does not support the method.
    pub const METHOD: Self = Self { status: 405, error: "method_not_allowed", message: "Method not allowed" };
    /// The body exceeds the size limit.
    pub const TOO_LARGE: Self = Self { status: 413, error: "payload_too_large", message: "Request body is too large" };
    /// The body did not arrive in time.
    pub const SLOW: Self =
        Self { status: 408, error: "request_timeout", message: "Request body did not arrive in time" };

    const fn bad(error: &'static str, message: &'static str) -> Self {
        Self { status: 400, error, message }
    }
}

/// A validated request.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecRequest {
    /// Agent id without a version.
    pub agent_ref: String,
    /// `agent_version`, or the part of the id after `@`.
    pub version: Option<String>,
    /// Messages for the model.
    pub messages: Vec<Message>,
    /// Stored input of the execution: `{"prompt"}`, `{"messages"}` or `{}`.
    pub input: Value,
    /// Input as sent, forwarded to another engine.
    pub raw_input: Value,
    /// Requested managed model.
    pub model: Option<String>,
    pub retrieval: Option<RetrievalRequest>,
    /// Id of the requesting user.
    pub requested_by_user_id: Option<i64>,
    /// Role of the requesting user, in lower case.
    pub requested_by_role: String,
    /// Requested runtime profile.
    pub runtime_profile: Option<RuntimeProfile>,
    /// Platform snapshot.
    pub platform_runtime: PlatformRuntime,
    pub org_id: Option<String>,
    pub group_id: Option<String>,
}

impl ExecRequest {
    /// Parses and validates a body; an empty one counts as `{}`.
    ///
    /// # Errors
    /// The first problem found.
    pub fn read(body: &[u8]) -> Result<Self, ContractRefusal> {
        let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
        let body: Value = serde_json::from_slice(body).map_err(|_| ContractRefusal::PAYLOAD)?;
        numbers::check(&body).map_err(|_| ContractRefusal::PAYLOAD)?;
        let Value::Object(mut fields) = body else { return Err(ContractRefusal::PAYLOAD) };
        fields.retain(|_, value| !value.is_null());

        let agent = text(&mut fields, "agent_id").map_err(|_| ContractRefusal::AGENT)?.ok_or(ContractRefusal::AGENT)?;
        let (agent_ref, at) = match agent.split_once('@') {
            Some((key, version)) => (key.trim().to_owned(), Some(version.trim().to_owned())),
            None => (agent, None),
        };
        if agent_ref.is_empty() {
            return Err(ContractRefusal::AGENT);
        }
        let mut input = match fields.remove("input") {
            None => Map::new(),
            Some(Value::Object(input)) => input,
            Some(_) => return Err(ContractRefusal::INPUT),
        };
        input.retain(|_, value| !value.is_null());
        let retrieval = RetrievalRequest::of_input(&input).map_err(|_| ContractRefusal::RETRIEVAL)?;
        let input = Value::Object(input);
        let messages = Message::of_input(&input);
        if retrieval.is_some() && messages.is_empty() {
            return Err(ContractRefusal::RETRIEVAL);
        }
        if has_nul(&input) {
            return Err(ContractRefusal::NUL);
        }

        let requested_by_user_id = user_id(fields.get("requested_by_user_id"))?;
        let requested_by_role = role(fields.get("requested_by_role"))?;
        let version = match fields.remove("agent_version") {
            None => at,
            Some(Value::String(text)) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()).or(at),
            Some(Value::Number(number)) => Some(number.to_string()),
            Some(_) => return Err(ContractRefusal::FIELD),
        };
        let runtime_profile = fields.get("runtime_profile").and_then(Value::as_str).and_then(RuntimeProfile::read);
        let platform_runtime = PlatformRuntime::of_request(fields.remove("platform_runtime"));
        let (org_id, group_id) = (text(&mut fields, "org_id")?, text(&mut fields, "group_id")?);
        if has_nul(&platform_runtime.0) || version.as_deref().is_some_and(|text| text.contains('\0')) {
            return Err(ContractRefusal::FIELD);
        }
        Ok(Self {
            agent_ref,
            version,
            model: input.get("model").and_then(prompt_text),
            input: stored_input(&input, &messages),
            raw_input: input,
            messages,
            retrieval,
            requested_by_user_id,
            requested_by_role,
            runtime_profile,
            platform_runtime,
            org_id,
            group_id,
        })
    }
}

/// Returns the used prompt, or the parsed messages.
fn stored_input(input: &Value, messages: &[Message]) -> Value {
    let is_prompt = Message::of_input(&serde_json::json!({ "messages": input.get("messages") })).is_empty();
    match messages {
        [] => Value::Object(Map::new()),
        [only] if is_prompt => serde_json::json!({ "prompt": only.text() }),
        _ => serde_json::json!({ "messages": messages }),
    }
}

/// Removes and returns a name field, trimmed; blank text counts as absent.
fn text(fields: &mut Map<String, Value>, name: &str) -> Result<Option<String>, ContractRefusal> {
    match fields.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) if text.contains('\0') || text.len() > MAX_NAME_BYTES => Err(ContractRefusal::FIELD),
        Some(Value::String(text)) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(_) => Err(ContractRefusal::FIELD),
    }
}

/// Parses a user id from an integer, digits as text, a boolean or a fraction. `None` if it is not positive.
fn user_id(value: Option<&Value>) -> Result<Option<i64>, ContractRefusal> {
    let id = match value {
        None => 0,
        Some(Value::Bool(is)) => i64::from(*is),
        Some(Value::String(text)) if text.trim().is_empty() => 0,
        Some(Value::String(text)) => text.trim().parse().map_err(|_| ContractRefusal::FIELD)?,
        Some(Value::Number(number)) => match number.as_i64() {
            Some(id) => id,
            None => whole(number.as_f64().unwrap_or(f64::NAN)).ok_or(ContractRefusal::FIELD)?,
        },
        Some(Value::Null | Value::Array(_) | Value::Object(_)) => return Err(ContractRefusal::FIELD),
    };
    Ok(Some(id).filter(|id| *id > 0))
}

/// Truncates a fraction, within the range where doubles represent integers exactly.
fn whole(number: f64) -> Option<i64> {
    let text = format!("{:.0}", number.trunc());
    (number.abs() < 9_007_199_254_740_992.0).then(|| text.parse().ok()).flatten()
}

fn role(value: Option<&Value>) -> Result<String, ContractRefusal> {
    let role = match value {
        None => String::new(),
        Some(Value::String(text)) if text.contains('\0') || text.len() > MAX_NAME_BYTES => {
            return Err(ContractRefusal::FIELD);
        }
        Some(Value::String(text)) => text.trim().to_lowercase(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            return Err(ContractRefusal::FIELD);
        }
    };
    Ok(if role.is_empty() { "user".to_owned() } else { role })
}

/// Returns true if the value contains U+0000, which Postgres cannot store.
fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(fields) => fields.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Parses a version as the contract writes it: `v3` or `3`.
#[must_use]
pub fn version_number(text: &str) -> Option<i32> {
    let digits = text.strip_prefix(['v', 'V']).unwrap_or(text);
    digits.parse().ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: &Value) -> Result<ExecRequest, ContractRefusal> {
        ExecRequest::read(body.to_string().as_bytes())
    }

    #[test]
    fn first_violation_of_a_request_is_reported() {
        use ContractRefusal as R;
        for (body, expected) in [
            (&b"{"[..], R::PAYLOAD),
            (b"[1]", R::PAYLOAD),
            (b"\"x\"", R::PAYLOAD),
            (b"{\"agent_id\":\"\xff\"}", R::PAYLOAD),
            (b"{\"agent_id\":\"\\ud800\"}", R::PAYLOAD),
            (b"{\"agent_id\":\"a\",\"input\":{\"n\":1e999}}", R::PAYLOAD),
            (b"", R::AGENT),
            (b" \n", R::AGENT),
            (b"{}", R::AGENT),
        ] {
            assert_eq!(ExecRequest::read(body), Err(expected), "{}", String::from_utf8_lossy(body));
        }
        for (body, expected) in [
            (json!({"agent_id": null, "input": 7}), R::AGENT),
            (json!({"agent_id": "  "}), R::AGENT),
            (json!({"agent_id": "@v1"}), R::AGENT),
            (json!({"agent_id": ["a"]}), R::AGENT),
            (json!({"agent_id": "a", "input": []}), R::INPUT),
            (json!({"agent_id": "a", "input": "x", "requested_by_user_id": "x"}), R::INPUT),
            (json!({"agent_id": "a", "input": {"prompt": "x\u{0}"}}), R::NUL),
            (
                json!({"agent_id": "a", "input": {"prompt": "p", "retrieval": {"top_k": 1}},
                    "requested_by_user_id": "x"}),
                R::RETRIEVAL,
            ),
            (json!({"agent_id": "a", "input": {"retrieval": {"index": "i", "query": "q"}}}), R::RETRIEVAL),
            (json!({"agent_id": "a", "requested_by_user_id": "x"}), R::FIELD),
            (json!({"agent_id": "a", "requested_by_user_id": [1]}), R::FIELD),
            (json!({"agent_id": "a", "requested_by_user_id": {}}), R::FIELD),
            (json!({"agent_id": "a", "requested_by_user_id": 1e300}), R::FIELD),
            (json!({"agent_id": "a", "org_id": "x\u{0}"}), R::FIELD),
        ] {
            assert_eq!(read(&body), Err(expected), "{body}");
        }
    }

    #[test]
    fn null_is_absent_and_unknown_fields_are_ignored() {
        let body = json!({
            "agent_id": "a", "input": {"prompt": null, "model": null, "messages": null, "retrieval": null, "x": 1},
            "requested_by_user_id": null, "requested_by_role": null, "runtime_profile": null, "platform_runtime": null,
            "org_id": null, "group_id": null, "agent_version": null, "unknown": {"deep": [1]},
        });
        let request = read(&body).unwrap();
        let plain = read(&json!({"agent_id": "a", "input": null})).unwrap();
        assert_eq!(ExecRequest { raw_input: json!({}), ..request.clone() }, plain);
        assert_eq!((request.model, request.input, request.requested_by_role.as_str()), (None, json!({}), "user"));
    }

    #[test]
    fn users_roles_and_profiles_parse_by_contract() {
        for (given, expected) in [
            (json!("5"), Some(5)),
            (json!(5.9), Some(5)),
            (json!(true), Some(1)),
            (json!(0), None),
            (json!(-3), None),
            (json!(""), None),
            (json!(false), None),
            (json!(123), Some(123)),
        ] {
            let request = read(&json!({"agent_id": "a", "requested_by_user_id": given})).unwrap();
            assert_eq!(request.requested_by_user_id, expected, "{given}");
        }
        let request = read(&json!({
            "agent_id": " a ", "requested_by_role": " SuperAdmin", "runtime_profile": "moon", "platform_runtime": [1],
        }))
        .unwrap();
        assert_eq!((request.agent_ref.as_str(), request.requested_by_role.as_str()), ("a", "superadmin"));
        assert_eq!((request.runtime_profile, request.platform_runtime.0), (None, Value::Null));
    }

    #[test]
    fn version_is_read_from_id_or_field() {
        let version = |body: Value| read(&body).unwrap().version;
        assert_eq!(version(json!({"agent_id": "a@v2"})).as_deref(), Some("v2"));
        assert_eq!(version(json!({"agent_id": "a@v2", "agent_version": "v3"})).as_deref(), Some("v3"));
        assert_eq!(version(json!({"agent_id": "a", "agent_version": 4})).as_deref(), Some("4"));
        for (text, number) in
            [("v3", Some(3)), ("3", Some(3)), ("v0", None), ("latest", None), ("", None), ("v-1", None)]
        {
            assert_eq!(version_number(text), number, "{text}");
        }
    }

    #[test]
    fn stored_input_is_the_normalized_one() {
        let stored = |input: Value| read(&json!({"agent_id": "a", "input": input})).unwrap().input;
        assert_eq!(stored(json!({"prompt": " hi ", "model": "m"})), json!({"prompt": "hi"}));
        let messages = json!([{"role": "user", "content": [{"type": "text", "text": "m"}]}]);
        let given = json!({"prompt": "p", "messages": [{"role": "user", "content": "m", "tool_calls": []}]});
        assert_eq!(stored(given), json!({ "messages": messages }));
    }
}
