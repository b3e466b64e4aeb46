//! Records the reply of a session's turn as far as it has come, when the session is interrupted
//! (docs/adr/0045-sessions.md).

use longhaul_llm::{FinishReason, Message, Usage};
use longhaul_sdk::Step;
use longhaul_store::history::journal::{JournalStep, StepKind};
use serde_json::json;

use super::{Journal, Writer, preview, reply_so_far::ReplySoFar, turn::PendingTurn, turn_body::TurnBody};

impl Writer {
    /// Copies what has arrived of the reply `asked`.
    pub(super) fn follow_reply(&mut self, asked: &PendingTurn) {
        if let Some(so_far) = &mut self.so_far {
            so_far.follow(asked.seq, &asked.text, &asked.calls);
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
        let Some(mut so_far) = self.writer.so_far.take() else { return Ok(()) };
        let text = so_far.take_text();
        let ReplySoFar { key, seq, said, provider, model, calls, .. } = so_far;
        if text.is_empty() && calls.is_empty() {
            return Ok(());
        }
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
