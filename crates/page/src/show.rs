//! Answers a request for a screen: reads, renders, or redirects to the sign-in.

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, Uri, header},
    response::{Html, IntoResponse, Redirect, Response},
};
use serde_json::{Value, json};
use url::form_urlencoded;

use crate::{
    PageState,
    asked::Asked,
    client::{Refusal, Visitor},
    live, render,
    screens::Screen,
};

/// What a UUID in the search box may be the id of, in this order: route of the API and screen.
const FOUND_BY_ID: [(&str, &str); 3] =
    [("/v1/executions/", "/executions/"), ("/v1/approvals/", "/approvals/"), ("/v1/questions/", "/questions/")];
/// Screens of ids that tell what they are of.
const FOUND_BY_PREFIX: [(&str, &str); 2] = [("sess_", "/sessions/"), ("proj_", "/projects/")];

/// `GET` of any screen.
pub(crate) async fn show(screen: &'static Screen, State(state): State<PageState>, request: Request) -> Response {
    let asked = Asked::new(screen, &request);
    let is_followed = wants_updates(request.headers());
    drop(request);
    if is_followed {
        return live::follow(state, asked).await;
    }
    match asked.values(&state).await {
        Ok(values) => Html(render::page(screen.template, &values)).into_response(),
        Err(refusal) => refused(&asked.uri, &refusal),
    }
}

/// An `EventSource` asks for a stream of the same screen.
fn wants_updates(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()) == Some("text/event-stream")
}

fn refused(uri: &Uri, refusal: &Refusal) -> Response {
    if refusal.is_unauthenticated() {
        let next = uri.path_and_query().map_or("/", |path| path.as_str());
        let query: String = form_urlencoded::Serializer::new(String::new()).append_pair("next", next).finish();
        return Redirect::to(&format!("/login?{query}")).into_response();
    }
    let values = json!({
        "status": refusal.status.as_u16(), "code": refusal.code, "detail": refusal.detail, "path": uri.path(),
        "query": {},
    });
    (refusal.status, Html(render::page("refused.html", &values))).into_response()
}

/// `GET /find?q=`: goes to what has that id, or to the executions of what has that key.
pub(crate) async fn find(State(state): State<PageState>, request: Request) -> Response {
    let (visitor, uri) = (Visitor::from(&request), request.uri().clone());
    drop(request);
    let pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let wanted = pairs.filter(|(name, _)| name == "q").map(|(_, value)| value.trim().to_owned()).next();
    let wanted = wanted.unwrap_or_default();
    let is_plain = wanted.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if let Some((_, screen)) = FOUND_BY_PREFIX.iter().find(|(prefix, _)| is_plain && wanted.starts_with(prefix)) {
        return Redirect::to(&format!("{screen}{wanted}")).into_response();
    }
    if wanted.len() == 36 && wanted.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
        for (route, screen) in FOUND_BY_ID {
            match state.read(&visitor, &format!("{route}{wanted}")).await {
                Ok(_) => return Redirect::to(&format!("{screen}{wanted}")).into_response(),
                Err(refusal) if refusal.is_unauthenticated() => return refused(&uri, &refusal),
                Err(_) => {}
            }
        }
        let detail = format!("Nothing that you may see has the id {wanted}.");
        let refusal = Refusal { status: StatusCode::NOT_FOUND, code: "not_found".into(), detail };
        return refused(&uri, &refusal);
    }
    let name = match state.read(&visitor, "/v1/agents?limit=200").await {
        Ok(agents) if has_key(&agents, &wanted) => "agent",
        Ok(_) | Err(_) => "definition",
    };
    let query: String = form_urlencoded::Serializer::new(String::new()).append_pair(name, &wanted).finish();
    Redirect::to(&format!("/executions?{query}")).into_response()
}

fn has_key(list: &Value, key: &str) -> bool {
    list["items"].as_array().is_some_and(|items| items.iter().any(|item| item["key"] == key))
}
