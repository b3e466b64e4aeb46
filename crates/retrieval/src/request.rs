//! One JSON request to a retrieval endpoint: timeout, size limits, and mapping of responses to errors.

use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::Url;

use super::error::{FailureKind, RetrievalError, Stage};

/// Maximum bytes of a successful response: a batch of embeddings, or a hundred chunks.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// Bytes kept of an error response.
const MAX_UPSTREAM_BYTES: usize = 2 * 1024;

/// Endpoint of a request, and the provider named in its errors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) client: &'a Client,
    pub(super) stage: Stage,
    pub(super) provider_slug: &'a str,
    pub(super) timeout: Duration,
    /// (header, prefix, key).
    pub(super) api_key: Option<(&'static str, &'static str, &'a SecretString)>,
}

impl Target<'_> {
    pub(super) fn error(&self, kind: impl Into<FailureKind>) -> RetrievalError {
        RetrievalError::new(self.stage, Some(self.provider_slug), kind)
    }

    pub(super) async fn post(&self, url: &str, body: &Value) -> Result<(u16, Value), RetrievalError> {
        self.send(Method::POST, url, Some(body)).await
    }

    /// Sends the request and reads the response within the timeout. A 2xx body that is not JSON yields `null`.
    pub(super) async fn send(
        &self,
        method: Method,
        url: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), RetrievalError> {
        let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let url = url.ok_or_else(|| self.error(FailureKind::Endpoint))?;
        let mut request = self.client.request(method, url).header("accept", "application/json");
        if let Some((header, prefix, key)) = self.api_key {
            request = request.header(header, self.key_header(prefix, key)?);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = tokio::time::timeout(self.timeout, self.exchange(request)).await;
        answer.unwrap_or_else(|_elapsed| Err(self.error(FailureKind::Timeout)))
    }

    async fn exchange(&self, request: RequestBuilder) -> Result<(u16, Value), RetrievalError> {
        let unreachable = |error: reqwest::Error| {
            let kind = if error.is_timeout() {
                FailureKind::Timeout
            } else {
                FailureKind::Unreachable(Some(error.without_url()))
            };
            self.error(kind)
        };
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let limit = if status.is_success() { MAX_ANSWER_BYTES } else { MAX_UPSTREAM_BYTES };
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() <= limit => body.extend_from_slice(&chunk),
                Ok(Some(_)) if status.is_success() => {
                    return Err(self.error(FailureKind::Unusable(format!("larger than {limit} bytes"))));
                }
                Ok(Some(chunk)) => {
                    body.extend_from_slice(&chunk[..limit - body.len()]);
                    break;
                }
                Ok(None) => break,
                Err(error) if status.is_success() => return Err(unreachable(error)),
                // The status is known; the rest of the body would only explain it.
                Err(_) => break,
            }
        }
        if !status.is_success() {
            let upstream = Some(String::from_utf8_lossy(&body).into());
            return Err(RetrievalError { upstream, ..self.error(FailureKind::Status(status.as_u16())) });
        }
        Ok((status.as_u16(), serde_json::from_slice(&body).unwrap_or_default()))
    }

    fn key_header(&self, prefix: &str, key: &SecretString) -> Result<reqwest::header::HeaderValue, RetrievalError> {
        let value = reqwest::header::HeaderValue::from_str(&format!("{prefix}{}", key.expose_secret()));
        let mut value = value.map_err(|_invalid| self.error(FailureKind::Endpoint))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Joins a base URL and a path with exactly one slash.
pub(super) fn join(base: &str, path: &str) -> String {
    format!("{}/{}", base.trim_end_matches('/'), path.trim_start_matches('/'))
}

/// Beginning of a store's response, for logs.
pub(super) fn excerpt(said: &Value) -> String {
    said.to_string().chars().take(1_000).collect()
}
