//! What executions want of people: approvals of their calls, and answers to their questions.
//!
//! What must hold:
//! - A call is put before people once: its key is unique, and asking again after a crash finds the same row.
//! - A request is decided once, over the hash of tool and arguments that its decider saw.
//! - Every decision, and every expiry, is a wake (core-rules 3): the fact, `wake_seq + 1` and the runnable row are one statement.
//! - What waits for people ends with its execution.

mod decision;
mod request;
mod statements;

pub use decision::{Decided, Decider, NewDecision, Verdict};
pub use request::{HumanRequest, NewHumanRequest, RequestFilter, call_hash};
