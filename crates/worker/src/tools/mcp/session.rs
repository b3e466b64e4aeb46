//! The HTTP client of a session with a server, and what its errors say.
//!
//! A server that has restarted does not know the session any more. It should answer 404, which rmcp takes for "initialise again";
//! widespread servers answer 400, which rmcp would leave without an answer for whoever waits.

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

/// How rmcp begins the text about an answer with this status and no JSON-RPC error in it.
const BAD_REQUEST: &str = "HTTP 400 ";

/// A client that takes both for the end of its session.
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

/// The id of a request that names a session.
fn request_of(message: &ClientJsonRpcMessage, session: Option<&Arc<str>>) -> Option<RequestId> {
    match message {
        ClientJsonRpcMessage::Request(request) if session.is_some() => Some(request.id.clone()),
        ClientJsonRpcMessage::Request(_)
        | ClientJsonRpcMessage::Response(_)
        | ClientJsonRpcMessage::Notification(_)
        | ClientJsonRpcMessage::Error(_) => None,
    }
}

/// An error that names the request answers it. One that names none was made before anybody looked at the request.
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

/// What an error of a transport means for the request that it ended.
pub(super) enum Ended {
    /// Nothing was sent.
    Unsent,
    /// The server answered with this status, or did not accept the session, and has not run anything.
    Refused(String),
    /// It may have been sent.
    Lost,
}

/// What became of a request whose transport failed.
pub(super) fn ended(error: &DynamicTransportError) -> Ended {
    match error.error.downcast_ref::<HttpError>() {
        Some(StreamableHttpError::Client(error)) if error.is_connect() => Ended::Unsent,
        Some(StreamableHttpError::HttpStatus(status)) => {
            Ended::Refused(format!("the server answered HTTP {}", status.status))
        }
        Some(StreamableHttpError::SessionExpired) => Ended::Refused("the server does not know its own session".into()),
        Some(_) | None => Ended::Lost,
    }
}

/// The error in words, without names of Rust types.
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
