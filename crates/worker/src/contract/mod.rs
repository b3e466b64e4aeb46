//! Executions of the agent-execution contract: the same loop, journal and leases as any other execution, over
//! the bindings of the platform's snapshot.
//!
//! The differences are selected once, when the agent is prepared, as its `Profile`. Invariants:
//!
//! - Only the snapshot holds addresses. A resumed run uses the same model and tools, which are pinned.
//! - A secret is resolved when it is needed, and is never stored, returned or logged.
//! - Every call listed in the record is noted in the step of its result, a failed one in a spent step.
//!
//! Decisions: docs/design/contract.md.

mod failure;
mod model;
mod opening;
pub(crate) mod platform;
mod retrieval;
mod surface;
mod tools;

use longhaul_contract::ContractRun;
use longhaul_domain::RetryPolicy;
use longhaul_sdk::{
    Failure, FailureCode,
    spec::{AgentOverrides, RetrySpec},
};
pub(crate) use platform::Platform;
pub(crate) use surface::prepare;

/// The contract run in stored overrides; `None` for an execution of Longhaul's own API.
///
/// # Errors
/// The overrides cannot be parsed.
pub(crate) fn run_of(overrides: &AgentOverrides) -> Result<Option<ContractRun>, Failure> {
    ContractRun::of(overrides).map_err(|error| {
        Failure::permanent(FailureCode::INTERNAL_ERROR, format!("the stored contract run cannot be read: {error}"))
    })
}

/// Returns the retry policy. The contract does not retry, so that its codes arrive while the caller waits,
/// unless the agent opts in.
pub(crate) fn retry_policy(overrides: Option<&str>, spec: &RetrySpec) -> RetryPolicy {
    let overrides = overrides.and_then(|text| serde_json::from_str::<AgentOverrides>(text).ok());
    match overrides.and_then(|overrides| run_of(&overrides).ok().flatten()) {
        Some(run) if !run.retries => RetryPolicy::none(),
        Some(_) | None => RetryPolicy::from(spec),
    }
}
