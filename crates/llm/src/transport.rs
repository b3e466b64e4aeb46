//! One HTTP request to a model endpoint: headers, timeouts, size limits, and the mapping of responses to
//! errors.
//!
//! Nothing is retried and no redirect is followed; only a request that an HTTP/2 server declared unprocessed is
//! built and sent again. No error holds a header or a URL.

use std::{collections::BTreeMap, error::Error, iter, path::Path, sync::LazyLock};

use bytes::Bytes;
use http_body_util::Full;
use longhaul_domain::TenantId;
use longhaul_fairness::{FairShare, Share};
use longhaul_queue::model_calls::StatedLimits;
use reqwest::{
    Body, Client, RequestBuilder, Response,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use secrecy::{ExposeSecret, SecretString};
use url::Url;
use uuid::Uuid;

use super::{
    Clocks, EventSink, ModelError, ModelRequest, ReplyEvent,
    answer::{Answer, Scrub},
    clocks::RunningClocks,
    connections::{Connections, ConnectionsError, Lent},
    retry_after,
    sse::{SseEvent, SseParser, is_line_of_stream},
    stated_limits,
};

/// Largest reply, whole or streamed, in bytes. No model writes that much, but a broken endpoint may.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of replies under way that one process holds. One reply at a time may exceed it, so that replies which wait
/// for each other's memory end.
const REPLIES_BYTES: u64 = 256 * 1024 * 1024;
/// Bytes of a reply without memory of its own: the permits of a worker bound such replies.
const SMALL_REPLY_BYTES: usize = 256 * 1024;
const MEMORY_STEP: usize = 256 * 1024;

static REPLIES: LazyLock<FairShare<TenantId>> =
    LazyLock::new(|| FairShare::new(REPLIES_BYTES).overdraft((MAX_REPLY_BYTES + MEMORY_STEP) as u64));

/// Bytes of an error body that are read.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Resends of a request that the server declared unprocessed; the HTTP client's own default.
const MAX_RESENT: usize = 2;

/// The address, headers and timeouts for requests to one provider.
#[derive(Debug)]
pub(super) struct Endpoint {
    connections: Connections,
    url: Url,
    headers: HeaderMap,
    scrub: Scrub,
    clocks: Clocks,
}

/// Errors of building a provider from its configuration.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The base URL is not an `http` or `https` URL.
    #[error("base URL is not an http or https URL")]
    BaseUrl,
    /// A header's name or value, or the key, holds a character that HTTP does not allow.
    #[error("header `{name}` cannot be sent: it holds a character that HTTP does not allow")]
    Header {
        /// The header's name; its value may be a secret.
        name: String,
    },
    /// The connections cannot be set up.
    #[error(transparent)]
    Connections(#[from] ConnectionsError),
}

/// The header that carries the provider's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyHeader {
    /// `Authorization: Bearer …`
    Bearer,
    /// `x-api-key: …`
    XApiKey,
}

/// The state of a streamed reply, reported by the reader of its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Nothing of the reply has arrived.
    Waiting,
    /// The reply has begun.
    Flowing,
    /// The reply is complete. The rest of the stream is not needed and only awaited briefly.
    Closing,
    /// The stream is complete.
    Done,
}

impl Endpoint {
    pub(super) fn new(
        url: Url,
        key: Option<(KeyHeader, SecretString)>,
        extra_headers: BTreeMap<String, SecretString>,
        clocks: Clocks,
        authorities: Option<&Path>,
    ) -> Result<Self, EndpointError> {
        let mut headers = HeaderMap::new();
        let mut secrets: Vec<SecretString> = Vec::new();
        if let Some((header, key)) = key {
            let (name, value) = match header {
                KeyHeader::Bearer => (AUTHORIZATION, format!("Bearer {}", key.expose_secret())),
                KeyHeader::XApiKey => (HeaderName::from_static("x-api-key"), key.expose_secret().to_owned()),
            };
            headers.insert(name.clone(), sensitive(name.as_str(), &value)?);
            secrets.push(key);
        }
        for (name, value) in extra_headers {
            let header: HeaderName = name.parse().map_err(|_invalid| EndpointError::Header { name: name.clone() })?;
            headers.insert(header, sensitive(&name, value.expose_secret())?);
            secrets.push(value);
        }
        let connections = Connections::new(&url, clocks.connect, authorities)?;
        Ok(Self { connections, url, headers, scrub: Scrub::new(secrets), clocks })
    }

    /// Adds a public header, unless the configuration sets it.
    pub(super) fn with_default_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.entry(name).or_insert(HeaderValue::from_static(value));
        self
    }

    /// Sends the request and waits for the response headers; fails for every status but 2xx. `body` builds the
    /// body again for a resend: a kept copy would occupy memory until the model answers.
    pub(super) fn open<'a>(
        &'a self,
        request: &'a ModelRequest<'_>,
        body: impl Fn() -> Result<Vec<u8>, ModelError> + Send + 'a,
    ) -> impl Future<Output = Result<Opened<'a>, ModelError>> + Send + 'a {
        let clocks = self.clocks.at(request.model.effort);
        let streams = request.model.stream;
        let clocks = if streams { RunningClocks::streaming(clocks) } else { RunningClocks::whole(clocks) };
        let asked = Asked { clocks, streams, tenant: request.tenant };
        self.send(move |client| self.post(client, request, body()?), asked)
    }

    fn post(&self, client: &Client, request: &ModelRequest<'_>, body: Vec<u8>) -> Result<RequestBuilder, ModelError> {
        let idempotency_key = HeaderValue::from_str(request.idempotency_key)
            .map_err(|_invalid| ModelError::InvalidSettings { what: "the idempotency key is not ASCII".into() })?;
        let call = client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("idempotency-key", idempotency_key)
            .body(written_once(body));
        Ok(match request.traceparent.and_then(|text| HeaderValue::from_str(text).ok()) {
            Some(traceparent) => call.header("traceparent", traceparent),
            None => call,
        })
    }

    /// Sends a GET request whose reply arrives in one piece.
    pub(super) async fn get(&self) -> Result<Opened<'_>, ModelError> {
        let call = |client: &Client| Ok(client.get(self.url.clone()).headers(self.headers.clone()));
        let asked = Asked { clocks: RunningClocks::whole(self.clocks), streams: false, tenant: TenantId(Uuid::nil()) };
        self.send(call, asked).await
    }

    async fn send(
        &self,
        call: impl Fn(&Client) -> Result<RequestBuilder, ModelError>,
        asked: Asked,
    ) -> Result<Opened<'_>, ModelError> {
        let mut resent = 0;
        loop {
            let lent = self.connections.lend().map_err(|error| unreachable_endpoint(error, &asked.clocks))?;
            let sending = call(&lent.client)?.send();
            match asked.clocks.wait(sending).await {
                Ok(Err(error)) if resent < MAX_RESENT && is_unprocessed(&error) => resent += 1,
                // Boxed: a future that waits for response headers need not reserve room for the response.
                sent => return Box::pin(self.opened(sent, lent, asked)?.checked()).await,
            }
        }
    }

    fn opened(
        &self,
        sent: Result<reqwest::Result<Response>, ModelError>,
        lent: Lent,
        asked: Asked,
    ) -> Result<Opened<'_>, ModelError> {
        let response = sent?.map_err(|error| {
            self.connections.doubt();
            unreachable_endpoint(error, &asked.clocks)
        })?;
        self.connections.heard(response.version());
        Ok(Opened {
            request_id: request_id(response.headers()),
            stated: stated_limits::read(response.headers()),
            streams: asked.streams,
            response,
            ahead: None,
            clocks: asked.clocks,
            scrub: &self.scrub,
            memory: Memory::new(REPLIES.begin(asked.tenant)),
            _lent: lent,
        })
    }
}

/// Conditions of a request.
struct Asked {
    clocks: RunningClocks,
    /// True if an event stream is requested.
    streams: bool,
    tenant: TenantId,
}

/// Memory of a reply, taken as it arrives.
#[derive(Debug)]
struct Memory {
    share: Share<TenantId>,
    received: usize,
    /// Bytes up to which the reply has memory.
    covered: usize,
}

impl Memory {
    fn new(share: Share<TenantId>) -> Self {
        Self { share, received: 0, covered: SMALL_REPLY_BYTES }
    }

    /// Takes memory for bytes that arrived. While none is free, nothing more is read, and `clocks` run on.
    async fn receive(&mut self, bytes: usize, clocks: &RunningClocks) -> Result<(), ModelError> {
        self.received += bytes;
        if self.received > MAX_REPLY_BYTES {
            return Err(ModelError::TooLarge { limit: MAX_REPLY_BYTES });
        }
        if self.received > self.covered {
            let step = (self.received - self.covered).next_multiple_of(MEMORY_STEP);
            clocks.wait(self.share.grow(step as u64)).await?;
            self.covered += step;
        }
        Ok(())
    }
}

/// A response whose headers have arrived; outside this file its status is 2xx.
#[derive(Debug)]
pub(super) struct Opened<'a> {
    /// The provider's request id.
    pub(super) request_id: Option<String>,
    /// The endpoint's limits, as the headers state them.
    pub(super) stated: StatedLimits,
    /// True if an event stream was requested.
    streams: bool,
    response: Response,
    /// Bytes that were looked at and not yet read.
    ahead: Option<Bytes>,
    clocks: RunningClocks,
    scrub: &'a Scrub,
    memory: Memory,
    _lent: Lent,
}

impl Opened<'_> {
    /// Classifies an error that the endpoint reported inside its reply.
    pub(super) fn error_inside(&self, body: &[u8]) -> ModelError {
        let answer = Answer { request_id: self.request_id.clone(), ..Answer::of_model(None, body, self.scrub) };
        ModelError::of_answer(answer, retry_after::in_body(body))
    }

    /// True if the body is an event stream, whatever was requested and however it is labelled: servers that cannot
    /// stream send the whole reply, and gateways label streams as JSON. The first byte that is not blank decides.
    pub(super) async fn is_stream(&mut self) -> Result<bool, ModelError> {
        loop {
            let Some(chunk) = self.chunk().await? else { return Ok(self.streams) };
            let text = chunk.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&chunk);
            if let Some(first) = text.trim_ascii_start().first() {
                let is_whole = matches!(first, b'{' | b'[' | b'<' | b'"');
                self.ahead = Some(chunk);
                return Ok(!is_whole);
            }
        }
    }

    /// Reads a whole reply.
    pub(super) async fn body(&mut self) -> Result<Vec<u8>, ModelError> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            self.clocks.begun();
            self.memory.receive(chunk.len(), &self.clocks).await?;
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Passes the events of a streamed reply to `read`, which writes what they say to `sink`, until it returns
    /// [`Flow::Done`] or the connection ends. The reader decides if the reply was complete by then. A connection error
    /// after [`Flow::Closing`] is ignored.
    pub(super) async fn events(
        &mut self,
        sink: EventSink<'_>,
        mut read: impl FnMut(&Self, &SseEvent, EventSink<'_>) -> Result<Flow, ModelError> + Send,
    ) -> Result<(), ModelError> {
        let mut parser = SseParser::new();
        let mut events = Vec::new();
        let (mut begun, mut closing) = (false, false);
        // The beginning of a body, until its first event: what is no stream may say what went wrong.
        let mut head = Some(Vec::new());
        loop {
            let chunk = match self.chunk().await {
                Ok(chunk) => chunk,
                Err(_not_needed) if closing => return Ok(()),
                Err(error) => return Err(error),
            };
            let ended = chunk.is_none();
            match chunk {
                Some(chunk) => {
                    self.memory.receive(chunk.len(), &self.clocks).await?;
                    parser.push(&chunk, &mut events)?;
                    if let Some(head) = head.as_mut() {
                        head.extend_from_slice(&chunk[..chunk.len().min(MAX_ERROR_BYTES - head.len())]);
                    }
                }
                None => events.extend(std::mem::replace(&mut parser, SseParser::new()).finish()),
            }
            if !events.is_empty() {
                head = None;
            }
            for event in events.drain(..) {
                let flow = read(self, &event, &mut *sink);
                if matches!(flow, Ok(Flow::Flowing | Flow::Closing)) && !std::mem::replace(&mut begun, true) {
                    sink(ReplyEvent::Begun);
                }
                match flow {
                    Ok(Flow::Waiting) => {}
                    Ok(Flow::Flowing) => self.clocks.begun(),
                    Ok(Flow::Closing) => {
                        closing = true;
                        self.clocks.closing();
                    }
                    Ok(Flow::Done) => return Ok(()),
                    // The last event is incomplete: the connection was cut, and the reply is not malformed.
                    Err(ModelError::Malformed { .. }) if ended => return Err(ModelError::StreamCut { source: None }),
                    Err(error) => return Err(error),
                }
            }
            if ended {
                let is_other = |head: &Vec<u8>| !head.split(|byte| *byte == b'\n').all(is_line_of_stream);
                let says = head.filter(is_other);
                return says.map_or(Ok(()), |says| Err(self.error_inside(&says)));
            }
        }
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, ModelError> {
        if let Some(ahead) = self.ahead.take() {
            return Ok(Some(ahead));
        }
        let chunk = self.clocks.wait(self.response.chunk()).await?;
        chunk.map_err(|error| ModelError::StreamCut { source: Some(error.without_url()) })
    }

    async fn checked(self) -> Result<Self, ModelError> {
        if self.response.status().is_success() { Ok(self) } else { Err(self.into_error().await) }
    }

    /// Converts a response without a 2xx status to an error. The body is read under the same timeouts; a
    /// failure to read it is ignored.
    async fn into_error(mut self) -> ModelError {
        let status = self.response.status();
        let retry_after = retry_after::read(self.response.headers());
        // The status is known and the body only explains it, so wait briefly.
        self.clocks.closing();
        let mut body = Vec::new();
        while body.len() < MAX_ERROR_BYTES
            && let Ok(Some(chunk)) = self.chunk().await
        {
            body.extend_from_slice(&chunk[..chunk.len().min(MAX_ERROR_BYTES - body.len())]);
        }
        let mut answer = Answer::of_model(Some(status.as_u16()), &body, self.scrub);
        answer.request_id = answer.request_id.or(self.request_id);
        let of_body = || retry_after::in_body(&body);
        ModelError::of_answer(answer, retry_after.or_else(of_body).or_else(|| self.stated.spent_for()))
    }
}

/// Returns a body that cannot be cloned. The HTTP client keeps a clone of any other until the response, in case
/// of a redirect.
fn written_once(body: Vec<u8>) -> Body {
    Body::wrap(Full::new(Bytes::from(body)))
}

fn unreachable_endpoint(error: reqwest::Error, clocks: &RunningClocks) -> ModelError {
    if error.is_connect() && error.is_timeout() {
        return ModelError::ConnectTimeout { after: clocks.connect() };
    }
    ModelError::Unreachable { source: error.without_url() }
}

/// Returns true if the server did not begin to process the request: it is closing the connection or refused the
/// stream (RFC 9113 §8.7).
fn is_unprocessed(error: &reqwest::Error) -> bool {
    let causes = iter::successors(error.source(), |&cause| cause.source());
    causes.filter_map(|cause| cause.downcast_ref::<h2::Error>()).any(|error| {
        let reason = if error.is_go_away() { h2::Reason::NO_ERROR } else { h2::Reason::REFUSED_STREAM };
        error.is_remote() && error.reason() == Some(reason)
    })
}

fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = ["x-request-id", "request-id"].iter().find_map(|name| headers.get(*name))?;
    id.to_str().ok().filter(|id| id.len() <= 200).map(str::to_owned)
}

fn sensitive(name: &str, value: &str) -> Result<HeaderValue, EndpointError> {
    let mut value = HeaderValue::from_str(value).map_err(|_invalid| EndpointError::Header { name: name.to_owned() })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Parses a base URL; only `http` and `https` are allowed.
pub(super) fn base_url(text: &str) -> Result<Url, EndpointError> {
    let url = Url::parse(text).map_err(|_invalid| EndpointError::BaseUrl)?;
    if matches!(url.scheme(), "http" | "https") && url.has_host() { Ok(url) } else { Err(EndpointError::BaseUrl) }
}

#[cfg(test)]
mod tests {
    use longhaul_domain::TenantId;
    use longhaul_fairness::FairShare;
    use std::time::Duration;

    use futures::FutureExt;
    use reqwest::{Method, Request};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn replies_of_a_process_share_its_memory() {
        let seconds = Duration::from_secs;
        let limits = Clocks { connect: seconds(1), first_token: seconds(1), gap: seconds(60), total: seconds(600) };
        let clocks = RunningClocks::whole(limits);
        let all = FairShare::new(MEMORY_STEP as u64).overdraft(2 * MEMORY_STEP as u64);
        let [mut first, mut second, mut third] =
            [1, 1, 2].map(|tenant| Memory::new(all.begin(TenantId(Uuid::from_u128(tenant)))));
        for reply in [&mut first, &mut second, &mut third] {
            assert!(reply.receive(SMALL_REPLY_BYTES, &clocks).now_or_never().is_some(), "a small reply passes");
        }
        assert!(first.receive(MEMORY_STEP, &clocks).now_or_never().is_some());
        assert!(second.receive(MEMORY_STEP, &clocks).now_or_never().is_some(), "one may exceed the limit");
        let late = third.receive(MEMORY_STEP, &clocks).await;
        assert!(matches!(late, Err(ModelError::TotalTimeout { .. })), "{late:?}");
        drop(first);
        let clocks = RunningClocks::whole(limits);
        assert!(third.receive(1, &clocks).now_or_never().is_none(), "the other still exceeds it");
        drop(second);
        assert!(third.receive(1, &clocks).now_or_never().is_some());
        assert_eq!(all.used(), MEMORY_STEP as u64, "no reply takes more than there is");
    }

    #[test]
    fn request_body_cannot_be_cloned() {
        let mut request = Request::new(Method::POST, base_url("http://127.0.0.1").unwrap());
        *request.body_mut() = Some(written_once(b"a whole conversation".to_vec()));
        assert!(request.try_clone().is_none());
    }
}
