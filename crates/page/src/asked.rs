//! A request for a screen, and the answers of the API that it shows.

use std::collections::BTreeMap;

use axum::{extract::Request, http::Uri};
use futures::future::join_all;
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use crate::{
    PageState,
    client::{Refusal, Visitor},
    screens::{Read, Screen},
};

/// Pages of a list that a screen reads at most.
const MAX_PAGES: usize = 10;
/// A request for a screen: enough to render it again for updates.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) screen: &'static Screen,
    pub(crate) visitor: Visitor,
    /// Parameters of the path as they were sent, still percent-encoded.
    parameters: Vec<(&'static str, String)>,
    pub(crate) uri: Uri,
}

impl Asked {
    pub(crate) fn new(screen: &'static Screen, request: &Request) -> Self {
        let uri = request.uri().clone();
        Self { screen, visitor: Visitor::from(request), parameters: parameters(screen.path, uri.path()), uri }
    }

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
        let mut values = json!({
            "viewer": viewer, "path": self.uri.path(), "query": query, "parameters": parameters,
            "trace_url": state.options.trace_url,
        });
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
                other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => other.to_string(),
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

/// The parameters of a path that matches `route`.
fn parameters(route: &'static str, path: &str) -> Vec<(&'static str, String)> {
    let segments = route.split('/').zip(path.split('/'));
    segments
        .filter_map(|(pattern, segment)| Some((pattern.strip_prefix('{')?.strip_suffix('}')?, segment.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screens::SCREENS;
    use axum::body::Body;

    fn asked(path: &str, uri: &str) -> Asked {
        let screen = SCREENS.iter().find(|screen| screen.path == path).unwrap();
        let request = Request::builder().uri(uri).body(Body::empty()).unwrap();
        Asked::new(screen, &request)
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
