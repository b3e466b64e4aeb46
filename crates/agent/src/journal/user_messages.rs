//! Messages sent to the model beside its prompt, and the check that a resumed attempt sends the recorded ones.
//!
//! A resume follows the record even if the code now says something else (core-rules 7), and reports the
//! difference.

use longhaul_llm::Message;
use longhaul_sdk::Step;
use longhaul_store::journal::JournalStep;
use serde_json::json;

use super::{Journal, detached::DETACHED_FAILED, recorded_message};

/// A user message for the next turn.
#[derive(Debug)]
pub(super) struct UserMessage {
    pub(super) text: String,
    by: Speaker,
}

/// Source of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaker {
    /// The definition's code: the same on every resume, unless the code changed.
    Definition,
    /// Longhaul itself.
    Loop,
}

impl Journal {
    /// Adds a user message to the next turn.
    pub(crate) fn say(&mut self, message: &str) {
        self.said.push(UserMessage { text: message.to_owned(), by: Speaker::Loop });
    }

    /// Adds a user message from the definition's code to the next turn.
    pub(crate) fn say_own(&mut self, message: &str) {
        self.said.push(UserMessage { text: message.to_owned(), by: Speaker::Definition });
    }

    /// Reports a definition that ended before its record did: its code now asks for fewer turns.
    pub fn note_unread(&mut self) {
        if let Some(next) = self.recorded.front() {
            let data = json!({ "expected": "end", "recorded": next.kind.as_str(), "skipped": self.recorded.len() });
            self.diverged(data);
        }
    }

    /// Compares the definition's messages before this turn with the recorded ones, and reports a difference.
    /// Ignores Longhaul's own messages: one resume may find a detached failure earlier than another.
    pub(super) fn check_said(&mut self, step: &JournalStep) -> Step<()> {
        let (own, notices): (Vec<UserMessage>, Vec<UserMessage>) =
            std::mem::take(&mut self.said).into_iter().partition(|said| said.by == Speaker::Definition);
        let messages = step.appends.iter().map(recorded_message).collect::<Step<Vec<_>>>()?;
        let is_notice =
            |text: &str| text.starts_with(DETACHED_FAILED) || notices.iter().any(|notice| notice.text == text);
        let recorded = messages.iter().filter_map(|(message, _)| match message {
            Message::User { .. } if !is_notice(&message.text()) => Some(message.text()),
            Message::User { .. }
            | Message::System { .. }
            | Message::Given { .. }
            | Message::Assistant { .. }
            | Message::Tool { .. } => None,
        });
        // The shared steps of a fork belong to another input.
        if !self.scope.is_fork && !recorded.eq(own.iter().map(|said| said.text.as_str())) {
            self.diverged(json!({ "turn": self.turns, "part": "message" }));
        }
        Ok(())
    }
}
