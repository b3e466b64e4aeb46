//! Takes a place for the row of a request before its handler runs, and fills it with the outcome.

use axum::{
    RequestExt,
    extract::{MatchedPath, RawPathParams, Request, State},
    http::Method,
    middleware::Next,
    response::{IntoResponse, Response},
};
use longhaul_shared::visible;
use longhaul_store::tenants::audit_log::{AuditEntry, AuditedRequest};

use super::{
    slot::{AuditSlot, Told},
    writer::Place,
};
use crate::{error::ApiError, middleware::RequestId, state::ApiState};

/// Largest number of characters of a target.
const MAX_TARGET: usize = 200;

/// Routes without rows: method and path.
const EXCLUDED: [(&str, &str); 25] = [
    // Submits and messages: too frequent, and the execution or session holds their key and their events.
    ("POST", "/v1/executions"),
    ("POST", "/v1/executions/batch"),
    ("POST", "/v1/executions/{id}/tool-results"),
    ("POST", "/v1/sessions/{id}/messages"),
    ("POST", "/api/chat/{agent_id}"),
    ("POST", "/v1/agent-executions"),
    // The same over the wires of other clients.
    ("POST", "/v1/agui/{agent}"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/responses/compact"),
    ("POST", "/v1/responses/input_tokens"),
    // Work of workers: the execution holds their steps and ends.
    ("POST", "/v1/workers/{id}/heartbeat"),
    ("POST", "/v1/workers/{id}/claim"),
    ("POST", "/v1/workers/{id}/writes"),
    ("POST", "/v1/workers/{id}/ends"),
    ("POST", "/v1/workers/{id}/executions/{execution}/requests"),
    ("POST", "/v1/workers/{id}/executions/{execution}/children"),
    ("POST", "/v1/workers/{id}/executions/{execution}/children/wait"),
    ("POST", "/v1/executions/{id}/signals"),
    // Of the platform's backend, which has a service token and no key.
    ("POST", "/v1/internal/agent-executions"),
    ("POST", "/v1/internal/agent-executions/stream"),
    // They read.
    ("POST", "/v1/indexes/{name}/search"),
    ("POST", "/v1/memory/search"),
];

/// Prefix of the wires' routes within a durable run.
const IN_RUN: &str = "/runs/{run}/attempts/{attempt}";
/// Route with a safe method that signs a person in, which changes an account.
const SIGN_IN: &str = "/login/oidc/callback";

/// A row to be. Dropped without an outcome, because the caller left, it is written without a status.
struct Pending {
    request: Option<AuditedRequest>,
    slot: AuditSlot,
    place: Option<Place>,
}

impl Pending {
    fn end(&mut self, status: Option<u16>) {
        let Told { actor, target } = self.slot.take();
        if let (Some(mut request), Some(place), Some(actor)) = (self.request.take(), self.place.take(), actor) {
            request.target = target.map(|target| bounded(&target)).or(request.target);
            place.fill(AuditEntry::new(request, actor, status));
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.end(None);
    }
}

pub(crate) async fn around(State(state): State<ApiState>, mut request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let Some(route) = route.filter(|route| is_audited(request.method(), route)) else { return next.run(request).await };
    let Some(place) = state.audit.reserve() else { return ApiError::Unavailable.into_response() };
    let target = match request.extract_parts::<RawPathParams>().await {
        Ok(params) => joined(params.iter().map(|(_, value)| value)),
        Err(_) => None,
    };
    let slot = AuditSlot::default();
    let id = request.extensions().get::<RequestId>().cloned().unwrap_or_default();
    let audited = AuditedRequest {
        at: state.store.believed_now(),
        method: request.method().as_str().to_owned(),
        route,
        target,
        request_id: id.told,
        own_request_id: id.own,
    };
    request.extensions_mut().insert(slot.clone());
    let mut pending = Pending { request: Some(audited), slot, place: Some(place) };
    let response = next.run(request).await;
    pending.end(Some(response.status().as_u16()));
    response
}

fn is_audited(method: &Method, route: &str) -> bool {
    let route = route.strip_prefix(IN_RUN).unwrap_or(route);
    (!method.is_safe() || route == SIGN_IN) && !EXCLUDED.iter().any(|(of, path)| method == *of && route == *path)
}

/// The parameters of a path as one target.
fn joined<'a>(values: impl Iterator<Item = &'a str>) -> Option<String> {
    let all = values.collect::<Vec<_>>().join("/");
    (!all.is_empty()).then(|| bounded(&all))
}

fn bounded(target: &str) -> String {
    visible::line(target).chars().take(MAX_TARGET).collect()
}

#[cfg(test)]
mod tests {
    use longhaul_store::tenants::audit_log::{Actor, ActorKind};

    use super::*;

    #[test]
    fn only_listed_changes_are_excluded() {
        let document = crate::openapi();
        for (method, path) in EXCLUDED {
            assert!(document["paths"][path][method.to_lowercase()].is_object(), "no route {method} {path}");
            assert!(!is_audited(&method.parse().unwrap(), path));
        }
        assert!(
            is_audited(&Method::DELETE, "/v1/keys/{id}") && is_audited(&Method::POST, "/v1/executions/{id}/cancel")
        );
        assert!(!is_audited(&Method::GET, "/v1/keys") && !is_audited(&Method::HEAD, "/v1/keys"));
    }

    #[tokio::test]
    async fn row_without_an_answer_has_no_status() {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(2);
        let begin = async |slot: &AuditSlot| {
            let request = AuditedRequest {
                at: chrono::DateTime::UNIX_EPOCH,
                method: "DELETE".into(),
                route: "/v1/keys/{id}".into(),
                target: Some("in the path".into()),
                request_id: "r".into(),
                own_request_id: uuid::Uuid::nil(),
            };
            let place = Place(sender.clone().reserve_owned().await.unwrap());
            Pending { request: Some(request), slot: slot.clone(), place: Some(place) }
        };
        let slot = AuditSlot::default();
        drop(begin(&slot).await);
        assert!(receiver.try_recv().is_err(), "the caller was not authenticated");
        let actor =
            Actor { kind: ActorKind::Key, id: uuid::Uuid::nil(), name: "ci".into(), tenant: uuid::Uuid::nil().into() };
        slot.name_actor(actor.clone());
        drop(begin(&slot).await);
        let left = receiver.try_recv().unwrap();
        assert_eq!((left.status, left.target.as_deref()), (None, Some("in the path")));
        slot.name_actor(actor);
        slot.name_target("created".into());
        let mut answered = begin(&slot).await;
        answered.end(Some(201));
        drop(answered);
        let row = receiver.try_recv().unwrap();
        assert_eq!((row.status, row.target.as_deref()), (Some(201), Some("created")));
        assert!(receiver.try_recv().is_err(), "one row for one request");
    }

    #[test]
    fn targets_are_bounded_and_safe_to_show() {
        assert_eq!(joined(["a", "b\0c"].into_iter()).as_deref(), Some("a/b\\u{0}c"));
        // Nothing in it steers a terminal or makes up a row.
        assert_eq!(joined(["x\u{1b}[2J\nFAKE ROW"].into_iter()).as_deref(), Some("x\\u{1b}[2J FAKE ROW"));
        assert_eq!(joined([].into_iter()), None);
        assert_eq!(joined([&*"é".repeat(300)].into_iter()).unwrap().chars().count(), MAX_TARGET);
    }
}
