//! The sign-in form. The API checks the key and sets the cookie.

use axum::{
    body::Body,
    extract::{ConnectInfo, Request, State},
    http::{Method, Uri, header},
    response::{Html, IntoResponse, Response},
};
use secrecy::ExposeSecret;
use serde_json::json;
use std::net::SocketAddr;
use url::form_urlencoded;

use crate::{PageState, render};

/// `GET /login`: the form; a browser on this machine is signed in at once where the options say so.
pub(crate) async fn form(State(state): State<PageState>, request: Request) -> Response {
    let (next, problem) = (given(request.uri(), "next").unwrap_or_else(|| "/".into()), given(request.uri(), "problem"));
    let is_local = is_local(&request);
    drop(request);
    if let Some(key) = &state.options.local_key
        && problem.is_none()
        && is_local
    {
        let body: String = form_urlencoded::Serializer::new(String::new())
            .append_pair("key", key.expose_secret())
            .append_pair("next", &next)
            .finish();
        let sign_in = Request::builder()
            .method(Method::POST)
            .uri("/login")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Body::from(body));
        if let Ok(sign_in) = sign_in {
            return state.call(sign_in).await;
        }
    }
    let provider = &state.options.provider;
    let values = json!({ "next": next, "problem": problem, "provider": provider, "path": "/login", "query": {} });
    Html(render::page("login.html", &values)).into_response()
}

/// A query parameter.
fn given(uri: &Uri, wanted: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    pairs.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
}

/// True if the connection comes from this machine and its `Host` names this machine, which prevents DNS rebinding.
fn is_local(request: &Request) -> bool {
    let peer =
        request.extensions().get::<ConnectInfo<SocketAddr>>().is_some_and(|ConnectInfo(peer)| peer.ip().is_loopback());
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host
        .rsplit_once(':')
        .map_or(host, |(name, port)| if port.bytes().all(|b| b.is_ascii_digit()) { name } else { host });
    peer && matches!(name, "localhost" | "127.0.0.1" | "[::1]")
}
