//! Replays a recorded step, or executes and records it: the loop has no other access to the outside world.
//!
//! Invariants:
//! - A recorded step is never executed again; resume replays the record and rebuilds nothing (core-rules 7).
//! - A step is committed before anything with an effect acts on its result (the last turn may be committed with the
//!   end of its run, docs/design/journal.md); the intent of a side-effecting call is committed before
//!   it runs.
//! - Steps without cost or side effect (prompt, verdict, correction) wait for the next commit; if they are lost,
//!   they are repeated.
//! - Before anything is launched the lease must be fresh and the worker not draining
//!   ([`AttemptControl::may_launch`](crate::lease::AttemptControl::may_launch)).

mod replay;
mod transcript;
mod writer;

mod aside;
pub(crate) mod budget;
mod call_record;
mod call_results;
mod calls;
mod children;
mod commit;
mod compress;
mod context;
mod counters;
mod detached;
mod files;
mod interrupted;
mod limits;
pub(crate) mod model_telemetry;
mod people;
mod portion;
mod progress;
mod prompt;
mod provider;
mod record_text;
mod reply;
mod reply_so_far;
mod retrieval;
mod secrets;
mod servers;
mod session;
mod turn;
mod turn_body;
mod verdict;

use longhaul_domain::{CallError, CallErrorKind};
use longhaul_llm::Message;
use longhaul_references::{CallWrite, Method, Path};
use longhaul_sdk::{Failure, FailureCode, Interrupt, Step, StepError};
use longhaul_store::{
    StoreError,
    history::journal::{Hash, JournalStep, MessageBytes, StoredJournal},
};
use serde::Deserialize;
use serde_json::{Value, json};

pub use budget::fold_budget;
pub(crate) use call_record::{Answered, RanAs, Recalled};
pub(crate) use call_results::CompletedCall;
pub(crate) use calls::call_key;
pub(crate) use children::{NotStarted, Task};
use detached::DetachedCalls;
pub(crate) use detached::detached_key;
pub(crate) use people::Wanted;
use portion::Portions;
pub(crate) use progress::{Stage, State};
pub use replay::Replay;
use servers::Servers;
pub use transcript::Transcript;
pub(crate) use turn::{NextTurn, PendingTurn, Turn};
pub use writer::{ExecutionScope, Parked, Writer};

use super::Agent;
use crate::messages::hash_parts;

/// Maximum characters of a step's preview.
const PREVIEW_CHARS: usize = 200;

/// An attempt's view of its execution's journal. A method of this type replays or records a step, which changes the
/// transcript; what concerns one of its parts alone is a method of that part.
pub struct Journal {
    pub replay: Replay,
    pub writer: Writer,
    pub transcript: Transcript,
    pub(crate) detached: DetachedCalls,
    pub servers: Servers,
    /// The last refusal of an answer: `validator` and `feedback`.
    pub complaint: Option<Value>,
    /// True if the last turn may wait for the statement that ends the lease: the run ends with the answer to that turn
    /// and its validators have no side effects (docs/adr/0041-one-commit-ends-a-run.md).
    pub ends_in_one_commit: bool,
    /// Calls of the closed ticks that count against the run's limit on calls.
    pub(crate) counted_calls: u32,
}

impl Journal {
    /// Opens the journal `stored` of an execution for the attempt that `writer` records.
    ///
    /// # Errors
    /// A stored step cannot be read.
    pub fn new(stored: StoredJournal, mut writer: Writer) -> Step<Self> {
        let mut servers = Servers::default();
        for step in &stored.steps {
            writer.continue_from(step);
            servers.note(step)?;
        }
        if !stored.steps.is_empty() {
            writer.portions = Portions::Unread;
        }
        Ok(Self {
            replay: Replay::new(stored.steps),
            writer,
            transcript: Transcript::new(),
            detached: DetachedCalls::default(),
            servers,
            complaint: None,
            ends_in_one_commit: false,
            counted_calls: 0,
        })
    }

    /// True if a turn without calls is committed with the end of the lease, not on its own.
    pub(crate) fn is_last_turn_deferred(&self) -> bool {
        self.ends_in_one_commit && self.detached.count() == 0
    }

    /// Makes a person's approval readable by every call.
    ///
    /// # Errors
    /// The value exceeds the state's limits.
    pub(crate) fn open_gate(&mut self, path: &Path, value: Value) -> Result<(), CallError> {
        let write = CallWrite {
            tick: self.writer.turns,
            call_id: "approval".to_owned(),
            instance: None,
            paths: vec![path.clone()],
            method: Method::Set,
            value,
        };
        let written = self.transcript.state.write(write);
        written.map(drop).map_err(|error| CallError::new(CallErrorKind::Rejected, error.to_string()))
    }

    /// Reports state paths that two calls of the tick set, of which the later one wins.
    pub(crate) fn note_conflicts(&mut self) {
        for conflict in self.transcript.state.conflicts(self.writer.turns) {
            self.writer.event("state_conflict", json!(conflict));
        }
    }
}

fn message_bytes(message: &Message) -> Step<(Hash, MessageBytes)> {
    let bytes = message.to_bytes().map_err(|error| corrupt(&error))?;
    Ok((hash_parts(&[&bytes]), bytes.into()))
}

fn recorded_message(bytes: &MessageBytes) -> Step<(Message, Hash)> {
    Ok((Message::from_bytes(bytes).map_err(|error| corrupt(&error))?, hash_parts(&[bytes])))
}

fn read_body<T: for<'de> Deserialize<'de>>(step: &JournalStep) -> Step<T> {
    Ok(serde_json::from_slice(&step.body).map_err(|error| corrupt(&error))?)
}

fn preview(text: &str) -> String {
    text.chars().take(PREVIEW_CHARS).collect()
}

fn corrupt(reason: &dyn std::fmt::Display) -> Failure {
    Failure::permanent(FailureCode::INTERNAL_ERROR, format!("the journal cannot be written or read: {reason}"))
}

/// Maps a failed store statement to the attempt's interrupt or failure.
pub fn from_store(error: StoreError) -> StepError {
    match error {
        // The attempt can prove nothing about its lease any more; the lease decides which worker continues.
        StoreError::LeaseLost
        | StoreError::LeaseStale
        | StoreError::Closed
        | StoreError::TooMuch(_)
        | StoreError::Unavailable(_)
        | StoreError::Unreachable(_)
        | StoreError::Misconfigured(_)
        | StoreError::TimedOut(_) => Interrupt::LeaseLost.into(),
        StoreError::NotFound(_) | StoreError::Conflict(_) | StoreError::Rejected(_) | StoreError::Corrupt(_) => {
            tracing::error!(error = %error, "the store refused a statement of an attempt");
            Failure::permanent(FailureCode::INTERNAL_ERROR, "the store could not read or write what the attempt needs")
                .into()
        }
    }
}
