//! The calls of a reply once nothing blocks them any more: the policy and the people that admit them, the tools that
//! the loop answers itself, and the browser and files that others work on. `orchestrator` decides when, `ready_call.rs`
//! has what the journal shares with this folder.

// Admission.
pub(crate) mod admission;
mod approval;
pub(crate) mod approval_gate;
pub mod policy;

// Tools that the loop answers.
mod ask_caller;
mod caller_tools;
pub(crate) mod host_tools;
pub mod load_skill;
mod memory;
mod plan_project;

// What other tools use and leave.
pub(crate) mod artifacts;
pub(crate) mod browser;
