//! Detached calls: accepted at once, run beside the loop, and recorded when they end.
//!
//! They outlive their tick, but not the lease: an attempt that ends in good order waits for them first. A dead
//! worker leaves their intents, and the next attempt resumes those like any other. A detached call has two steps:
//! its own, with the result `accepted`, and one under [`detached_key`] with its outcome.

use longhaul_llm::Message;
use longhaul_sdk::{FailureCode, Step};
use longhaul_store::history::journal::Hash;
use tokio::task::JoinSet;

use super::{Agent, Answered, CompletedCall, Journal};
use crate::messages::hash_parts;

/// Prefix of the message that reports a failed detached call to the model.
pub(super) const DETACHED_FAILED: &str = "[A call that was accepted earlier has failed: ";

/// Running detached calls, and failures not yet reported to the model.
#[derive(Debug, Default)]
pub(crate) struct DetachedCalls {
    running: JoinSet<CompletedCall>,
    untold: Vec<String>,
}

/// Step key of a detached call's outcome.
pub(crate) fn detached_key(call: &Hash) -> Hash {
    hash_parts(&[b"detached", call])
}

impl DetachedCalls {
    /// Number of running calls.
    pub(crate) fn count(&self) -> usize {
        self.running.len()
    }

    /// Runs an accepted call in a task that is dropped with the journal.
    pub(crate) fn start(&mut self, run: impl Future<Output = CompletedCall> + Send + 'static) {
        self.running.spawn(run);
    }

    /// Queues a failure to be reported to the model.
    pub(crate) fn note(&mut self, answered: &Answered) {
        if let Message::Tool { text, is_error: true, .. } = &answered.message {
            self.untold.push(format!("{DETACHED_FAILED}{text}]"));
        }
    }
}

impl Journal {
    /// Records the detached calls that have ended and reports failures to the model, when a tick closes. Skips
    /// failures that the transcript contains: a resumed run meets a failure again after it was reported.
    ///
    /// # Errors
    /// A result cannot be serialized.
    pub(crate) fn collect_detached(&mut self, agent: &Agent) -> Step<()> {
        while let Some(ended) = self.detached.running.try_join_next() {
            self.record_detached(agent, ended)?;
        }
        let untold = std::mem::take(&mut self.detached.untold);
        for text in untold {
            if self.transcript.messages.all().iter().any(|message| message.text() == text) {
                continue;
            }
            self.transcript.say(&text);
            self.detached.untold.push(text);
        }
        Ok(())
    }

    /// Waits for all detached calls, so that the record is complete before the lease ends.
    ///
    /// # Errors
    /// An interrupt, or a result that cannot be serialized.
    pub async fn join_detached(&mut self, agent: &Agent) -> Step<()> {
        if self.detached.running.is_empty() {
            return Ok(());
        }
        while let Some(ended) = self.detached.running.join_next().await {
            self.record_detached(agent, ended)?;
        }
        self.writer.flush().await
    }

    /// Ignores a task that was dropped or panicked: its intent stays recorded.
    fn record_detached(&mut self, agent: &Agent, ended: Result<CompletedCall, tokio::task::JoinError>) -> Step<()> {
        let Ok(mut ran) = ended else { return Ok(()) };
        // The loop does not wait for this call, so its failure must not end the run.
        let unsent = ran.outcome.ends_run.take_if(|failure| failure.code == FailureCode::TOOL_UNREACHABLE);
        ran.outcome.is_unsent = unsent.is_some();
        ran.outcome.ends_run = None;
        let answered = self.record_call(agent, &ran, None)?;
        self.detached.note(&answered);
        Ok(())
    }
}
