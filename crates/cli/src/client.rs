//! HTTP client of the API for the client commands: authenticated requests, problem documents as errors, event
//! streams.

use std::{collections::VecDeque, fmt, time::Duration};

use futures::{Stream, StreamExt};
use longhaul_command::Exit;
use longhaul_shared::{
    config::{Config, ConfigError, reveal},
    http::{HttpOptions, client},
};
use reqwest::{Method, RequestBuilder, Response, StatusCode, header};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;

/// Read timeout. The API holds a long poll for at most a minute and sends a comment on idle event streams every 15 s.
const READ_TIMEOUT: Duration = Duration::from_secs(90);
/// Longest line of an event stream, in bytes. A longer line means that the peer is not Longhaul's API.
const MAX_LINE: usize = 16 << 20;

/// A failed request to the API.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No API key is configured.
    #[error("no API key: set LONGHAUL_API_KEY (made by `longhaul keys create`), or run where `longhaul dev` runs")]
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
#[derive(Debug, Clone, Deserialize)]
pub struct Problem {
    status: u16,
    code: String,
    detail: String,
    #[serde(default)]
    errors: Vec<Violation>,
}

impl Problem {
    /// Returns true if the same request may succeed later.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.status == 503 && self.code != "retrieval_not_configured"
    }
}

#[derive(Debug, Clone, Deserialize)]
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
        Ok(())
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
        Ok(Some(EventStream { bytes: Box::pin(response.bytes_stream()), parser: Parser::default() }))
    }

    /// Sends a message to an agent, and streams what the agent does.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn chat(&self, agent: &str, body: &Value) -> Result<EventStream, ClientError> {
        let response = self.exchange(self.request(Method::POST, &format!("/api/chat/{agent}")).json(body)).await?;
        Ok(EventStream { bytes: Box::pin(response.bytes_stream()), parser: Parser::default() })
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

type Bytes = std::pin::Pin<Box<dyn Stream<Item = reqwest::Result<tokio_util::bytes::Bytes>> + Send>>;

/// A stream of server-sent events.
pub struct EventStream {
    bytes: Bytes,
    parser: Parser,
}

impl EventStream {
    /// Reads the next event. Returns `None` when the connection has ended or failed; the caller reconnects after the
    /// last event it has.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.parser.ready.pop_front() {
                return Some(event);
            }
            let chunk = self.bytes.next().await?.ok()?;
            if !self.parser.feed(&chunk) {
                return None;
            }
        }
    }
}

/// Parses the subset of server-sent events that the API uses.
#[derive(Debug, Default)]
struct Parser {
    line: Vec<u8>,
    id: i64,
    kind: String,
    data: String,
    ready: VecDeque<Event>,
}

impl Parser {
    /// Parses a chunk. Returns false if a line or an event is too long to come from the API.
    fn feed(&mut self, chunk: &[u8]) -> bool {
        for &byte in chunk {
            if byte == b'\n' {
                let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
                self.take_line(line.trim_end_matches('\r'));
            } else {
                self.line.push(byte);
            }
        }
        self.line.len() <= MAX_LINE && self.data.len() <= MAX_LINE
    }

    fn take_line(&mut self, line: &str) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.id = value.parse().unwrap_or(self.id),
            "event" => value.clone_into(&mut self.kind),
            "data" => self.data += value,
            _ => {}
        }
        if line.is_empty() && !self.data.is_empty() {
            let body = serde_json::from_str(&std::mem::take(&mut self.data)).unwrap_or_default();
            self.ready.push_back(Event { seq: self.id, kind: std::mem::take(&mut self.kind), body });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_span_chunks_and_comments_are_skipped() {
        let mut parser = Parser::default();
        for chunk in ["id: 1\nevent: sub", "mitted\nretry: 1000\ndata: {\"a\":", "1}\n\n: keep\n\nid: 2\n"] {
            assert!(parser.feed(chunk.as_bytes()));
        }
        assert!(parser.feed(b"event: claimed\r\ndata: {}\r\n\r\n"));
        let kinds: Vec<_> = parser.ready.iter().map(|event| (event.seq, event.kind.as_str())).collect();
        assert_eq!(kinds, [(1, "submitted"), (2, "claimed")]);
        assert_eq!(parser.ready[0].body, json!({"a": 1}));
    }

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
