//! Plain data and pure functions: no IO, no clock, no async.

pub mod addresses;
pub mod ascii_json;
pub mod call;
pub mod cut;
pub mod deadline;
pub mod formats;
pub mod human_request;
pub mod ids;
pub mod input_parts;
pub mod limits;
pub mod message;
mod named;
pub mod noted;
pub mod offers;
pub mod on_busy;
pub mod price;
pub mod project;
#[cfg(test)]
mod properties;
pub mod queue_name;
pub mod redaction;
pub mod requirements;
pub mod retrieval;
pub mod retry;
pub mod role;
pub mod run_status;
pub mod runtime_profile;
pub mod schedule;
pub mod secret_reference;
pub mod status;
pub mod submit_limits;
pub mod wire_run;

pub use call::{CallError, CallErrorKind, ToolCall};
pub use cut::cut;
pub use deadline::MAX_DEADLINE;
pub use formats::JOURNAL_FORMAT;
pub use human_request::{RequestKind, RequestState};
pub use ids::{
    AgentVersionId, ApiKeyId, DefinitionVersionId, EpisodeId, ExecutionId, FileId, HumanRequestId, InvalidId,
    LeaseToken, ProjectId, RunId, ScheduleId, SessionId, SkillVersionId, TenantId, WorkerId,
};
pub use limits::LimitKey;
pub use named::UnknownName;
pub use offers::Offers;
pub use on_busy::OnBusy;
pub use price::{CallTokens, Price, Prices, ProviderPrices};
pub use project::{ExecutionStrategy, Plan, ProjectStatus, TaskStatus};
pub use queue_name::{DEFAULT_QUEUE, INTERACTIVE_QUEUE, InvalidQueueName, QUEUE_PATTERN, QueueName};
pub use requirements::ServeKey;
pub use retry::{RetryCounters, RetryPolicy};
pub use role::Role;
pub use run_status::RunStatus;
pub use runtime_profile::RuntimeProfile;
pub use status::{ExecutionStatus, Runnable, WaitReason};

/// Named by [`named!`], whose users need not depend on it.
#[cfg(feature = "sqlx")]
#[doc(hidden)]
pub use sqlx;
