//! Answers a request for a screen: reads, renders, or redirects to the sign-in.

use std::collections::BTreeMap;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, Uri, header},
    response::{Html, IntoResponse, Redirect, Response},
};
use futures::future::join_all;
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use crate::{
    PageState,
    client::{Refusal, Visitor},
    live, render,
    screens::{Read, Screen},
};

/// Pages of a list that a screen reads at most.
const MAX_PAGES: usize = 10;
/// What a UUID in the search box may be the id of, in this order: route of the API and screen.
const FOUND_BY_ID: [(&str, &str); 3] =
    [("/v1/executions/", "/executions/"), ("/v1/approvals/", "/approvals/"), ("/v1/questions/", "/questions/")];
/// Screens of ids that tell what they are of.
const FOUND_BY_PREFIX: [(&str, &str); 2] = [("sess_", "/sessions/"), ("proj_", "/projects/")];

/// A request for a screen: enough to render it again for updates.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) screen: &'static Screen,
    pub(crate) visitor: Visitor,
    /// Parameters of the path as they were sent, still percent-encoded.
    parameters: Vec<(&'static str, String)>,
    uri: Uri,
}

/// `GET` of any screen.
pub(crate) async fn show(screen: &'static Screen, State(state): State<PageState>, request: Request) -> Response {
    let asked = Asked {
        screen,
        visitor: Visitor::from(&request),
        parameters: parameters(screen.path, request.uri().path()),
        uri: request.uri().clone(),
    };
    let is_followed = wants_updates(request.headers());
    drop(request);
    if is_followed {
        return live::follow(state, asked);
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
        "status": refusal.status.as_u16(), "code": refusal.code, "detail": refusal.detail, "path": uri.path(), "query": {},
    });
    (refusal.status, Html(render::page("refused.html", &values))).into_response()
}

/// The parameters of a path that matches `route`.
fn parameters(route: &'static str, path: &str) -> Vec<(&'static str, String)> {
    let segments = route.split('/').zip(path.split('/'));
    segments
        .filter_map(|(pattern, segment)| Some((pattern.strip_prefix('{')?.strip_suffix('}')?, segment.to_owned())))
        .collect()
}

impl Asked {
    /// Everything that the template shows.
    ///
    /// # Errors
    /// The API refuses a read that the screen cannot do without.
    pub(crate) async fn values(&self, state: &PageState) -> Result<Value, Refusal> {
        let (viewer, answers) = futures::join!(
            state.read(&self.visitor, "/v1/whoami"),
            join_all(self.screen.reads.iter().map(|read| self.answer(state, read))),
        );
        let viewer = viewer?;
        let query: BTreeMap<String, String> = self.query().collect();
        let parameters: Map<String, Value> =
            self.parameters.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let mut values = json!({ "viewer": viewer, "path": self.uri.path(), "query": query, "parameters": parameters });
        for (read, answer) in self.screen.reads.iter().zip(answers) {
            match answer {
                Ok(answer) => values[read.name] = answer,
                Err(_) if read.is_optional => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(values)
    }

    /// One answer of the API, with all its pages if the screen needs them.
    async fn answer(&self, state: &PageState, read: &Read) -> Result<Value, Refusal> {
        let route = self.route(read);
        let mut answer = state.read(&self.visitor, &route).await?;
        let Some(pages) = read.pages else { return Ok(answer) };
        for _ in 1..MAX_PAGES {
            let next = match &answer[pages.next] {
                Value::Null => break,
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let next: String =
                form_urlencoded::Serializer::new(String::new()).append_pair(pages.parameter, &next).finish();
            let mut more = state.read(&self.visitor, &format!("{route}&{next}")).await?;
            answer[pages.next] = more[pages.next].take();
            if let (Value::Array(all), Value::Array(more)) = (&mut answer[pages.list], more[pages.list].take()) {
                all.extend(more);
            }
        }
        Ok(answer)
    }

    /// The route of a read with the parameters of this request.
    fn route(&self, read: &Read) -> String {
        let mut route = read.route.to_owned();
        for (name, value) in &self.parameters {
            route = route.replace(&format!("{{{name}}}"), value);
        }
        let is_passed = |name: &str| {
            read.passes.iter().any(|passed| *passed == name || (passed.ends_with('.') && name.starts_with(passed)))
        };
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(self.query().filter(|(name, _)| is_passed(name)));
        let query: String = query.finish();
        let separator = match (query.is_empty(), route.contains('?')) {
            (true, _) => "",
            (false, true) => "&",
            (false, false) => "?",
        };
        route + separator + &query
    }

    /// Query parameters that have a value: a form sends its empty fields too.
    fn query(&self) -> impl Iterator<Item = (String, String)> {
        let pairs = form_urlencoded::parse(self.uri.query().unwrap_or_default().as_bytes());
        pairs
            .filter(|(_, value)| !value.trim().is_empty())
            .map(|(name, value)| (name.into_owned(), value.trim().to_owned()))
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screens::SCREENS;
    use axum::body::Body;

    fn asked(path: &str, uri: &str) -> Asked {
        let screen = SCREENS.iter().find(|screen| screen.path == path).unwrap();
        let request = Request::builder().uri(uri).body(Body::empty()).unwrap();
        let parameters = parameters(screen.path, request.uri().path());
        Asked { screen, visitor: Visitor::from(&request), parameters, uri: request.uri().clone() }
    }

    #[test]
    fn parameters_of_path_and_query_reach_the_route() {
        let asked = asked("/executions", "/executions?status=FAILED&agent=&limit=9&metadata.a%26b=%201%20&x=y");
        let route = asked.route(&asked.screen.reads[0]);
        assert_eq!(route, "/v1/executions?limit=50&status=FAILED&metadata.a%26b=1");
    }

    #[test]
    fn path_parameters_stay_encoded() {
        let asked = asked("/agents/{key}", "/agents/a%2Fb%3Fadmin=1?version=2");
        assert_eq!(asked.route(&asked.screen.reads[0]), "/v1/agents/a%2Fb%3Fadmin=1?version=2");
    }
}
