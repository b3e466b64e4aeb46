//! Webhooks: endpoints of tenants, and the outbox of what they are told (docs/design/webhooks.md).
//!
//! Invariants: a row of `ends` is written by the transaction of the transition that it tells of, and the reaction
//! `webhook` makes a delivery of it for each endpoint; one process at a time delivers to an endpoint; a delivery stays
//! due until it was delivered, or 72 hours have passed.

mod channels;
mod deliveries;
mod endpoints;
mod lanes;
mod tell;

use longhaul_domain::TenantId;
use strum::{EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

pub use channels::Channel;
pub use deliveries::{Delivery, DeliveryState};
pub use endpoints::{Created, DisabledBecause, Endpoint, WrittenEndpoint};
pub use lanes::{Due, HeldLanes, Lane, LaneState, Outcome, Settled};

/// Type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
pub enum EventType {
    #[strum(serialize = "execution.finished")]
    ExecutionFinished,
    #[strum(serialize = "execution.failed")]
    ExecutionFailed,
    /// It killed its workers again and again.
    #[strum(serialize = "execution.quarantined")]
    ExecutionQuarantined,
    #[strum(serialize = "approval.requested")]
    ApprovalRequested,
    #[strum(serialize = "question.asked")]
    QuestionAsked,
    /// A call waits for its result from the caller.
    #[strum(serialize = "tool_call.requested")]
    ToolCallRequested,
    /// A person asked for it, to try the endpoint. It is sent to every endpoint.
    #[strum(serialize = "webhook.test")]
    Test,
}

longhaul_domain::named!(EventType);

impl EventType {
    /// Types that an endpoint can choose.
    pub fn choices() -> impl Iterator<Item = Self> {
        Self::VARIANTS.iter().copied().filter(|of| *of != Self::Test)
    }
}

/// Form in which an endpoint is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum EndpointKind {
    /// A signed request with a thin event.
    Standard,
    /// A message to an incoming webhook of Slack, or of a server that takes the same.
    Slack,
    /// An e-mail to each recipient.
    Email,
}

longhaul_domain::named!(EndpointKind);

/// An endpoint of one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointOf {
    pub tenant: TenantId,
    pub id: Uuid,
}
