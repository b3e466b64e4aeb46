//! What is said to the model beside its prompt, and whether a resumed attempt says what its record does.
//!
//! A record is followed whatever today's code says (core-rules 7); where the two differ, that is told.

use longhaul_sdk::Step;
use longhaul_shared::store::journal::JournalStep;
use serde_json::json;

use super::{Journal, detached::DETACHED_FAILED, recorded_message};
use crate::llm::Message;

/// A user message on its way to the next turn.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) text: String,
    by: Speaker,
}

/// Who says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaker {
    /// The code of the definition: the same on every resume, unless the code was changed.
    Definition,
    /// Longhaul itself.
    Loop,
}

impl Journal {
    /// Adds a user message that the next turn sends.
    pub(crate) fn say(&mut self, message: &str) {
        self.said.push(Said { text: message.to_owned(), by: Speaker::Loop });
    }

    /// Adds a user message of the definition's own code.
    pub(crate) fn say_own(&mut self, message: &str) {
        self.said.push(Said { text: message.to_owned(), by: Speaker::Definition });
    }

    /// Tells when the definition ended before its record did: its code asks for less than it did.
    pub(crate) fn note_unread(&mut self) {
        if let Some(next) = self.recorded.front() {
            let data = json!({ "expected": "end", "recorded": next.kind.as_str(), "skipped": self.recorded.len() });
            self.diverged(data);
        }
    }

    /// Whether the definition says before this turn what it said when the turn was asked. What Longhaul said beside it is left out: of
    /// two resumes one may find a detached failure earlier than the other.
    pub(super) fn check_said(&mut self, step: &JournalStep) -> Step<()> {
        let (own, notices): (Vec<Said>, Vec<Said>) =
            std::mem::take(&mut self.said).into_iter().partition(|said| said.by == Speaker::Definition);
        let messages = step.appends.iter().map(recorded_message).collect::<Step<Vec<_>>>()?;
        let is_notice =
            |text: &str| text.starts_with(DETACHED_FAILED) || notices.iter().any(|notice| notice.text == text);
        let recorded = messages.iter().filter_map(|(message, _)| match message {
            Message::User { text } if !is_notice(text) => Some(text.as_str()),
            Message::User { .. }
            | Message::System { .. }
            | Message::Given { .. }
            | Message::Assistant { .. }
            | Message::Tool { .. } => None,
        });
        // What a fork shares was said to another input.
        if !self.place.is_fork && !recorded.eq(own.iter().map(|said| said.text.as_str())) {
            self.diverged(json!({ "turn": self.turns, "part": "message" }));
        }
        Ok(())
    }
}
