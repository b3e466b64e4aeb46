//! The first messages of a run: instructions, leading system messages, references, and the rest of the conversation.

use longhaul_contract::Role;
use longhaul_llm::Message;

/// Returns the messages in the contract's order.
pub(super) fn opening(
    instructions: Option<String>,
    references: Option<String>,
    messages: &[longhaul_contract::Message],
) -> Vec<Message> {
    let is_leading = |message: &longhaul_contract::Message| matches!(message.role, Role::System | Role::Developer);
    let leading = messages.iter().take_while(|message| is_leading(message)).count();
    let (first, rest) = messages.split_at(leading);
    let instructions = instructions.filter(|text| !text.trim().is_empty()).map(Message::system);
    let references = references.map(Message::system);
    instructions.into_iter().chain(first.iter().map(given)).chain(references).chain(rest.iter().map(given)).collect()
}

fn given(message: &longhaul_contract::Message) -> Message {
    let parts: Vec<String> = message.parts.iter().map(|part| part.text.clone()).collect();
    let speaker = match (message.role, parts.as_slice()) {
        (Role::System, [text]) => return Message::system(text),
        (Role::User, [text]) => return Message::user(text),
        (Role::Assistant, [text]) => return Message::assistant(text),
        (Role::System, _) => "system",
        (Role::Developer, _) => "developer",
        (Role::User, _) => "user",
        (Role::Assistant, _) => "assistant",
        (Role::Tool, _) => "tool",
    };
    Message::Given { speaker: speaker.to_owned(), parts }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_stand_after_the_leading_system_messages() {
        let messages = longhaul_contract::Message::of_input(&json!({"messages": [
            {"role": "system", "content": "s1"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "system", "content": "s2"}, {"role": "tool", "content": "t"},
        ]}));
        let said = opening(Some("i".into()), Some("r".into()), &messages);
        let tool = |speaker: &str, parts: &[&str]| Message::Given {
            speaker: speaker.into(),
            parts: parts.iter().map(|&part| part.to_owned()).collect(),
        };
        let system = |text: &str| Message::system(text);
        let expected =
            [system("i"), system("s1"), system("r"), tool("user", &["a", "b"]), system("s2"), tool("tool", &["t"])];
        assert_eq!(said, expected);
        assert_eq!(opening(Some(" ".into()), None, &[]), []);
    }
}
