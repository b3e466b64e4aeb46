//! Sessions (docs/adr/0045-sessions.md): a long-lived conversation with one agent. Each message of a caller becomes an
//! execution; one of them has the session's turn, the others wait with `concurrency_limit`. The end of an execution
//! gives the turn on, in its own transaction (`longhaul_session_turn_ends`).

mod fold;
mod read;
mod send;
mod transcript;

pub use read::{Begun, NewSession, Session, SessionState, StopReason};
pub use send::{MAX_QUEUED, MAX_TRANSCRIPT_BYTES, MAX_TURNS, Sent, Stopped};
pub use transcript::SessionMessage;

/// Policy for a message that arrives while another is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBusy {
    /// The message is refused.
    Reject,
    /// The message waits for its turn.
    #[default]
    Enqueue,
    /// The execution under way is cancelled; what was said stays.
    Interrupt,
    /// The execution under way is cancelled, and its turns are left out of the transcript.
    Rollback,
}

impl OnBusy {
    /// Name as stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Enqueue => "enqueue",
            Self::Interrupt => "interrupt",
            Self::Rollback => "rollback",
        }
    }

    /// The policy of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Reject, Self::Enqueue, Self::Interrupt, Self::Rollback].into_iter().find(|own| own.as_str() == name)
    }
}
