//! The agent-execution contract: `/v1/internal/agent-executions` for a backend, `/v1/agent-executions` for its callers.
//!
//! What must hold: nothing below `/v1/internal` is answered without a service token, not even that a path does not exist; every
//! answer is a JSON object of the contract's shape, whoever made it; a request is an ordinary queued execution, and the answer is
//! held until it ends or the wait is over; a request is sent to another engine once at most.

pub(crate) mod admit;
pub(crate) mod answer;
pub(crate) mod engine;
pub(crate) mod guard;
pub(crate) mod internal;
mod judge;
pub(crate) mod options;
pub(crate) mod public;
pub(crate) mod stream;
