//! Reads and checks a submit. A submit that fails a check stores nothing.

use std::{sync::Arc, time::Duration};

use axum::http::HeaderMap;
use chrono::{DateTime, Utc};
use longhaul_sdk::{numbers, spec::BudgetSpec};
use longhaul_shared::domain::{ExecutionId, MAX_DEADLINE};
use longhaul_store::{
    executions::ExecutionRecord,
    submit::{Idempotency, NewExecution, Submitted},
    submit_answer::{Beginning, Versions},
};
use serde::Serialize;
use serde_json::{Value, value::RawValue};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use crate::{
    auth::Principal,
    catalog::Target,
    error::{ApiError, ApiResult},
    extract::{Fields, Record, find_nul},
    schema,
    state::ApiState,
};

const DEFAULT_QUEUE: &str = "default";
const DEFAULT_PRIORITY: i16 = 5;
const MAX_PRIORITY: i16 = 9;
const MAX_METADATA_BYTES: usize = 16 * 1024;
const MAX_METADATA_KEYS: usize = 64;
const MAX_KEY_CHARS: usize = 255;
/// Maximum of `Prefer: wait`; a longer wait is cut to it.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Body of a submit. All violations are reported at once.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "describes the body in OpenAPI")]
pub(crate) struct SubmitBody {
    /// Definition to run; exactly one of `definition` and `agent`.
    #[schema(example = "invoice-extraction")]
    definition: Option<String>,
    /// Agent to run directly, on `{"prompt": …}` or `{"messages": […]}`.
    agent: Option<String>,
    /// Version of the definition or agent; the newest when absent.
    version: Option<i32>,
    /// Input, valid against the definition's input schema and kept byte for byte as sent; `{}` when absent, if nothing
    /// is required. Prompts and tools see it with the schema's defaults. A number may have 128 digits; none is rounded.
    #[schema(value_type = Option<Value>, example = json!({"text": "Invoice 17, total 12.50 EUR"}))]
    input: Option<Value>,
    /// Priority, 0 to 9, higher first; 5 when absent.
    priority: Option<i16>,
    /// Queue, `[a-z0-9._-]{1,64}`; `default` when absent.
    queue: Option<String>,
    /// Earliest start.
    run_at: Option<DateTime<Utc>>,
    /// Maximum lifetime in seconds, waits included; at most 30 days. The definition's when absent.
    deadline_seconds: Option<u32>,
    /// Metadata for filters: an object of at most 64 keys and 16 KiB.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Value>,
    /// Budget of the execution and everything it starts; the definition's or the agent's when absent.
    budget: Option<BudgetBody>,
}

/// A budget. Caps left out are not limited.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "describes the body in OpenAPI")]
pub(crate) struct BudgetBody {
    /// Money in US dollars, exact to nine decimal places; a number or a string.
    #[schema(example = 0.5)]
    max_cost_usd: Option<f64>,
    /// Tokens sent and received.
    max_tokens: Option<u32>,
    /// Model calls, failed ones included.
    #[schema(minimum = 1)]
    max_model_calls: Option<u32>,
    /// `park` (when absent): wait until the budget is raised; `fail`: FAILED `budget_exhausted`.
    on_exhausted: Option<String>,
}

/// A parsed submit. An idempotency key stands for the hash of its serialized form.
#[derive(Debug, Serialize)]
pub(crate) struct SubmitRequest {
    #[serde(serialize_with = "write_target")]
    target: Target,
    version: Option<i32>,
    #[serde(skip)]
    input_text: String,
    #[serde(skip)]
    input_is_absent: bool,
    #[serde(serialize_with = "numbers::serialize_canonical")]
    input: Value,
    priority: i16,
    queue: String,
    run_at: Option<DateTime<Utc>>,
    deadline_seconds: Option<u32>,
    #[serde(serialize_with = "numbers::serialize_canonical")]
    metadata: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<BudgetSpec>,
    #[serde(skip)]
    pub(crate) idempotency_key: Option<String>,
}

fn write_target<S: serde::Serializer>(target: &Target, serializer: S) -> Result<S::Ok, S::Error> {
    match target {
        Target::Definition(key) => ("definition", key).serialize(serializer),
        Target::Agent(key) => ("agent", key).serialize(serializer),
    }
}

/// Source of the idempotency key: the header, or the body for items of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyIn {
    Header,
    Body,
}

impl SubmitRequest {
    /// # Errors
    /// All violations in the shape of the request.
    pub(crate) fn read(mut fields: Fields<'_>, key_in: KeyIn) -> ApiResult<Self> {
        let target = read_target(&mut fields);
        let version = fields.take("version");
        let input = fields.raw("input");
        let input_is_absent = input.is_none();
        let input_text = input.map(RawValue::get).unwrap_or("{}").to_owned();
        // As raw text, lone surrogates, deep nesting and oversized numbers pass; parsing finds them.
        let input: Value = serde_json::from_str(&input_text).unwrap_or_else(|error| {
            fields.violation("/input", format!("cannot be stored: {error}"));
            Value::Null
        });
        fields.oversized_number(&input, "/input");
        let priority = fields.take("priority").unwrap_or(DEFAULT_PRIORITY);
        if !(0..=MAX_PRIORITY).contains(&priority) {
            fields.violation("/priority", "must be between 0 and 9");
        }
        let queue = fields.take("queue").unwrap_or_else(|| DEFAULT_QUEUE.to_owned());
        if !is_queue_name(&queue) {
            fields.violation("/queue", "must be 1 to 64 characters of a-z, 0-9, '.', '_' and '-'");
        }
        let run_at = fields.take("run_at");
        let deadline_seconds = fields.take::<u32>("deadline_seconds");
        if deadline_seconds.is_some_and(|s| s == 0 || u64::from(s) > MAX_DEADLINE.as_secs()) {
            fields.violation("/deadline_seconds", "must be between 1 and 2592000");
        }
        let metadata = read_metadata(&mut fields);
        let budget = read_budget(&mut fields);
        let idempotency_key = match key_in {
            KeyIn::Body => fields.take::<String>("idempotency_key"),
            KeyIn::Header => None,
        };
        if let Some(why) = idempotency_key.as_deref().and_then(key_is_wrong) {
            fields.violation("/idempotency_key", why);
        }
        fields.finish()?;
        let Some(target) = target else { return Err(ApiError::Internal) };
        for (value, path) in [(&input, "/input"), (&metadata, "/metadata")] {
            if let Some(path) = find_nul(value, path) {
                return Err(ApiError::InputContainsNul { path });
            }
        }
        Ok(Self {
            target,
            version,
            input_text,
            input_is_absent,
            input,
            priority,
            queue,
            run_at,
            deadline_seconds,
            metadata,
            budget,
            idempotency_key,
        })
    }

    fn hash(&self) -> Vec<u8> {
        Sha256::digest(serde_json::to_vec(self).unwrap_or_default()).to_vec()
    }

    /// Checks the request against its definition and agent, and stores it.
    ///
    /// # Errors
    /// The definition or agent does not exist, the input is invalid, the key was used for another request, or
    /// Postgres is unavailable.
    pub(crate) async fn submit(
        self,
        state: &ApiState,
        principal: &Principal,
        traceparent: Option<String>,
    ) -> ApiResult<Stored> {
        let hash = self.hash();
        let key = self.idempotency_key.clone();
        match self.plan(state, principal, traceparent, &hash).await {
            Ok((execution, versions)) => {
                let execution = Arc::new(execution);
                let (submitted, beginning) = state.submitter.submit_and_tell(execution.clone()).await?;
                let stored = Stored::from(submitted)?;
                if stored.is_new && execution.run_at.is_none() {
                    (state.hooks.wake)(&execution.queue, stored.id);
                    // Let the wake-up leave first: a worker waits for it, while the answer has yet to be written.
                    tokio::task::yield_now().await;
                }
                Ok(Stored { begun: beginning.map(|beginning| Begun { execution, beginning, versions }), ..stored })
            }
            Err(error) => {
                // An accepted request stays accepted under its key, even if the definition has changed since.
                if let Some(key) = key
                    && let Some((id, stored)) = state.store.find_idempotency_key(principal.tenant(), &key).await?
                {
                    return if stored == hash {
                        Ok(Stored { id, is_new: false, begun: None })
                    } else {
                        Err(ApiError::IdempotencyKeyReused(id))
                    };
                }
                Err(error)
            }
        }
    }

    async fn plan(
        self,
        state: &ApiState,
        principal: &Principal,
        traceparent: Option<String>,
        hash: &[u8],
    ) -> ApiResult<(NewExecution, Versions)> {
        let runnable = state.catalog.resolve(principal.tenant(), &self.target, self.version).await?;
        let agent = (runnable.agent_version_id, runnable.agent_key.as_str());
        state.catalog.permit(agent, principal, &state.options.contract.org_id).await?;
        let violations = schema::violations(&runnable.input, &self.input, "/input").await?;
        if !violations.is_empty() {
            return Err(if self.input_is_absent {
                ApiError::invalid("/input", "is required")
            } else {
                ApiError::InvalidInput(violations)
            });
        }
        let deadline = self.deadline_seconds.map_or(runnable.deadline, |s| Duration::from_secs(s.into()));
        if let Some(run_at) = self.run_at
            && (run_at - state.store.now().await?).to_std().is_ok_and(|wait| wait >= deadline)
        {
            return Err(ApiError::invalid("/run_at", "is not before the deadline"));
        }
        let budget = self.budget.or_else(|| runnable.budget.clone());
        if let Some(model) = runnable.unpriced(budget.as_ref(), &state.prices) {
            return Err(ApiError::PriceUnknown { model });
        }
        let versions = Versions { definition: runnable.definition_version, agent: runnable.agent_version };
        let execution = NewExecution {
            id: state.store.new_execution_id().await?,
            tenant_id: principal.tenant(),
            definition_key: runnable.definition_key.clone(),
            definition_version_id: runnable.definition_version_id,
            agent_key: runnable.agent_key.clone(),
            agent_version_id: runnable.agent_version_id,
            queue: self.queue,
            serve_key: runnable.serve_key.clone(),
            priority: self.priority,
            metadata: self.metadata,
            input: self.input_text,
            run_at: self.run_at,
            deadline,
            deadline_is_near: deadline < MAX_DEADLINE,
            active_timeout: runnable.active_timeout,
            retry_of: None,
            submitted_by: Some(principal.key_id()),
            traceparent,
            idempotency: self.idempotency_key.map(|key| Idempotency { key, request_hash: hash.to_vec() }),
            budget,
            overrides: None,
        };
        Ok((execution, versions))
    }
}

fn read_target(fields: &mut Fields<'_>) -> Option<Target> {
    let (definition, agent) = (fields.take::<String>("definition"), fields.take::<String>("agent"));
    let target = match (definition, agent) {
        (Some(key), None) => Target::Definition(key),
        (None, Some(key)) => Target::Agent(key),
        (None, None) | (Some(_), Some(_)) => {
            fields.violation("/definition", "exactly one of `definition` and `agent` is required");
            return None;
        }
    };
    let (Target::Definition(key) | Target::Agent(key)) = &target;
    if key.contains('\0') {
        fields.violation("/definition", "contains the character U+0000");
    }
    Some(target)
}

fn read_metadata(fields: &mut Fields<'_>) -> Value {
    let metadata = fields.take("metadata").unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    match &metadata {
        Value::Object(entries) if entries.len() > MAX_METADATA_KEYS => {
            fields.violation("/metadata", format!("has more than {MAX_METADATA_KEYS} keys"));
        }
        Value::Object(_) if metadata.to_string().len() > MAX_METADATA_BYTES => {
            fields.violation("/metadata", format!("is larger than {MAX_METADATA_BYTES} bytes"));
        }
        Value::Object(_) => fields.oversized_number(&metadata, "/metadata"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            fields.violation("/metadata", "must be an object");
        }
    }
    metadata
}

/// Reads a budget; a budget without caps is a violation.
pub(crate) fn read_budget(fields: &mut Fields<'_>) -> Option<BudgetSpec> {
    let Record(budget): Record<BudgetSpec> = fields.take("budget")?;
    if budget.max_cost_usd.is_none() && budget.max_tokens.is_none() && budget.max_model_calls.is_none() {
        fields.violation("/budget", "needs one of max_cost_usd, max_tokens and max_model_calls");
    }
    if budget.max_model_calls == Some(0) {
        fields.violation("/budget/max_model_calls", "must be at least 1");
    }
    Some(budget)
}

fn is_queue_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(fits)
}

fn key_is_wrong(key: &str) -> Option<&'static str> {
    match key.chars().count() {
        0 => Some("is empty"),
        count if count > MAX_KEY_CHARS => Some("is longer than 255 characters"),
        _ if key.contains('\0') => Some("contains the character U+0000"),
        _ => None,
    }
}

/// Reads the `Idempotency-Key` header.
///
/// # Errors
/// The key is empty, too long, or not printable ASCII.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> ApiResult<Option<String>> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let wrong = |why: &str| ApiError::invalid("/header/Idempotency-Key", why);
    let key = value.to_str().map_err(|_| wrong("is not printable ASCII"))?;
    match key_is_wrong(key) {
        Some(why) => Err(wrong(why)),
        None => Ok(Some(key.to_owned())),
    }
}

/// The caller's preferences (RFC 7240).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Preference {
    /// `wait=N`: hold the answer until the execution is over, at most this long.
    pub(crate) wait: Option<Duration>,
    /// `return=minimal`: answer with the id alone.
    pub(crate) is_minimal: bool,
}

impl Preference {
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        let mut preference = Self::default();
        let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
        for part in values.flat_map(|value| value.split([',', ';'])) {
            match part.trim().split_once('=') {
                Some(("wait", seconds)) => {
                    preference.wait = seconds.parse().ok().map(|s| Duration::from_secs(s).min(MAX_WAIT));
                }
                Some(("return", "minimal")) => preference.is_minimal = true,
                // Unknown preferences are ignored, as RFC 7240 requires.
                Some(_) | None => {}
            }
        }
        preference
    }

    pub(crate) fn applied(self) -> Option<String> {
        let wait = self.wait.map(|wait| format!("wait={}", wait.as_secs()));
        let minimal = self.is_minimal.then(|| "return=minimal".to_owned());
        let all: Vec<String> = wait.into_iter().chain(minimal).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) id: ExecutionId,
    /// False if the same request was accepted before.
    pub(crate) is_new: bool,
    /// Data of the new record, if it need not be read.
    pub(crate) begun: Option<Begun>,
}

#[derive(Debug)]
pub(crate) struct Begun {
    execution: Arc<NewExecution>,
    beginning: Beginning,
    versions: Versions,
}

impl Begun {
    /// The record as a read would return it; `None` if it must be read.
    pub(crate) fn record(self, principal: &Principal) -> Option<ExecutionRecord> {
        ExecutionRecord::begun(&self.execution, self.beginning, self.versions, principal.key()).ok()
    }
}

impl Stored {
    /// # Errors
    /// The key was used for another request.
    pub(crate) fn from(submitted: Submitted) -> ApiResult<Self> {
        match submitted {
            Submitted::Created(id) => Ok(Self { id, is_new: true, begun: None }),
            Submitted::Existing(id) => Ok(Self { id, is_new: false, begun: None }),
            Submitted::KeyReused(id) => Err(ApiError::IdempotencyKeyReused(id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> ApiResult<SubmitRequest> {
        SubmitRequest::read(Fields::parse(body.as_bytes())?, KeyIn::Header)
    }

    #[test]
    fn request_defaults_apply_and_input_bytes_stay() {
        let request = read(r#"{"definition":"d","input":{"a": 1e2,"a":-0.0}}"#).unwrap();
        assert_eq!(request.input_text, r#"{"a": 1e2,"a":-0.0}"#);
        assert_eq!((request.priority, request.queue.as_str()), (5, "default"));
    }

    #[test]
    fn every_violation_is_reported_at_once() {
        let body = r#"{"definition":"d","agent":"a","priority":10,"queue":"No","metadata":[],"deadline_seconds":0,
            "x":1,"input":1e999}"#;
        let Err(ApiError::InvalidRequest(violations)) = read(body) else { panic!() };
        let paths: Vec<_> = violations.iter().map(|violation| violation.path.as_str()).collect();
        assert_eq!(paths, ["/definition", "/input", "/priority", "/queue", "/deadline_seconds", "/metadata", "/x"]);
    }

    #[test]
    fn input_unstorable_in_postgres_is_refused() {
        assert!(matches!(read(r#"{"agent":"a","input":{"t":"x\u0000"}}"#), Err(ApiError::InputContainsNul { .. })));
        assert!(matches!(read(r#"{"agent":"a","input":"\ud800"}"#), Err(ApiError::InvalidRequest(_))));
        assert!(matches!(read(r#"{"agent":"a","input":1e999999}"#), Err(ApiError::InvalidRequest(_))));
    }

    #[test]
    fn preferences_are_read_and_capped() {
        let mut headers = HeaderMap::new();
        headers.insert("prefer", "respond-async, wait=600; return=minimal".parse().unwrap());
        let preference = Preference::read(&headers);
        assert_eq!(preference, Preference { wait: Some(MAX_WAIT), is_minimal: true });
        assert_eq!(preference.applied().as_deref(), Some("wait=60, return=minimal"));
        assert_eq!(Preference::read(&HeaderMap::new()).applied(), None);
    }
}
