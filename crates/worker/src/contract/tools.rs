//! Tools of the catalogue, called through the platform's gateway and sandbox.
//!
//! A call is one request, sent once: on its own connection, without redirects or retries. A service's answer to
//! the call goes to the model; an answer that shows the service itself failing ends the run.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use longhaul_contract::{Binding, ContractRun, ContractTool as CatalogueTool, ToolCall as ToolItem, Transport};
use longhaul_domain::{
    CallErrorKind,
    ascii_json::sorted_ascii,
    cut,
    noted::{CallList, Noted},
};
use longhaul_llm::{Answer, Scrub};
use longhaul_sdk::{ToolEffect, ToolSpec};
use longhaul_tools::{CallOutcome, ServiceTool};
use reqwest::{
    Client, Response,
    header::{ACCEPT, HeaderValue},
};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use super::failure::{CallFailure, of_service};

/// Largest answer read of a service, in bytes.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;
/// Default time limit of a sandbox job, in seconds.
const JOB_SECONDS: f64 = 5.0;
/// Time that a sandbox needs in addition to its job, to start it and to answer.
const JOB_OVERHEAD: Duration = Duration::from_secs(2);
/// Longest job that is awaited, in seconds.
const MAX_JOB_SECONDS: f64 = 600.0;
const INVOKE: &str = "/v1/tools/invoke";
const EXECUTE: &str = "/v1/execute";
/// Names the tenant whose share of the sandbox a job takes.
const TENANT: &str = "longhaul-tenant";

/// A tool of a run, bound to its service.
#[derive(Debug, Clone)]
pub(crate) struct ContractTool {
    of: CatalogueTool,
    binding: Binding,
    deployment: Option<String>,
    /// Tenant of the run, for the sandbox.
    tenant: Option<HeaderValue>,
    http: Client,
    /// Largest result, in bytes.
    max_bytes: usize,
}

/// A service's answer to a call.
struct Answered {
    status: u16,
    /// The result, or the error.
    came_to: Result<Value, Value>,
}

impl ContractTool {
    pub(super) fn new(of: CatalogueTool, binding: Binding, run: &ContractRun, http: Client, max_bytes: usize) -> Self {
        let deployment = run.platform_runtime.deployment_slug().map(str::to_owned);
        let tenant = [&run.org_id, &run.group_id].map(|part| part.as_deref().unwrap_or_default()).join("/");
        Self { of, binding, deployment, tenant: HeaderValue::from_str(&tenant).ok(), http, max_bytes }
    }

    fn effect(&self) -> ToolEffect {
        self.of.effect
    }

    /// The record's item of a call with the outcome `came_to`.
    pub(super) fn noted(&self, status: u16, arguments: Value, came_to: &Result<Value, Value>) -> Noted {
        let transport = self.of.transport;
        let item = ToolItem {
            tool_ref: self.of.tool_ref.clone(),
            tool_name: self.of.tool_name.clone(),
            transport: transport.as_str().to_owned(),
            runtime_capability: transport.capability().as_str().to_owned(),
            provider_slug: self.binding.slug.clone(),
            provider_key: self.binding.provider_key.clone(),
            deployment_profile_slug: self.deployment.clone(),
            status_code: status,
            arguments,
            result: came_to.as_ref().ok().map(written),
            error: came_to.as_ref().err().cloned(),
        };
        Noted::new(CallList::ToolCalls, &item)
    }

    async fn invoke(&self, arguments: &Value, idempotency_key: &str) -> Result<Answered, CallFailure> {
        #[derive(Serialize)]
        struct Invocation<'a> {
            tool_name: &'a str,
            arguments: &'a Value,
            request_metadata: Metadata<'a>,
        }
        #[derive(Serialize)]
        struct Metadata<'a> {
            tool_ref: &'a str,
        }
        let request_metadata = Metadata { tool_ref: &self.of.tool_ref };
        let body = Invocation { tool_name: &self.of.tool_name, arguments, request_metadata };
        let limit = self.binding.request_timeout();
        let (status, body) = self.post("invoke_path", INVOKE, &body, idempotency_key, limit).await?;
        if !(200..300).contains(&status) {
            return Err(answered(status, &body));
        }
        let came_to = match read_object(&body) {
            Some(mut answer) => match answer.remove("error").filter(|error| !error.is_null()) {
                Some(error) => Err(self.capped(error)),
                None => Ok(self.capped(answer.remove("result").unwrap_or_default())),
            },
            None => Err(unusable()),
        };
        Ok(Answered { status, came_to })
    }

    async fn execute(&self, arguments: &Value, idempotency_key: &str) -> Result<Answered, CallFailure> {
        #[derive(Serialize)]
        struct Job<'a> {
            language: &'a str,
            code: &'a Value,
            input: &'a Value,
            timeout_seconds: &'a Value,
            policy: &'a Value,
        }
        let argument = |name: &str| arguments.get(name).filter(|value| !value.is_null());
        let policy = &self.of.safety_policy;
        let allowed = json!(JOB_SECONDS as u32);
        let timeout_seconds = argument("timeout_seconds").or_else(|| policy.get("timeout_seconds")).unwrap_or(&allowed);
        let (null, none) = (Value::Null, Value::from(""));
        let body = Job {
            language: "python",
            code: argument("code").unwrap_or(&none),
            input: argument("input").unwrap_or(&null),
            timeout_seconds,
            policy,
        };
        let limit = self.job_limit(timeout_seconds);
        let (status, body) = self.post("execute_path", EXECUTE, &body, idempotency_key, limit).await?;
        // An error about the code goes to the model; an error of the sandbox itself ends the run.
        if !(200..300).contains(&status) && !(400..=501).contains(&status) {
            return Err(answered(status, &body));
        }
        let came_to = match read_object(&body) {
            Some(answer) if answer.contains_key("stdout") => Ok(self.job_result(answer)),
            Some(mut answer) => {
                let code = answer.remove("error").unwrap_or_default();
                let message = answer.remove("message").unwrap_or_default();
                Err(self.capped(json!({ "code": code, "message": message })))
            }
            None => Err(unusable()),
        };
        Ok(Answered { status, came_to })
    }

    /// Longest wait for a job: the binding's timeout if configured, otherwise long enough for the job's own limit.
    fn job_limit(&self, timeout_seconds: &Value) -> Duration {
        let limit = self.binding.request_timeout();
        if self.binding.config.contains_key("request_timeout_seconds") {
            return limit;
        }
        let seconds = timeout_seconds.as_f64().unwrap_or(JOB_SECONDS).clamp(0.0, MAX_JOB_SECONDS);
        limit.max(Duration::from_secs_f64(seconds) + JOB_OVERHEAD)
    }

    /// The four members of a job's result, together within the limit.
    fn job_result(&self, mut answer: serde_json::Map<String, Value>) -> Value {
        // Reserve room for the members' names.
        let share = self.max_bytes.saturating_sub(128) / 4;
        let mut text = |name: &str| match answer.remove(name) {
            Some(Value::String(text)) => Value::String(fitted(&text, share)),
            Some(other) => fit(other, share),
            None => Value::String(String::new()),
        };
        let (stdout, stderr) = (text("stdout"), text("stderr"));
        let mut value = |name: &str| fit(answer.remove(name).unwrap_or_default(), share);
        let (result, error) = (value("result"), value("error"));
        json!({ "stdout": stdout, "stderr": stderr, "result": result, "error": error })
    }

    fn capped(&self, value: Value) -> Value {
        fit(value, self.max_bytes)
    }

    async fn post(
        &self,
        setting: &str,
        default: &str,
        body: &impl Serialize,
        idempotency_key: &str,
        limit: Duration,
    ) -> Result<(u16, Vec<u8>), CallFailure> {
        let url = self.binding.url(setting, default).ok_or(CallFailure::NoAddress)?;
        let mut request = self.http.post(url).header(ACCEPT, "application/json").json(body);
        if let Ok(key) = HeaderValue::from_str(idempotency_key) {
            request = request.header("idempotency-key", key);
        }
        if let (Transport::SandboxHttp, Some(tenant)) = (self.of.transport, &self.tenant) {
            request = request.header(TENANT, tenant);
        }
        let exchange = async {
            let mut response = request.send().await.map_err(|error| unreached(&error))?;
            Ok((response.status().as_u16(), read(&mut response).await?))
        };
        tokio::time::timeout(limit, exchange).await.map_err(|_elapsed| CallFailure::TimedOut)?
    }
}

#[async_trait]
impl ServiceTool for ContractTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.of.tool_name.clone(),
            description: self.of.description.clone(),
            parameters: self.of.input_schema.clone(),
            effect: self.of.effect,
            latent_output: None,
            is_strict: false,
            mended: None,
        }
    }

    fn timeout(&self) -> Duration {
        self.binding.request_timeout().max(Duration::from_secs_f64(MAX_JOB_SECONDS)) + 2 * JOB_OVERHEAD
    }

    async fn run(&self, arguments: Value, idempotency_key: &str) -> CallOutcome {
        let started = Instant::now();
        let called = match self.of.transport {
            Transport::Mcp => self.invoke(&arguments, idempotency_key).await,
            Transport::SandboxHttp => self.execute(&arguments, idempotency_key).await,
        };
        let (status, came_to, ends_run) = match called {
            Ok(Answered { status, came_to }) => (status, came_to, None),
            Err(failed) => {
                let (failure, status) = of_service(&self.binding, &failed);
                let error = json!({ "code": failure.code.as_str(), "message": failure.summary });
                (status, Err(error), Some(failure))
            }
        };
        let noted = self.noted(status, arguments, &came_to);
        let text = match &came_to {
            Ok(value) | Err(value) => sorted_ascii(value),
        };
        CallOutcome {
            text,
            whole: None,
            destination: None,
            files: Vec::new(),
            kept: Vec::new(),
            error: came_to.err().map(|_| CallErrorKind::Runtime),
            is_unsent: false,
            ends_run,
            duration: started.elapsed(),
            effect: self.effect(),
            noted: Some(Box::new(noted)),
        }
    }
}

async fn read(response: &mut Response) -> Result<Vec<u8>, CallFailure> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| unreached(&error))? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err(CallFailure::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn unreached(error: &reqwest::Error) -> CallFailure {
    if error.is_builder() {
        CallFailure::NoAddress
    } else if error.is_timeout() {
        CallFailure::TimedOut
    } else {
        CallFailure::Unreachable
    }
}

fn answered(status: u16, body: &[u8]) -> CallFailure {
    CallFailure::Answered { status, upstream: Answer::read(None, body, &Scrub::default()).detail() }
}

fn read_object(body: &[u8]) -> Option<serde_json::Map<String, Value>> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(members)) => Some(members),
        Ok(_) | Err(_) => None,
    }
}

fn unusable() -> Value {
    json!({ "code": "unusable_answer", "message": "The tool service's answer could not be read" })
}

/// The JSON text of a value, with a job's members in the record's order.
fn written(value: &Value) -> Box<RawValue> {
    #[derive(Serialize)]
    struct JobResult<'a> {
        stdout: &'a Value,
        stderr: &'a Value,
        result: &'a Value,
        error: &'a Value,
    }
    let job = || {
        let members = value.as_object().filter(|members| members.len() == 4)?;
        let of = |name: &str| members.get(name);
        let job =
            JobResult { stdout: of("stdout")?, stderr: of("stderr")?, result: of("result")?, error: of("error")? };
        serde_json::value::to_raw_value(&job).ok()
    };
    job().or_else(|| serde_json::value::to_raw_value(value).ok()).unwrap_or_else(|| RawValue::NULL.to_owned())
}

/// Returns the value if its JSON text fits, otherwise the beginning of that text.
fn fit(value: Value, max: usize) -> Value {
    let text = sorted_ascii(&value);
    if text.len() <= max { value } else { Value::String(fitted(&text, max)) }
}

/// Truncates a text so that it fits after JSON encoding.
fn fitted(text: &str, max: usize) -> String {
    let mut room = max;
    loop {
        let shorter = cut(text, room);
        if room <= 256 || sorted_ascii(&Value::String(shorter.clone().into_owned())).len() <= max {
            return shorter.into_owned();
        }
        room /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_result_is_cut_to_json_within_limit() {
        for text in ["x".repeat(10_000), "é".repeat(10_000), "\u{1}".repeat(10_000)] {
            let value = fit(json!({ "a": text.clone() }), 1_000);
            assert!(value.is_string() && sorted_ascii(&value).len() <= 1_000);
            assert!(sorted_ascii(&Value::String(fitted(&text, 2_000))).len() <= 2_000);
        }
        assert_eq!(fit(json!({"a": 1}), 100), json!({"a": 1}));
        assert_eq!(fitted("short", 100), "short");
    }

    #[test]
    fn job_result_has_the_order_of_the_record() {
        let value = json!({"error": null, "result": 1, "stderr": "", "stdout": "4\n"});
        assert_eq!(written(&value).get(), r#"{"stdout":"4\n","stderr":"","result":1,"error":null}"#);
        assert_eq!(written(&json!({"b": 1, "a": 2})).get(), r#"{"a":2,"b":1}"#);
    }
}
