//! Reads and checks a submit. A submit that fails a check stores nothing.

use std::{sync::Arc, time::Duration};

use axum::http::HeaderMap;
use chrono::{DateTime, Utc};
use longhaul_domain::{
    ExecutionId, FileId, MAX_DEADLINE, QUEUE_PATTERN,
    requirements::LOAD_SKILL,
    submit_limits::{MAX_METADATA_BYTES, MAX_METADATA_FIELDS, MAX_PRIORITY, default_priority, default_queue},
};
use longhaul_sdk::{
    numbers,
    spec::{AgentOverrides, AgentSpec, BudgetSpec, CallerToolSpec, ToolRef},
};
use longhaul_store::executions::{
    planned::Pinned,
    read::ExecutionRecord,
    submit::{Beginning, Idempotency, NewExecution, Submitted},
    submit_answer::Versions,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json, value::RawValue};
use sha2::{Digest, Sha256};

use super::ExecutionError;
use crate::{
    auth::Principal,
    body::{NO_NUL, Read, read},
    catalog::{Target, check_web_search},
    error::{ApiError, ApiResult, Violation},
    extract::find_nul,
    idempotency_error::IdempotencyError,
    records::MAX_TOOLS,
    routes::files::attach::{gone, named_files},
    schema,
    state::ApiState,
};

const MAX_KEY_CHARS: usize = 255;
const MAX_CALLER_TOOLS: usize = 64;
/// Maximum of `Prefer: wait`; a longer wait is cut to it.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Body of a submit.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubmitBody {
    /// Definition to run; exactly one of `definition` and `agent`.
    #[schemars(regex(pattern = NO_NUL), example = "invoice-extraction")]
    definition: Option<String>,
    /// Agent to run directly, on `{"prompt": …}` or `{"messages": […]}`.
    #[schemars(regex(pattern = NO_NUL))]
    agent: Option<String>,
    /// Version of the definition or agent; the newest when absent.
    version: Option<i32>,
    /// Input, valid against the definition's input schema and kept byte for byte as sent; `{}` when absent, if nothing
    /// is required. Prompts and tools see it with the schema's defaults. A number may have 128 digits; none is rounded.
    #[schemars(with = "Option<Value>", example = json!({"text": "Invoice 17, total 12.50 EUR"}))]
    input: Option<Box<RawValue>>,
    /// Priority; higher first.
    #[serde(default = "default_priority")]
    #[schemars(range(min = 0, max = MAX_PRIORITY))]
    priority: i16,
    /// Queue.
    #[serde(default = "default_queue")]
    #[schemars(regex(pattern = QUEUE_PATTERN))]
    queue: String,
    /// Earliest start.
    run_at: Option<DateTime<Utc>>,
    /// Maximum lifetime in seconds, waits included; at most 30 days. The definition's when absent.
    #[schemars(range(min = 1, max = MAX_DEADLINE.as_secs()))]
    deadline_seconds: Option<u32>,
    /// Metadata for filters, at most 16 KiB.
    #[serde(default)]
    #[schemars(extend("maxProperties" = MAX_METADATA_FIELDS))]
    metadata: Map<String, Value>,
    /// Budget of the execution and everything it starts; the definition's or the agent's when absent.
    budget: Option<BudgetSpec>,
    /// Further tools, whose calls the caller runs; see docs/guide/caller-tools.md.
    #[serde(default)]
    #[schemars(length(max = MAX_CALLER_TOOLS))]
    tools: Vec<CallerToolSpec>,
    /// Idempotency key of an item of a batch; a submit of its own has it in the header `Idempotency-Key`.
    #[schemars(length(min = 1, max = MAX_KEY_CHARS), regex(pattern = NO_NUL))]
    idempotency_key: Option<String>,
}

/// A parsed submit.
#[derive(Debug)]
pub(crate) struct SubmitRequest {
    target: Target,
    input: Value,
    body: SubmitBody,
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
    pub(crate) fn read(text: &[u8], key_in: KeyIn) -> ApiResult<Self> {
        let Read { body, mut values } = read(text, |body| violations(body, key_in))?;
        for name in ["input", "metadata", "tools"] {
            if let Some(path) = values.get(name).and_then(|value| find_nul(value, &format!("/{name}"))) {
                return Err(ApiError::InputContainsNul { path });
            }
        }
        let Some(target) = target(&body) else { return Err(ApiError::Internal) };
        Ok(Self { target, input: values.remove("input").unwrap_or_else(|| json!({})), body })
    }

    /// The hash that an idempotency key stands for. Releases must agree on it: callers repeat requests over an upgrade.
    fn hash(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Hashed<'a> {
            target: (&'a str, &'a str),
            version: Option<i32>,
            #[serde(serialize_with = "numbers::serialize_canonical")]
            input: &'a Value,
            priority: i16,
            queue: &'a str,
            run_at: Option<DateTime<Utc>>,
            deadline_seconds: Option<u32>,
            #[serde(serialize_with = "numbers::serialize_canonical")]
            metadata: Value,
            #[serde(skip_serializing_if = "Option::is_none")]
            budget: Option<&'a BudgetSpec>,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            tools: &'a [CallerToolSpec],
        }
        let body = &self.body;
        let hashed = Hashed {
            target: match &self.target {
                Target::Definition(key) => ("definition", key),
                Target::Agent(key) => ("agent", key),
                Target::Planner(key) => ("planner", key),
            },
            version: body.version,
            input: &self.input,
            priority: body.priority,
            queue: &body.queue,
            run_at: body.run_at,
            deadline_seconds: body.deadline_seconds,
            metadata: Value::Object(body.metadata.clone()),
            budget: body.budget.as_ref(),
            tools: &body.tools,
        };
        Sha256::digest(serde_json::to_vec(&hashed).unwrap_or_default()).to_vec()
    }

    /// Sets the key from the header.
    pub(crate) fn with_key(mut self, key: Option<String>) -> Self {
        self.body.idempotency_key = key;
        self
    }

    /// Sets the key of an item that has none.
    pub(crate) fn with_default_key(mut self, key: Option<String>) -> Self {
        self.body.idempotency_key = self.body.idempotency_key.or(key);
        self
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
        let key = self.body.idempotency_key.clone();
        match self.plan(state, principal, traceparent, &hash).await {
            Ok(Plan { execution, versions, files }) => {
                let execution = Arc::new(execution);
                let (submitted, beginning) = match files.as_slice() {
                    [] => state.submitter.submit_and_tell(execution.clone()).await?,
                    files => {
                        let stored = state.store.submit_with_files(&execution, files).await?;
                        stored.ok_or_else(|| gone("/input/messages"))?
                    }
                };
                let stored = Stored::from(submitted)?;
                if stored.is_new && execution.run_at.is_none() {
                    state.publisher.wake(&execution.queue, stored.id);
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
                        Err(IdempotencyError::IdempotencyKeyReused(Some(id)).into())
                    };
                }
                Err(error)
            }
        }
    }

    /// The execution that the request asks for, for a parent that starts it.
    ///
    /// # Errors
    /// As those of [`submit`](Self::submit).
    pub(crate) async fn planned(self, state: &ApiState, principal: &Principal) -> ApiResult<NewExecution> {
        let Plan { execution, files, .. } = self.plan(state, principal, None, &[]).await?;
        // A child spends the budget of its root, and has the files of its parent.
        if files.is_empty() { Ok(NewExecution { budget: None, ..execution }) } else { Err(gone("/input/messages")) }
    }

    async fn plan(
        self,
        state: &ApiState,
        principal: &Principal,
        traceparent: Option<String>,
        hash: &[u8],
    ) -> ApiResult<Plan> {
        let runnable = state.catalog.resolve(principal.tenant(), &self.target, self.body.version).await?;
        let agent = (runnable.pinned.agent_version_id, runnable.pinned.agent_key.as_str());
        state.catalog.permit(agent, principal, &state.options.contract.org_id).await?;
        check_web_search(&runnable.agent, state.options.web_search)?;
        let violations = schema::violations(&runnable.input, &self.input, "/input").await?;
        if !violations.is_empty() {
            return Err(if self.body.input.is_none() {
                ApiError::invalid("/input", "is required")
            } else {
                ExecutionError::InvalidInput(violations).into()
            });
        }
        let files = match &self.target {
            Target::Agent(_) => named_files(state, principal.tenant(), &self.input, |at| format!("/input{at}")).await?,
            Target::Definition(_) | Target::Planner(_) => Vec::new(),
        };
        let deadline = self.body.deadline_seconds.map_or(runnable.pinned.deadline, |s| Duration::from_secs(s.into()));
        if let Some(run_at) = self.body.run_at
            && (run_at - state.store.now().await?).to_std().is_ok_and(|wait| wait >= deadline)
        {
            return Err(ApiError::invalid("/run_at", "is not before the deadline"));
        }
        let budget = self.body.budget.or_else(|| runnable.pinned.budget.clone());
        if let Some(model) = runnable.unpriced(budget.as_ref(), &state.prices) {
            return Err(ExecutionError::PriceUnknown { model }.into());
        }
        let overrides = overrides(self.body.tools, &runnable.agent)?;
        let versions = Versions { definition: runnable.definition_version, agent: runnable.agent_version };
        let pinned = Pinned { deadline, budget, ..runnable.pinned.clone() };
        let id = state.store.new_execution_id().await?;
        let input = self.body.input.map_or_else(|| "{}".to_owned(), |input| input.get().to_owned());
        let execution = NewExecution {
            queue: self.body.queue,
            priority: self.body.priority,
            metadata: Value::Object(self.body.metadata),
            run_at: self.body.run_at,
            submitted_by: Some(principal.key_id()),
            traceparent,
            idempotency: self.body.idempotency_key.map(|key| Idempotency { key, request_hash: hash.to_vec() }),
            overrides,
            ..NewExecution::of(id, principal.tenant(), pinned, input)
        };
        Ok(Plan { execution, versions, files })
    }
}

/// The stored form of the caller's tools.
///
/// # Errors
/// A name is that of a tool of the agent, or there are too many tools.
fn overrides(tools: Vec<CallerToolSpec>, agent: &AgentSpec) -> ApiResult<Option<String>> {
    if tools.is_empty() {
        return Ok(None);
    }
    if tools.len() + agent.tools.len() + agent.latent_tools.len() > MAX_TOOLS {
        return Err(ApiError::invalid("/tools", format!("there may be {MAX_TOOLS} tools, the agent's included")));
    }
    let names = agent.tools.iter().map(ToolRef::name).chain(agent.latent_tools.iter().map(|tool| tool.name.as_str()));
    let names = names.chain((!agent.skills.is_empty()).then_some(LOAD_SKILL));
    let problems = CallerToolSpec::problems(&tools, names);
    if !problems.is_empty() {
        return Err(ApiError::InvalidRequest(tool_violations(problems)));
    }
    let overrides = AgentOverrides { caller_tools: tools, ..AgentOverrides::default() };
    serde_json::to_string(&overrides).map(Some).map_err(|_| ApiError::Internal)
}

fn tool_violations(problems: Vec<(usize, &'static str, &'static str)>) -> Vec<Violation> {
    let wrong = |(index, field, reason)| Violation::new(format!("/tools/{index}/{field}"), reason);
    problems.into_iter().map(wrong).collect()
}

/// A checked submit.
struct Plan {
    execution: NewExecution,
    versions: Versions,
    /// Uploads that its input names.
    files: Vec<FileId>,
}

fn target(body: &SubmitBody) -> Option<Target> {
    match (&body.definition, &body.agent) {
        (Some(key), None) => Some(Target::Definition(key.clone())),
        (None, Some(key)) => Some(Target::Agent(key.clone())),
        (None, None) | (Some(_), Some(_)) => None,
    }
}

/// Violations of the rules that the schema cannot express.
fn violations(body: &SubmitBody, key_in: KeyIn) -> Vec<Violation> {
    let mut violations = Vec::new();
    if target(body).is_none() {
        violations.push(Violation::new("/definition", "exactly one of `definition` and `agent` is required"));
    }
    violations.extend(metadata_violation(&body.metadata));
    if key_in == KeyIn::Header && body.idempotency_key.is_some() {
        violations.push(Violation::new("/idempotency_key", "unknown field: send the header `Idempotency-Key`"));
    }
    violations.extend(budget_violation(body.budget.as_ref()));
    violations.extend(tool_violations(CallerToolSpec::problems(&body.tools, [])));
    for (index, tool) in body.tools.iter().enumerate() {
        for (field, schema) in tool.schemas() {
            if let Err(error) = schema::compile(schema) {
                violations.push(Violation::new(format!("/tools/{index}/{field}"), error));
            }
        }
    }
    violations
}

/// Violation of metadata that are too large.
pub(crate) fn metadata_violation(metadata: &Map<String, Value>) -> Option<Violation> {
    let is_large = serde_json::to_vec(metadata).is_ok_and(|text| text.len() > MAX_METADATA_BYTES);
    is_large.then(|| Violation::new("/metadata", format!("is larger than {MAX_METADATA_BYTES} bytes")))
}

/// The violation of a budget without caps.
pub(crate) fn budget_violation(budget: Option<&BudgetSpec>) -> Option<Violation> {
    let is_open = |budget: &BudgetSpec| {
        budget.max_cost_usd.is_none() && budget.max_tokens.is_none() && budget.max_model_calls.is_none()
    };
    let message = "needs one of max_cost_usd, max_tokens and max_model_calls";
    budget.is_some_and(is_open).then(|| Violation::new("/budget", message))
}

/// Reads the `Idempotency-Key` header.
///
/// # Errors
/// The key is empty, too long, or not printable ASCII.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> ApiResult<Option<String>> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let wrong = |why: &str| ApiError::invalid("/header/Idempotency-Key", why);
    let key = value.to_str().map_err(|_| wrong("is not printable ASCII"))?;
    match key.len() {
        0 => Err(wrong("is empty")),
        1..=MAX_KEY_CHARS => Ok(Some(key.to_owned())),
        _ => Err(wrong("is longer than 255 characters")),
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
            Submitted::KeyReused(id) => Err(IdempotencyError::IdempotencyKeyReused(Some(id)).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> ApiResult<SubmitRequest> {
        SubmitRequest::read(body.as_bytes(), KeyIn::Header)
    }

    #[test]
    fn request_defaults_apply_and_input_bytes_stay() {
        let request = read(r#"{"definition":"d","input":{"a": 1e2,"a":-0.0}}"#).unwrap();
        assert_eq!(request.body.input.unwrap().get(), r#"{"a": 1e2,"a":-0.0}"#);
        assert_eq!((request.body.priority, request.body.queue.as_str()), (5, "default"));
    }

    #[test]
    fn every_violation_is_reported_at_once() {
        let body = r#"{"definition":"d","agent":"a","priority":10,"queue":"No","metadata":[],"deadline_seconds":0,
            "x":1,"input":1e999}"#;
        let Err(ApiError::InvalidRequest(violations)) = read(body) else { panic!() };
        let paths: Vec<_> = violations.iter().map(|violation| violation.path.as_str()).collect();
        assert_eq!(paths, ["/deadline_seconds", "/definition", "/input", "/metadata", "/priority", "/queue", "/x"]);
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
