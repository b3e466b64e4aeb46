//! The text of an exchange: what a caller said, and the last answer. Pure.

use longhaul_domain::message::Message;
use longhaul_sdk::spec::MAX_EPISODE_CHARS;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::history::journal::{Hash, storable};

/// Hash of an episode's content.
pub(super) fn episode_hash(content: &str) -> Hash {
    Sha256::digest(content).into()
}

/// What one execution said: the texts of its caller and its last reply with text.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    said: Vec<String>,
    answer: String,
}

impl Exchange {
    /// Adds a message of the transcript. Instructions, and with them what was recalled, are no part of it, nor are
    /// results of tools.
    pub(super) fn add(&mut self, message: &Message) {
        match message {
            Message::User { .. } | Message::Given { .. } => self.said.push(message.text().into_owned()),
            Message::Assistant { text, .. } if !text.trim().is_empty() => self.answer.clone_from(text),
            Message::Assistant { .. } | Message::Notice { .. } | Message::System { .. } | Message::Tool { .. } => {}
        }
    }

    /// The exchange of an execution outside sessions.
    pub(super) fn of_execution(input: &Value, output: Option<&Value>) -> Self {
        let said = match (input["prompt"].as_str(), input["messages"].as_array()) {
            (Some(prompt), _) => vec![prompt.to_owned()],
            (None, Some(messages)) => messages.iter().map(|message| plain(&message["content"])).collect(),
            (None, None) => vec![plain(input)],
        };
        let answer = output.map_or_else(String::new, |output| {
            output["response"].as_str().map_or_else(|| plain(output), str::to_owned)
        });
        Self { said, answer }
    }

    /// The content of its episode; `None` if nothing was said.
    pub(super) fn content(&self) -> Option<String> {
        let (said, answer) = (storable(self.said.join("\n").trim()), storable(self.answer.trim()));
        if said.is_empty() && answer.is_empty() {
            return None;
        }
        // The longer one has what the other leaves.
        let room = MAX_EPISODE_CHARS - LABELS;
        let (said_chars, answer_chars) = (said.chars().count(), answer.chars().count());
        let half = room / 2;
        let said = first(&said, (room - answer_chars.min(half)).min(said_chars));
        let answer = first(&answer, room - said.chars().count());
        let parts = [("User", said), ("Assistant", answer)];
        let parts = parts.iter().filter(|(_, text)| !text.is_empty()).map(|(role, text)| format!("{role}: {text}"));
        Some(parts.collect::<Vec<_>>().join("\n"))
    }
}

/// Characters of the labels and the line break between them.
const LABELS: usize = "User: \nAssistant: ".len();

fn plain(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_null() => String::new(),
        None => value.to_string(),
    }
}

fn first(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn episode_holds_words_of_caller_and_last_answer() {
        let mut exchange = Exchange::default();
        for message in [
            Message::system("Relevant memories"),
            Message::user("My cat is Ada."),
            Message::assistant("I look."),
            Message::assistant(""),
            Message::assistant("Noted\0."),
        ] {
            exchange.add(&message);
        }
        assert_eq!(exchange.content().unwrap(), "User: My cat is Ada.\nAssistant: Noted\u{fffd}.");
        assert_eq!(Exchange::default().content(), None);
        let direct = Exchange::of_execution(&json!({"prompt": "Hi"}), Some(&json!({"response": "Ho"})));
        assert_eq!(direct.content().unwrap(), "User: Hi\nAssistant: Ho");
        let typed = Exchange::of_execution(&json!({"id": 7}), None);
        assert_eq!(typed.content().unwrap(), "User: {\"id\":7}");
    }

    #[test]
    fn episode_is_bounded_and_shares_its_room() {
        let of = |said: usize, answer: usize| {
            let output = json!({ "response": "ä".repeat(answer) });
            Exchange::of_execution(&json!({ "prompt": "ü".repeat(said) }), Some(&output)).content().unwrap()
        };
        let counts = |text: &str| {
            (text.matches('ü').count(), text.matches('ä').count(), text.chars().count() <= MAX_EPISODE_CHARS)
        };
        assert_eq!(counts(&of(20_000, 20_000)), (4_991, 4_991, true));
        assert_eq!(counts(&of(20_000, 10)), (9_972, 10, true));
        assert_eq!(counts(&of(10, 20_000)), (10, 9_972, true));
    }
}
