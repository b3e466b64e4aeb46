//! The HTTP client of a session with a tool server, and the classification of its errors.
//!
//! A restarted server does not know its old sessions. It should answer 404, on which rmcp initialises a new
//! session. Widespread servers answer 400 instead, after which rmcp would leave the caller without an answer.

use std::{collections::HashMap, error::Error, sync::Arc};

use futures::stream::BoxStream;
use reqwest::{
    Client,
    header::{HeaderName, HeaderValue},
};
use rmcp::{
    model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage},
    transport::{
        DynamicTransportError,
        streamable_http_client::{SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse},
    },
};
use sse_stream::Sse;

type HttpError = StreamableHttpError<reqwest::Error>;

/// Prefix of rmcp's error for HTTP 400 without a JSON-RPC error in the body.
const BAD_REQUEST: &str = "HTTP 400 ";

/// A client that treats both statuses as the end of the session.
#[derive(Clone)]
pub(super) struct SessionClient(pub(super) Client);

impl StreamableHttpClient for SessionClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let request = request_of(&message, session.as_ref());
        let answered = self.0.post_message(uri, message, session, auth_header, headers).await;
        in_session(request, answered)
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        max: usize,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let request = request_of(&message, session.as_ref());
        let posted = self.0.post_message_with_max_sse_event_size(uri, message, session, auth_header, headers, max);
        in_session(request, posted.await)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        self.0.delete_session(uri, session, auth_header, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        self.0.get_stream(uri, session, last_event, auth_header, headers).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        max: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        self.0.get_stream_with_max_sse_event_size(uri, session, last_event, auth_header, headers, max).await
    }
}

/// The id of a request within a session.
fn request_of(message: &ClientJsonRpcMessage, session: Option<&Arc<str>>) -> Option<RequestId> {
    match message {
        ClientJsonRpcMessage::Request(request) if session.is_some() => Some(request.id.clone()),
        ClientJsonRpcMessage::Request(_)
        | ClientJsonRpcMessage::Response(_)
        | ClientJsonRpcMessage::Notification(_)
        | ClientJsonRpcMessage::Error(_) => None,
    }
}

/// Reports an expired session if the server rejected the request before processing it: its error names no or
/// another request.
fn in_session(
    request: Option<RequestId>,
    answered: Result<StreamableHttpPostResponse, HttpError>,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let Some(request) = request else { return answered };
    let is_unknown = match &answered {
        Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), _)) => error.id != Some(request),
        Err(StreamableHttpError::UnexpectedServerResponse(text)) => text.starts_with(BAD_REQUEST),
        Ok(_) | Err(_) => false,
    };
    if is_unknown { Err(StreamableHttpError::SessionExpired) } else { answered }
}

/// State of a request after its transport failed.
pub(super) enum FailedRequest {
    /// Nothing was sent.
    Unsent,
    /// The server answered with an HTTP error or rejected the session; nothing ran.
    Refused(String),
    /// The request may have been sent.
    Lost,
}

/// Classifies a transport error.
pub(super) fn ended(error: &DynamicTransportError) -> FailedRequest {
    match error.error.downcast_ref::<HttpError>() {
        Some(StreamableHttpError::Client(error)) if error.is_connect() => FailedRequest::Unsent,
        Some(StreamableHttpError::HttpStatus(status)) => {
            FailedRequest::Refused(format!("the server answered HTTP {}", status.status))
        }
        Some(StreamableHttpError::SessionExpired) => {
            FailedRequest::Refused("the server does not know its own session".into())
        }
        Some(_) | None => FailedRequest::Lost,
    }
}

/// The error as a message, without names of Rust types.
pub(super) fn said(error: &DynamicTransportError) -> String {
    match error.error.downcast_ref::<HttpError>() {
        Some(StreamableHttpError::Client(error)) => {
            let root = root(error);
            if error.is_connect() { format!("cannot connect: {root}") } else { root }
        }
        Some(_) | None => error.error.to_string(),
    }
}

fn root(error: &dyn Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}
