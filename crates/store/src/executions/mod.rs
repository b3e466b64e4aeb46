//! The life of an execution in the store: submit, claim, outcome, and what its caller asks for meanwhile.

pub mod budgets;
pub mod children;
mod claim_bounds;
mod claimed;
pub mod claims;
pub mod control;
pub mod expiry;
pub(crate) mod lease_end;
pub(crate) mod lease_state;
pub mod list_filter;
pub mod outcomes;
pub mod overview;
pub mod planned;
pub mod read;
pub mod signals;
pub mod sub_agents;
pub mod submit;
pub mod submit_answer;
pub mod usage;
