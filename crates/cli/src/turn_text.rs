//! The text of the turn that a chat's stream is about, joined from its pieces.

use crate::client::Event;

/// Text of one turn.
#[derive(Debug, Default)]
pub struct TurnText {
    turn: u64,
    text: String,
}

/// Change of the text by an event.
#[derive(Debug, PartialEq, Eq)]
pub enum TextChange {
    /// The event is not about text.
    None,
    /// Text was added at the end.
    Added(String),
    /// The text that was told of the turn is void; this is its text instead.
    Instead(String),
}

impl TurnText {
    /// Takes an event of the stream.
    pub fn take(&mut self, event: &Event) -> TextChange {
        let turn = event.body["turn"].as_u64().unwrap_or_default();
        match event.kind.as_str() {
            "delta" => {
                let (text, offset) = (event.body["text"].as_str().unwrap_or_default(), event.body["offset"].as_u64());
                self.delta(turn, usize::try_from(offset.unwrap_or_default()).unwrap_or(usize::MAX), text)
            }
            "attempt_reset" if turn == self.turn && !self.text.is_empty() => {
                self.text.clear();
                TextChange::Instead(String::new())
            }
            _ => TextChange::None,
        }
    }

    /// True for text of another turn than the one so far.
    #[must_use]
    pub fn is_begun_by(&self, event: &Event) -> bool {
        event.kind == "delta" && event.body["turn"].as_u64().unwrap_or_default() != self.turn
    }

    fn delta(&mut self, turn: u64, offset: usize, text: &str) -> TextChange {
        if turn != self.turn {
            (self.turn, self.text) = (turn, String::new());
        }
        let told = self.text.len();
        if offset < told && self.text.is_char_boundary(offset) {
            let repeated = self.text[offset..].to_owned();
            if let Some(more) = text.strip_prefix(repeated.as_str()) {
                self.text.push_str(more);
                return TextChange::Added(more.to_owned());
            }
            self.text.truncate(offset);
            self.text.push_str(text);
            return TextChange::Instead(self.text.clone());
        }
        self.text.push_str(text);
        TextChange::Added(text.to_owned())
    }

    /// The text so far, which is not told again.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn delta(turn: u64, offset: u64, text: &str) -> Event {
        event("delta", json!({ "turn": turn, "offset": offset, "text": text }))
    }

    fn event(kind: &str, body: Value) -> Event {
        Event { seq: 0, kind: kind.to_owned(), body }
    }

    #[test]
    fn pieces_are_joined_by_turn_and_offset() {
        let mut turn = TurnText::default();
        let added = |text: &str| TextChange::Added(text.to_owned());
        let instead = |text: &str| TextChange::Instead(text.to_owned());
        assert_eq!(turn.take(&delta(1, 0, "The answer is ")), added("The answer is "));
        assert_eq!(turn.take(&event("retry", json!({}))), TextChange::None);
        assert_eq!(turn.take(&event("attempt_reset", json!({ "turn": 1 }))), instead(""));
        assert_eq!(turn.take(&delta(1, 0, "The answer")), added("The answer"));
        assert_eq!(turn.take(&delta(1, 0, "The answer is")), added(" is"), "a reader that resumed gets it whole");
        assert_eq!(turn.take(&delta(1, 4, "reply")), instead("The reply"));
        assert_eq!(turn.take(&delta(2, 0, "Next")), added("Next"));
        assert_eq!(turn.finish(), "Next");
    }
}
