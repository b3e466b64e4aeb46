//! Executions of the agent-execution contract: the same loop, journal and leases as any other, over what the platform's snapshot binds.
//!
//! What differs is chosen once, when the agent is prepared, and is asked through `agent::profile`. What must hold:
//! - Only the snapshot says where anything is; a resumed run asks the same model and shows the same tools (both are pinned).
//! - A secret is resolved when it is needed and is in nothing that is stored, told or logged.
//! - Every call that the record lists is noted in the step that holds its result, a failed one in a spent step.
//!
//! Decisions: docs/adr/0016-contract-engine.md.

mod failure;
mod item;
mod model;
mod opening;
pub(crate) mod platform;
mod retrieval;
mod surface;
mod tools;

pub(crate) use item::Noted;
use longhaul_sdk::{
    Failure, FailureCode,
    spec::{AgentOverrides, RetrySpec},
};
use longhaul_shared::domain::{RetryPolicy, contract::ContractRun};
pub(crate) use platform::Platform;
pub(crate) use retrieval::{Retrieval, Retrieved};
pub(crate) use surface::{Contract, prepare};
pub(crate) use tools::ContractTool;

/// The run that stored overrides describe; `None` for an execution of Longhaul's own surface.
///
/// # Errors
/// They cannot be read.
pub(crate) fn run_of(overrides: &AgentOverrides) -> Result<Option<ContractRun>, Failure> {
    ContractRun::of(overrides).map_err(|error| {
        Failure::permanent(FailureCode::INTERNAL_ERROR, format!("the stored contract run cannot be read: {error}"))
    })
}

/// What is retried: nothing on the contract surface, so that its codes arrive while the caller waits, unless the agent opted in.
pub(crate) fn retry_policy(overrides: Option<&str>, spec: &RetrySpec) -> RetryPolicy {
    let overrides = overrides.and_then(|text| serde_json::from_str::<AgentOverrides>(text).ok());
    match overrides.and_then(|overrides| run_of(&overrides).ok().flatten()) {
        Some(run) if !run.retries => RetryPolicy::none(),
        Some(_) | None => RetryPolicy::from(spec),
    }
}
