//! Closed sets of strings in answers and parameters, with the values of the Rust enums: for a field that holds such a
//! string, `#[schema(value_type = closed::StepKind)]`.

use std::borrow::Cow;

use longhaul_domain as domain;
use longhaul_domain::RequestState;
use longhaul_sdk::FailureClass as Class;
use longhaul_store::{
    fleet, history, schedules, sessions,
    tenants::{self, api_keys::Scope},
    webhooks,
};
use strum::VariantArray;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

/// Declares a schema for each set of values.
macro_rules! closed_sets {
    ($($(#[doc = $doc:literal])+ $name:ident: $values:expr;)+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Debug)]
            pub(crate) enum $name {}

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    let values = $values.iter().map(|value| <&'static str>::from(*value));
                    one_of(concat!($($doc),+).trim(), values.collect())
                }
            }

            impl ToSchema for $name {
                fn name() -> Cow<'static, str> {
                    stringify!($name).into()
                }
            }
        )+

        /// Names of all sets.
        #[cfg(test)]
        pub(super) const NAMES: &[&str] = &[$(stringify!($name)),+];
    };
}

closed_sets! {
    /// State of an execution.
    ExecutionStatus: domain::ExecutionStatus::ALL;
    /// Reason why an execution waits.
    WaitReason: domain::WaitReason::ALL;
    /// Class of a failure; it decides whether and when the execution is retried.
    FailureClass: Class::ALL;
    /// Kind of an event of an execution.
    EventKind: EVENT_KINDS;
    /// Kind of a step.
    StepKind: history::journal::StepKind::VARIANTS;
    /// State of a step.
    StepState: history::journal::StepState::VARIANTS;
    /// End of an attempt.
    AttemptOutcome: ATTEMPT_OUTCOMES;
    /// Known state of a call's effect.
    EffectState: history::ledger::EffectState::VARIANTS;
    /// Right of a key.
    KeyScope: Scope::ALL;
    /// Role of a person, or of a key at its creation: a set of scopes.
    Role: domain::Role::ALL;
    /// Kind of a request to a person or a caller.
    RequestKind: domain::RequestKind::ALL;
    /// Kind of a call that waits for its caller: `question` for a call of `ask_caller`.
    PendingCallKind: [domain::RequestKind::Question, domain::RequestKind::ToolCall];
    /// State of an approval; `closed`: the execution ended first.
    ApprovalState: APPROVAL_STATES;
    /// State of a question; `closed`: the execution ended first.
    QuestionState: QUESTION_STATES;
    /// Reason for the end of a session's turn.
    StopReason: sessions::StopReason::ALL;
    /// Status of a project.
    ProjectStatus: domain::ProjectStatus::ALL;
    /// Reason for the pause of a project.
    ProjectPauseReason: PROJECT_PAUSE_REASONS;
    /// Status of a task.
    TaskStatus: domain::TaskStatus::ALL;
    /// Status of a durable run.
    RunStatus: domain::RunStatus::ALL;
    /// Reason for the pause of a schedule.
    SchedulePauseReason: schedules::PauseReason::ALL;
    /// Cause of a firing.
    FiringKind: schedules::FiringKind::ALL;
    /// State of a firing.
    FiringState: schedules::FiringState::ALL;
    /// Reason why a firing started no execution.
    NotStarted: schedules::NotStarted::ALL;
    /// Form in which a webhook is told.
    WebhookKind: webhooks::EndpointKind::ALL;
    /// Type of an event of a webhook.
    WebhookEventType: webhooks::EventType::ALL;
    /// Reason why nothing is sent to a webhook.
    WebhookDisabledBecause: webhooks::DisabledBecause::ALL;
    /// State of a delivery to a webhook.
    DeliveryState: webhooks::DeliveryState::ALL;
    /// State of an API key.
    KeyState: tenants::api_keys::KeyState::ALL;
    /// Kind of an actor in the audit log.
    ActorKind: tenants::audit_log::ActorKind::ALL;
    /// State of a worker.
    WorkerState: fleet::roster::WorkerState::ALL;
    /// Cause of an open circuit breaker.
    BreakerCause: BREAKER_CAUSES;
    /// State of a quarantine group.
    GroupState: GROUP_STATES;
    /// Origin of a concurrency limit.
    LimitSource: LIMIT_SOURCES;
    /// Last result of a provider's health check.
    ProviderHealthState: PROVIDER_HEALTH_STATES;
}

const APPROVAL_STATES: [RequestState; 7] = [
    RequestState::Waiting,
    RequestState::Approved,
    RequestState::Edited,
    RequestState::Replaced,
    RequestState::Rejected,
    RequestState::Expired,
    RequestState::Closed,
];
const QUESTION_STATES: [RequestState; 4] =
    [RequestState::Waiting, RequestState::Answered, RequestState::Expired, RequestState::Closed];

// Sets without a Rust enum. A test compares them with the check constraints of their columns.
pub(super) const ATTEMPT_OUTCOMES: [&str; 8] =
    ["finished", "failed", "parked", "retrying", "released", "drained", "lost", "cancelled"];
pub(super) const BREAKER_CAUSES: [&str; 3] = ["outage", "quota", "operator"];
pub(super) const GROUP_STATES: [&str; 3] = ["shut", "canary", "releasing"];
pub(super) const LIMIT_SOURCES: [&str; 5] = ["definition", "agent", "operator", "session", "sub_agent"];
pub(super) const PROJECT_PAUSE_REASONS: [&str; 2] = ["request", "gate"];
pub(super) const PROVIDER_HEALTH_STATES: [&str; 3] = ["unknown", "up", "down"];

/// A test compares these with the table in docs/reference/api.md.
pub(super) const EVENT_KINDS: [&str; 41] = [
    "submitted",
    "claimed",
    "retrieval",
    "status",
    "turn",
    "text",
    "text_void",
    "call",
    "provider_down",
    "fallback",
    "state_conflict",
    "verdict",
    "correction",
    "reply_cut",
    "compressed",
    "journal_diverged",
    "retrying",
    "parked",
    "released",
    "woken",
    "signal_received",
    "log",
    "progress",
    "budget_raised",
    "approval_requested",
    "approval_decided",
    "approval_expired",
    "question_asked",
    "question_answered",
    "question_expired",
    "tool_call_pending",
    "tool_result_posted",
    "tool_call_expired",
    "child_spawned",
    "child_ended",
    "child_request",
    "child_request_decided",
    "lease_lost",
    "cancel_requested",
    "finished",
    "failed",
];

/// The schema of a string with these values.
fn one_of(description: &str, values: Vec<&'static str>) -> RefOr<Schema> {
    let object = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(values));
    RefOr::T(object.description(Some(description)).into())
}
