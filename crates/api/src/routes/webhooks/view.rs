//! Webhooks and deliveries as the API shows them.

use chrono::{DateTime, Utc};
use longhaul_store::webhooks::{Delivery, DeliveryState, DisabledBecause, Endpoint, EndpointKind, EventType};
use longhaul_webhooks::signature::{secret, secret_text};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{openapi::closed, state::ApiState};

/// A webhook.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookView {
    #[schema(example = "0197fca0-1c6e-7aa2-9a40-6a3d7b0f2a11")]
    id: String,
    #[schema(value_type = closed::WebhookKind)]
    kind: &'static str,
    /// Of `slack` the origin alone.
    #[schema(example = "https://example.org/longhaul")]
    url: String,
    description: Option<String>,
    /// Types of events that it is told.
    #[schema(value_type = Vec<closed::WebhookEventType>, example = json!(["execution.failed"]))]
    types: Vec<&'static str>,
    /// False: nothing is sent to it.
    enabled: bool,
    disabled_at: Option<DateTime<Utc>>,
    /// `caller`: a request disabled it. `failures`: nothing was delivered for five days. `gone`: it answered 410.
    #[schema(value_type = Option<closed::WebhookDisabledBecause>)]
    disabled_because: Option<&'static str>,
    /// First failure since the last success; null while it works.
    failing_since: Option<DateTime<Utc>>,
    /// Newest success.
    last_delivered_at: Option<DateTime<Utc>>,
    /// Deliveries that wait, counted to 10,000.
    waiting: i64,
    /// Time until which the secret before signs as well.
    old_secret_until: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
}

impl From<Endpoint> for WebhookView {
    fn from(of: Endpoint) -> Self {
        let (disabled_at, because) = of.disabled.unzip();
        Self {
            id: of.id.to_string(),
            kind: of.kind.as_str(),
            url: of.url,
            description: of.description,
            types: of.types.into_iter().map(EventType::as_str).collect(),
            enabled: disabled_at.is_none(),
            disabled_at,
            disabled_because: because.map(DisabledBecause::as_str),
            failing_since: of.failing_since,
            last_delivered_at: of.delivered_at,
            waiting: of.waiting,
            old_secret_until: of.old_secret_until,
            created_at: of.created_at,
        }
    }
}

/// The webhooks of the caller.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookList {
    pub(super) webhooks: Vec<WebhookView>,
}

/// A webhook with its secret, which no other answer shows.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookSecretView {
    #[serde(flatten)]
    webhook: WebhookView,
    /// Key of its signatures, for a verifier of Standard Webhooks; null of another kind, and in a repeat under the same
    /// `Idempotency-Key`.
    #[schema(example = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
    secret: Option<String>,
    /// In a repeat, the reason why the secret is not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    withheld: Option<String>,
}

impl WebhookSecretView {
    pub(super) fn of(state: &ApiState, endpoint: Endpoint) -> Self {
        let secret = (endpoint.kind == EndpointKind::Standard)
            .then(|| secret_text(&secret(&state.pepper, endpoint.id, endpoint.secret_number)));
        Self { webhook: endpoint.into(), secret, withheld: None }
    }
}

/// An event for one webhook.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeliveryView {
    /// The header `webhook-id`, the same at each attempt.
    id: String,
    /// Type of the event.
    #[schema(value_type = closed::WebhookEventType, example = "execution.finished")]
    r#type: String,
    execution_id: Option<String>,
    /// The approval, question or call that waits for an answer.
    request_id: Option<String>,
    occurred_at: DateTime<Utc>,
    #[schema(value_type = closed::DeliveryState, example = "delivered")]
    state: &'static str,
    attempts: i32,
    next_attempt_at: Option<DateTime<Utc>>,
    delivered_at: Option<DateTime<Utc>>,
    last_attempt_at: Option<DateTime<Utc>>,
    /// Status of the answer to the last attempt; null if there was none.
    last_status: Option<i32>,
    /// Reason why the last attempt failed.
    last_error: Option<String>,
}

impl From<Delivery> for DeliveryView {
    fn from(of: Delivery) -> Self {
        Self {
            id: of.id.to_string(),
            r#type: of.event,
            execution_id: of.execution.map(|id| id.to_string()),
            request_id: of.request.map(|id| id.to_string()),
            occurred_at: of.occurred_at,
            state: DeliveryState::as_str(of.state),
            attempts: of.attempts,
            next_attempt_at: of.next_at,
            delivered_at: of.delivered_at,
            last_attempt_at: of.attempted_at,
            last_status: of.status,
            last_error: of.error,
        }
    }
}

/// Deliveries, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeliveryPage {
    pub(super) deliveries: Vec<DeliveryView>,
    /// Value of `before` for the next page; null at the end.
    pub(super) next_before: Option<String>,
}

/// Deliveries that are sent again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RedeliveredView {
    pub(super) redelivered: u64,
}

/// A test event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TestedView {
    /// Its delivery.
    pub(super) delivery_id: String,
}
