//! Requests of executions to people and callers: approvals of calls, questions, and calls that the caller runs.
//!
//! Invariants:
//! - A call is requested once: its key is unique, and a repeated request after a crash finds the same row.
//! - A request is decided once, over the hash of tool and arguments that its decider saw.
//! - Every decision, and every expiry, is a wake (core-rules 3): the fact, `wake_seq + 1` and the runnable row
//!   are one statement.
//! - Waiting requests are closed with their execution.

mod decision;
mod request;
mod statements;

pub use decision::{Decided, Decider, NewDecision, Verdict};
pub use request::{HumanRequest, NewHumanRequest, RequestFilter, call_hash, caller_call_hash};
pub(crate) use statements::decide;
