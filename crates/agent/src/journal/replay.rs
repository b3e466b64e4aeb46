//! What the journal held when the attempt started, and how far the attempt has followed it.

use std::collections::{HashMap, VecDeque};

use longhaul_store::history::journal::{Hash, JournalStep, StepKind, StepState};
use serde_json::json;

use super::Writer;

/// The recorded steps that the attempt has not repeated yet.
pub struct Replay {
    /// In order, without spent steps and calls; calls are looked up by key.
    pub(super) steps: VecDeque<JournalStep>,
    pub(super) calls: HashMap<Hash, JournalStep>,
    /// Call steps after a partly recorded turn.
    pub(super) begun_steps: Vec<JournalStep>,
    /// Number of recorded retrieval steps, which precede the prompt.
    pub(super) retrievals: i32,
}

impl Replay {
    pub(super) fn new(stored: Vec<JournalStep>) -> Self {
        let begun_turn = |step: &JournalStep| step.kind == StepKind::Turn && step.state == StepState::Intent;
        let begun_at = stored.iter().rfind(|step| begun_turn(step)).map(|step| step.seq);
        let mut replay = Self { steps: VecDeque::new(), calls: HashMap::new(), begun_steps: Vec::new(), retrievals: 0 };
        for step in stored {
            replay.retrievals += i32::from(step.kind == StepKind::Retrieval);
            if step.kind == StepKind::Call && begun_at.is_some_and(|at| step.seq > at) {
                replay.begun_steps.push(step.clone());
            }
            match (step.state, step.kind) {
                // Looked up by the call that asked for it (`Writer::aggregation`).
                (StepState::Spent, _) | (_, StepKind::Aggregation) => {}
                (StepState::Live | StepState::Intent, StepKind::Call) => {
                    replay.calls.insert(step.key, step);
                }
                (StepState::Live | StepState::Intent, _) => replay.steps.push_back(step),
            }
        }
        replay
    }

    /// The next recorded step of `kind`. Skipped steps of other kinds mean that the code now takes another path
    /// than the record: emits `journal_diverged` and continues from the record.
    pub(super) fn next(&mut self, kind: StepKind, writer: &mut Writer) -> Option<JournalStep> {
        let at = self.steps.iter().position(|step| step.kind == kind)?;
        if at > 0 {
            let skipped = self.steps[0].kind.as_str();
            writer.diverged(json!({ "expected": kind.as_str(), "recorded": skipped, "skipped": at }));
        }
        self.steps.drain(..=at).next_back()
    }

    /// The next recorded step, if it is of `kind`.
    pub(super) fn next_if(&mut self, kind: StepKind) -> Option<JournalStep> {
        self.steps.pop_front_if(|step| step.kind == kind)
    }

    /// Reports a definition that ended before its record did: its code now asks for fewer turns.
    pub fn note_unread(&self, writer: &mut Writer) {
        if let Some(next) = self.steps.front() {
            writer.diverged(json!({ "expected": "end", "recorded": next.kind.as_str(), "skipped": self.steps.len() }));
        }
    }
}
