//! Calls that nobody waits for: accepted at once, run beside whatever the loop does next, and recorded when they end.
//!
//! They outlive their tick, but not the lease: an attempt that ends in good order first waits for them. A worker that dies leaves
//! their intents, which the next one takes up like those of any other call. Such a call has two steps: its own, with the result
//! `accepted`, and a second one under [`detached_key`] for what became of it.

use longhaul_sdk::{FailureCode, Step};
use longhaul_shared::store::journal::Hash;
use tokio::task::JoinSet;

use super::{Agent, Answered, Journal, Ran};
use crate::{agent::transcript::hash_parts, llm::Message};

/// How the model is told of one that failed.
pub(super) const DETACHED_FAILED: &str = "[A call that was accepted earlier has failed: ";

/// What runs unwatched, and what the model has yet to be told of it.
#[derive(Debug, Default)]
pub(super) struct DetachedCalls {
    running: JoinSet<Ran>,
    untold: Vec<String>,
}

/// Under which key what became of a detached call is recorded.
pub(crate) fn detached_key(call: &Hash) -> Hash {
    hash_parts(&[b"detached", call])
}

impl Journal {
    /// How many run.
    pub(crate) fn detached_count(&self) -> usize {
        self.detached.running.len()
    }

    /// Runs a call that was accepted. Its task ends with the journal.
    pub(crate) fn detach(&mut self, run: impl Future<Output = Ran> + Send + 'static) {
        self.detached.running.spawn(run);
    }

    /// Keeps a failure for the model.
    pub(crate) fn note_detached(&mut self, answered: &Answered) {
        if let Message::Tool { text, is_error: true, .. } = &answered.message {
            self.detached.untold.push(format!("{DETACHED_FAILED}{text}]"));
        }
    }

    /// When a tick closes: records what has ended, and tells the model of failures. What the transcript holds was told already; a
    /// resumed run finds the failure again, and the words with it.
    ///
    /// # Errors
    /// A result cannot be written.
    pub(crate) fn collect_detached(&mut self, agent: &Agent) -> Step<()> {
        while let Some(ended) = self.detached.running.try_join_next() {
            self.record_detached(agent, ended)?;
        }
        let untold = std::mem::take(&mut self.detached.untold);
        for text in untold {
            if self.transcript.messages().iter().any(|message| message.text() == text) {
                continue;
            }
            self.say(&text);
            self.detached.untold.push(text);
        }
        Ok(())
    }

    /// Waits for everything that runs unwatched, so that the lease ends with a whole record.
    ///
    /// # Errors
    /// An interrupt, or a result that cannot be written.
    pub(crate) async fn join_detached(&mut self, agent: &Agent) -> Step<()> {
        if self.detached.running.is_empty() {
            return Ok(());
        }
        while let Some(ended) = self.detached.running.join_next().await {
            self.record_detached(agent, ended)?;
        }
        self.flush().await
    }

    /// A task that did not end by itself was dropped with the worker's runtime; its intent stays on the record.
    fn record_detached(&mut self, agent: &Agent, ended: Result<Ran, tokio::task::JoinError>) -> Step<()> {
        let Ok(mut ran) = ended else { return Ok(()) };
        // Nobody waits for it, so it cannot end the run either.
        let unsent = ran.outcome.ends_run.take_if(|failure| failure.code == FailureCode::TOOL_UNREACHABLE);
        ran.outcome.is_unsent = unsent.is_some();
        ran.outcome.ends_run = None;
        let answered = self.record_call(agent, &ran, None)?;
        self.note_detached(&answered);
        Ok(())
    }
}
