//! The reply of a session's turn as far as it has come, kept when the session is interrupted
//! (docs/adr/0045-sessions.md).
//!
//! The future that reads the reply is dropped at a cancel, so the text is copied here while it arrives. A worker that
//! dies at that moment loses it.
//!
//! In a circle with `writer.rs`: the writer holds the reply so far, which this file records with the end of the lease.
//!
//! In a circle with `turn.rs`: a turn that is asked begins the reply so far, which copies its identity from that turn.

use longhaul_llm::{FinishReason, Message, Usage};
use longhaul_sdk::Step;
use longhaul_shared::domain::ToolCall;
use longhaul_store::history::journal::{Hash, JournalStep, MessageBytes, StepKind};
use serde_json::json;

use super::{Journal, Writer, preview, turn::PendingTurn, turn_body::TurnBody};

/// Most bytes of an unfinished reply that are kept.
const MAX_KEPT_BYTES: usize = 256 * 1024;

/// A reply under way.
#[derive(Debug)]
pub(super) struct ReplySoFar {
    key: Hash,
    /// Sequence number of the turn's step, if it is partly recorded.
    seq: Option<i32>,
    /// Messages that the turn sent for the first time.
    said: Vec<MessageBytes>,
    provider: String,
    model: String,
    text: String,
    /// Calls with complete arguments.
    calls: Vec<ToolCall>,
}

impl ReplySoFar {
    pub(super) fn new(asked: &PendingTurn, provider: &str, model: &str) -> Self {
        let (provider, model) = (provider.to_owned(), model.to_owned());
        let (key, seq, said) = (asked.key, asked.seq, asked.said.clone());
        Self { key, seq, said, provider, model, text: String::new(), calls: Vec::new() }
    }

    fn follow(&mut self, asked: &PendingTurn) {
        self.seq = asked.seq;
        if self.text.len() < MAX_KEPT_BYTES
            && let Some(more) = asked.text.get(self.text.len()..)
        {
            self.text.push_str(more);
        }
        if let Some(more) = asked.calls.get(self.calls.len()..) {
            self.calls.extend_from_slice(more);
        }
    }
}

impl Writer {
    /// Copies what has arrived of the reply `asked`.
    pub(super) fn follow_reply(&mut self, asked: &PendingTurn) {
        if let Some(so_far) = &mut self.so_far {
            so_far.follow(asked);
        }
    }
}

impl Journal {
    /// Adds the unfinished reply of a cancelled attempt to the next commit, before the results of its calls. Does
    /// nothing outside of sessions.
    ///
    /// # Errors
    /// The message cannot be serialized.
    pub fn keep_interrupted_reply(&mut self) -> Step<()> {
        let Some(so_far) = self.writer.so_far.take() else { return Ok(()) };
        let ReplySoFar { key, seq, said, provider, model, mut text, calls } = so_far;
        if text.is_empty() && calls.is_empty() {
            return Ok(());
        }
        text.truncate(text.floor_char_boundary(MAX_KEPT_BYTES));
        let body = TurnBody {
            is_broken: true,
            is_interrupted: true,
            ..TurnBody::new(provider, FinishReason::Other("interrupted".into()))
        };
        let step = self.writer.step(StepKind::Turn, key, &body)?;
        let (shown, count) = (preview(&text), calls.len());
        let reply = self.transcript.append(Message::Assistant { text, calls, native: None })?;
        let seq = seq.unwrap_or(step.seq);
        self.writer.pending.steps.push(JournalStep {
            seq,
            name: Some(model.clone()),
            appends: said.into_iter().chain([reply]).collect(),
            preview: Some(shown),
            ..step
        });
        self.writer.pending.turns += 1;
        self.writer.counters.count_turn(Usage::default());
        self.writer.event(
            "turn",
            json!({ "turn": self.writer.turns, "step": seq, "model": model, "calls": count, "finish": body.finish }),
        );
        Ok(())
    }
}
