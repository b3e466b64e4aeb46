//! HTTP client of the API for the client commands: authenticated requests, problem documents as errors, event
//! streams.

use std::{fmt, pin::Pin, time::Duration};

use futures::{Stream, StreamExt};
use longhaul_command::Exit;
use longhaul_config::{Config, ConfigError, reveal};
use longhaul_guards::http::{HttpOptions, client};
use reqwest::{Method, RequestBuilder, Response, StatusCode, header};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sse_stream::{Sse, SseStream};

/// Read timeout. The API holds a long poll for at most a minute and sends a comment on idle event streams every 15 s.
const READ_TIMEOUT: Duration = Duration::from_secs(90);

/// A failed request to the API.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No API key is configured.
    #[error(
        "no API key: set LONGHAUL_API_KEY (made by `longhaul keys create`), or run where `longhaul dev` runs; \
             what that wrote to .longhaul/env is for its own server alone"
    )]
    NoKey,
    /// The configured API key refers to a variable that is not set.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The connection failed, or broke off during the answer.
    #[error("{url} does not answer; is `longhaul api` or `longhaul dev` running there?")]
    Unreachable {
        /// Base URL of the API.
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// The API answered with a problem document.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// The server answered with an error status and no problem document.
    #[error("{url} answered {status} without a problem document; is it Longhaul's API?")]
    Foreign {
        /// Requested base URL.
        url: String,
        status: StatusCode,
    },
}

impl ClientError {
    /// The exit code of a command that fails with this error.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::NoKey => Exit::Refused,
            Self::Config(_) => Exit::Usage,
            Self::Unreachable { .. } | Self::Foreign { .. } => Exit::Failure,
            Self::Problem(problem) => match problem.status {
                404 => Exit::NotFound,
                400..=499 => Exit::Refused,
                _ => Exit::Failure,
            },
        }
    }
}

/// An RFC 9457 problem document of the API.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Problem {
    status: u16,
    code: String,
    detail: String,
    #[serde(default)]
    errors: Vec<Violation>,
}

impl Problem {
    /// Stable name of the error.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Adds a clause to the text for people.
    pub fn add_hint(&mut self, hint: &str) {
        self.detail = format!("{}; {hint}", self.detail);
    }

    /// Returns true if the same request may succeed later.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.status == 503 && self.code != "retrieval_not_configured"
    }

    /// Returns true if the request conflicts with what is stored.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.status == 409
    }
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct Violation {
    path: String,
    message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, HTTP {})", self.detail, self.code, self.status)?;
        for violation in &self.errors {
            let path = if violation.path.is_empty() { "/" } else { &violation.path };
            write!(f, "\n  {path}: {}", violation.message)?;
        }
        match self.code.as_str() {
            "invalid_api_key" => {
                write!(
                    f,
                    "\n  make one with `longhaul keys create --name NAME --org ORG`, and set LONGHAUL_API_KEY to it"
                )
            }
            "missing_scope" => {
                write!(
                    f,
                    "\n  `longhaul whoami` shows what the key has; `longhaul keys create --role ROLE` makes another"
                )
            }
            _ => Ok(()),
        }
    }
}

/// Sends requests to one API with one key.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    key: SecretString,
}

/// An answer with its status: some endpoints tell 201 from 200.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    /// Body as JSON; null if the answer has none.
    pub body: Value,
}

impl Client {
    /// # Errors
    /// No API key is configured, or it refers to a variable that is not set.
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        let key = reveal(config.client.api_key.as_ref().ok_or(ClientError::NoKey)?)?;
        Self::with(&config.client.url, key)
    }

    /// # Errors
    /// The system's TLS roots cannot be read.
    pub fn with(url: &str, key: SecretString) -> anyhow::Result<Self> {
        let options = HttpOptions { read_timeout: Some(READ_TIMEOUT), ..HttpOptions::default() };
        Ok(Self { http: client(&options)?, url: url.trim_end_matches('/').to_owned(), key })
    }

    /// The base URL, without a trailing slash.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The API key.
    #[must_use]
    pub fn key(&self) -> &SecretString {
        &self.key
    }

    /// Builds an authenticated request for a path below the base URL.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url)).bearer_auth(self.key.expose_secret())
    }

    /// # Errors
    /// [`ClientError`].
    pub async fn get(&self, path: &str) -> Result<Value, ClientError> {
        Ok(self.send(self.request(Method::GET, path)).await?.body)
    }

    /// Sends a request and reads its JSON body; null for 204.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn send(&self, request: RequestBuilder) -> Result<Answer, ClientError> {
        let response = self.exchange(request).await?;
        let status = response.status();
        let body = if status == StatusCode::NO_CONTENT {
            Value::Null
        } else {
            response.json().await.map_err(|source| self.unreachable(source))?
        };
        Ok(Answer { status, body })
    }

    /// Reads all pages of a list: the items in `field` of each, until `next_after` is null.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn all(&self, path: &str, query: &[(&str, &str)], field: &str) -> Result<Vec<Value>, ClientError> {
        let (mut items, mut after) = (Vec::new(), None);
        loop {
            let mut request = self.request(Method::GET, path).query(query);
            if let Some(after) = &after {
                request = request.query(&[("after", after)]);
            }
            let page = self.send(request).await?.body;
            items.extend(page[field].as_array().cloned().unwrap_or_default());
            after = match &page["next_after"] {
                Value::Null => return Ok(items),
                Value::String(key) => Some(key.clone()),
                number @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                    Some(number.to_string())
                }
            };
        }
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn download(&self, path: &str) -> Result<Vec<u8>, ClientError> {
        let response = self.exchange(self.request(Method::GET, path)).await?;
        Ok(response.bytes().await.map_err(|source| self.unreachable(source))?.to_vec())
    }

    /// Streams the events of an execution with a number above `after`. Returns `None` if the execution is over and no
    /// event follows.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn events(&self, id: &str, after: i64) -> Result<Option<EventStream>, ClientError> {
        let request = self
            .request(Method::GET, &format!("/v1/executions/{id}/events"))
            .header(header::ACCEPT, "text/event-stream")
            .header("Last-Event-ID", after);
        let response = self.exchange(request).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        Ok(Some(EventStream::of(response)))
    }

    /// Sends a message to an agent, and streams what the agent does.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn chat(&self, agent: &str, body: &Value) -> Result<EventStream, ClientError> {
        let response = self.exchange(self.request(Method::POST, &format!("/api/chat/{agent}")).json(body)).await?;
        Ok(EventStream::of(response))
    }

    async fn exchange(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|source| self.unreachable(source))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        match response.json::<Problem>().await {
            Ok(problem) => Err(ClientError::Problem(Box::new(problem))),
            Err(_) => Err(ClientError::Foreign { url: self.url.clone(), status }),
        }
    }

    fn unreachable(&self, source: reqwest::Error) -> ClientError {
        ClientError::Unreachable { url: self.url.clone(), source: source.without_url() }
    }
}

/// One event of an execution, as the API sends it.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Number within the execution.
    pub seq: i64,
    /// Event kind, such as `turn` or `finished`.
    pub kind: String,
    /// `{seq, at, kind, data}`; for a `resync`, `{last}`.
    pub body: Value,
}

impl Event {
    /// The `data` field of the body; null if absent.
    #[must_use]
    pub fn data(&self) -> &Value {
        self.body.get("data").unwrap_or(&Value::Null)
    }
}

/// A stream of server-sent events.
pub struct EventStream {
    frames: Pin<Box<dyn Stream<Item = Result<Sse, sse_stream::Error>> + Send>>,
    /// Number of the last event: a frame without an id keeps it.
    seq: i64,
}

impl EventStream {
    fn of(response: Response) -> Self {
        Self { frames: Box::pin(SseStream::from_bytes_stream(response.bytes_stream())), seq: 0 }
    }

    /// Reads the next event. Returns `None` when the connection has ended or failed; the caller reconnects after the
    /// last event it has.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let frame = self.frames.next().await?.ok()?;
            self.seq = frame.id.and_then(|id| id.parse().ok()).unwrap_or(self.seq);
            if let Some(data) = frame.data {
                let body = serde_json::from_str(&data).unwrap_or_default();
                return Some(Event { seq: self.seq, kind: frame.event.unwrap_or_default(), body });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_problem_is_a_sentence_with_every_violation() {
        let problem: Problem = serde_json::from_value(json!({
            "type": "t", "title": "t", "status": 422, "code": "invalid_input", "detail": "the input is invalid",
            "errors": [{"path": "/input/a", "message": "is required"}, {"path": "", "message": "b"}],
        }))
        .unwrap();
        assert_eq!(
            problem.to_string(),
            "the input is invalid (invalid_input, HTTP 422)\n  /input/a: is required\n  /: b"
        );
        assert_eq!(ClientError::Problem(Box::new(problem)).exit(), Exit::Refused);
    }
}
