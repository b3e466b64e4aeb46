//! The agent-execution contract: `/v1/internal/agent-executions` for a backend, `/v1/agent-executions` for its callers.
//!
//! Invariants: without a service token nothing below `/v1/internal` is answered, not even with 404; every answer but a
//! stream is a JSON object of the contract's shape, also those of the framework; a request is an ordinary queued
//! execution, whose answer is held until it ends or the wait is over; a request is sent to another engine at most once.

pub(crate) mod admit;
pub(crate) mod answer;
pub(crate) mod engine;
pub(crate) mod guard;
pub(crate) mod internal;
mod judge;
pub(crate) mod options;
pub(crate) mod public;
pub(crate) mod stream;
