//! HTTP client of another engine that speaks the contract.
//!
//! Invariant: a request is sent at most once. Connections are not reused, so that no request meets one that is
//! just being closed, and no layer below retries. The engine's answers about an execution pass through; failures
//! to reach it are reported as [`Transport`].

use std::time::Duration;

use axum::http::StatusCode;
use longhaul_guards::http::{HttpOptions, client};
use reqwest::{Client, Method, Response};
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json, value::RawValue};

use super::options::EngineOptions;

/// Maximum size of an answer, in bytes.
const MAX_ANSWER_BYTES: usize = 32 << 20;

/// The requested operation, named in the fallback's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    Get,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create_execution",
            Self::Get => "get_execution",
        }
    }
}

#[derive(Debug)]
pub(super) enum EngineAnswer {
    /// A record: its status and the exact text of `execution`.
    Execution { status: StatusCode, id: Option<String>, execution: Box<RawValue> },
    /// An error of the engine.
    Error { status: StatusCode, body: Map<String, Value> },
    /// No usable answer.
    Transport(Transport),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    /// The engine cannot be reached, or the connection broke.
    Unreachable,
    Timeout,
    /// The answer is malformed, too large or from something else, or the engine refuses our service token.
    Garbled,
}

impl Transport {
    /// Status, code and message for the caller if the fallback is off.
    pub(super) fn answer(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Unreachable => (StatusCode::BAD_GATEWAY, "agent_engine_unreachable", "Agent engine is unreachable"),
            Self::Timeout => {
                (StatusCode::GATEWAY_TIMEOUT, "agent_engine_timeout", "Agent engine did not answer in time")
            }
            Self::Garbled => (StatusCode::BAD_GATEWAY, "agent_engine_error", "Agent engine answered unexpectedly"),
        }
    }
}

pub(super) fn fallback(operation: Operation, request_id: &str) -> Value {
    json!({
        "error": "EXEC_UPSTREAM_UNAVAILABLE",
        "message": "Agent execution service is temporarily unavailable",
        "details": { "operation": operation.as_str(), "fallback_applied": true, "request_id": request_id },
    })
}

#[derive(Debug, Clone)]
pub(crate) struct Engine {
    client: Client,
    options: EngineOptions,
}

impl Engine {
    /// # Errors
    /// The TLS roots of the machine cannot be read.
    pub(crate) fn new(options: EngineOptions) -> Result<Self, reqwest::Error> {
        let client = client(&HttpOptions { sends_once: true, ..HttpOptions::default() })?;
        Ok(Self { client, options })
    }

    /// The wait to request from the engine when the caller waits for `asked`. Leaves `margin` of the request
    /// timeout, because an answer of `running` in time is worth more than a timeout.
    pub(super) fn wait(&self, asked: Duration, margin: Duration) -> Duration {
        asked.min(self.options.timeout.saturating_sub(margin))
    }

    pub(super) async fn create(&self, body: &Value, headers: &[(&str, &str)]) -> EngineAnswer {
        self.send(Method::POST, "/v1/internal/agent-executions", Some(body), headers).await
    }

    /// Reads an execution by the id that an engine gave.
    pub(super) async fn get(&self, id: &str, headers: &[(&str, &str)]) -> EngineAnswer {
        self.send(Method::GET, &format!("/v1/internal/agent-executions/{id}"), None, headers).await
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>, headers: &[(&str, &str)]) -> EngineAnswer {
        let url = format!("{}{path}", self.options.url.trim_end_matches('/'));
        let mut request = self.client.request(method, url).timeout(self.options.timeout);
        request = request.header("x-service-token", self.options.token.expose_secret());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        match request.send().await {
            Ok(response) => read(response).await,
            Err(error) => EngineAnswer::Transport(told(&error)),
        }
    }
}

fn told(error: &reqwest::Error) -> Transport {
    tracing::warn!(error = %error, "the agent engine was not reached");
    if error.is_timeout() { Transport::Timeout } else { Transport::Unreachable }
}

async fn read(mut response: Response) -> EngineAnswer {
    let status = StatusCode::from_u16(response.status().as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut bytes = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if bytes.len() + chunk.len() <= MAX_ANSWER_BYTES => bytes.extend_from_slice(&chunk),
            Ok(Some(_)) => return EngineAnswer::Transport(Transport::Garbled),
            Ok(None) => break,
            Err(error) => return EngineAnswer::Transport(told(&error)),
        }
    }
    understood(status, &bytes)
}

#[derive(serde::Deserialize)]
struct Envelope {
    execution: Box<RawValue>,
}

fn understood(status: StatusCode, bytes: &[u8]) -> EngineAnswer {
    if status.is_success() {
        let Ok(Envelope { execution }) = serde_json::from_slice(bytes) else {
            return EngineAnswer::Transport(Transport::Garbled);
        };
        let fields: Value = serde_json::from_str(execution.get()).unwrap_or_default();
        if !fields.is_object() {
            return EngineAnswer::Transport(Transport::Garbled);
        }
        let id = fields["id"].as_str().map(str::to_owned);
        return EngineAnswer::Execution { status, id, execution };
    }
    match serde_json::from_slice(bytes) {
        // This error is about our token, not about the caller's request.
        Ok(Value::Object(body)) if body.get("error").and_then(Value::as_str) == Some("invalid_service_token") => {
            tracing::error!("the agent engine refuses the service token");
            EngineAnswer::Transport(Transport::Garbled)
        }
        Ok(Value::Object(body)) if body.get("error").is_some_and(Value::is_string) => {
            EngineAnswer::Error { status, body }
        }
        // A proxy in front of the engine reports that the engine is away.
        _ if [502, 503].contains(&status.as_u16()) => EngineAnswer::Transport(Transport::Unreachable),
        _ if status.as_u16() == 504 => EngineAnswer::Transport(Transport::Timeout),
        _ => EngineAnswer::Transport(Transport::Garbled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_answers_differ_from_proxy_answers() {
        let said = |status: u16, text: &str| understood(StatusCode::from_u16(status).unwrap(), text.as_bytes());
        let queued = said(202, r#"{"execution":{"id":"x","status":"queued"}}"#);
        assert!(matches!(queued, EngineAnswer::Execution { id: Some(id), .. } if id == "x"));
        assert!(matches!(
            said(503, r#"{"error":"EXEC_UPSTREAM_UNAVAILABLE","message":"m"}"#),
            EngineAnswer::Error { .. }
        ));
        assert!(matches!(
            said(504, r#"{"error":"EXEC_TIMEOUT","message":"m","details":{}}"#),
            EngineAnswer::Error { .. }
        ));
        assert!(matches!(said(503, "<html>"), EngineAnswer::Transport(Transport::Unreachable)));
        assert!(matches!(said(504, ""), EngineAnswer::Transport(Transport::Timeout)));
        assert!(matches!(said(200, "{}"), EngineAnswer::Transport(Transport::Garbled)));
        assert!(matches!(said(500, "[]"), EngineAnswer::Transport(Transport::Garbled)));
        assert!(matches!(
            said(401, r#"{"error":"invalid_service_token","message":"m"}"#),
            EngineAnswer::Transport(Transport::Garbled)
        ));
    }
}
