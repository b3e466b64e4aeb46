//! Sessions (docs/design/sessions.md): a long-lived conversation with one agent. Each message of a caller becomes an
//! execution; one of them has the session's turn, the others wait with `concurrency_limit`. The end of an execution
//! gives the turn on, in its own transaction (`longhaul_pass_turn`), or right after it if the session is locked.

mod activity;
pub(crate) mod erasure;
mod fold;
mod read;
mod send;
mod transcript;
mod turn;

pub use activity::{ActiveCall, Activity, NumberedTurn, SubAgent, TurnUnderWay};
pub use erasure::ERASED;
pub use fold::SessionMessage;
pub use read::{Begun, NewSession, Session, SessionDeletion, SessionState, StopReason};
pub use send::{Arrival, MAX_MESSAGES, MAX_QUEUED, MAX_TRANSCRIPT_BYTES, Sent, SessionLimit, Stopped};
