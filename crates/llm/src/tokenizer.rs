//! Counts a prompt's tokens if the model's tokenizer is known: OpenAI's, by model name.

use std::sync::Arc;

use tiktoken_rs::{
    CoreBPE, cl100k_base_singleton, o200k_base_singleton,
    tokenizer::{Tokenizer, get_tokenizer},
};
use tokio::sync::Semaphore;

use super::{
    calls::wire_object,
    prompt_bound::{self, PER_MESSAGE},
    types::{Message, ModelRequest},
};

/// Bytes tokenized at once: merging is quadratic in the longest word of a text, and tenants choose the text.
const PIECE: usize = 1_024;
/// Tokens that a cut between two pieces may add or hide.
const PER_CUT: u64 = 2;
/// Largest prompt that is counted, in bytes; longer ones fit no model's context window.
const MAX_BYTES: usize = 16 << 20;
/// Tokenizing occupies a core, so each process counts one prompt at a time.
static COUNTING: Semaphore = Semaphore::const_new(1);

type Vocabulary = fn() -> &'static CoreBPE;

fn of_model(name: &str) -> Option<Vocabulary> {
    // Gateways prefix model names, as in `openai/gpt-4.1`.
    let name = name.rsplit('/').next().unwrap_or(name);
    match get_tokenizer(name)? {
        Tokenizer::O200kBase | Tokenizer::O200kHarmony => Some(o200k_base_singleton),
        Tokenizer::Cl100kBase => Some(cl100k_base_singleton),
        Tokenizer::P50kBase | Tokenizer::R50kBase | Tokenizer::P50kEdit | Tokenizer::Gpt2 => None,
    }
}

/// Returns true if the model's tokenizer is known.
pub(super) fn knows(model: &str) -> bool {
    of_model(model).is_some()
}

/// Upper bound of a prompt's tokens; `None` if the tokenizer is unknown, fails, or the prompt is too long.
pub(super) async fn count(model: &str, request: &ModelRequest<'_>) -> Option<u64> {
    let vocabulary = of_model(model)?;
    let messages: Vec<Arc<Message>> = request.messages.to_vec();
    let tools = serde_json::to_string(request.tools).ok()?;
    let files: u64 = messages.iter().map(|message| prompt_bound::of_files(message, request.model)).sum();
    let around = prompt_bound::of_frame(request) + PER_MESSAGE * messages.len() as u64 + files;
    let length: usize = tools.len() + messages.iter().map(|message| message.text().len()).sum::<usize>();
    if length > MAX_BYTES {
        return None;
    }
    let _turn = COUNTING.acquire().await.ok()?;
    let counted = tokio::task::spawn_blocking(move || {
        let vocabulary = vocabulary();
        let texts: u64 = messages.iter().map(|message| of_message(vocabulary, message)).sum();
        texts + of_text(vocabulary, &tools)
    });
    // The tokenizer may panic on a text that its regular expression cannot split. The caller then uses the
    // prompt's length.
    Some(around + counted.await.ok()?)
}

fn of_message(vocabulary: &CoreBPE, message: &Message) -> u64 {
    let own = of_text(vocabulary, &message.text());
    let named = match message {
        Message::Tool { call_id, name, .. } => of_text(vocabulary, call_id) + of_text(vocabulary, name),
        Message::System { .. }
        | Message::User { .. }
        | Message::Notice { .. }
        | Message::Given { .. }
        | Message::Assistant { .. } => 0,
    };
    let calls = message.calls().iter().map(|call| {
        let around = PER_MESSAGE + of_text(vocabulary, &call.id) + of_text(vocabulary, &call.name);
        around + of_text(vocabulary, &wire_object(&call.arguments))
    });
    // What goes back with a reply beside its text and calls.
    let kept =
        if let Message::Assistant { native: Some(native), .. } = message { native.blocks.as_slice() } else { &[] };
    own + named + calls.sum::<u64>() + kept.iter().map(|block| of_text(vocabulary, block)).sum::<u64>()
}

fn of_text(vocabulary: &CoreBPE, mut text: &str) -> u64 {
    let mut tokens = 0;
    while !text.is_empty() {
        let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE));
        tokens += vocabulary.encode_ordinary(piece).len() as u64 + PER_CUT;
        text = rest;
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{NativeBlocks, NativeFormat};

    #[test]
    fn what_goes_back_with_a_reply_is_counted() {
        let kept = r#"{"reasoning":"because of the gate"}"#.to_owned();
        let native = NativeBlocks { format: NativeFormat::OpenAi, provider: None, blocks: vec![kept.clone()] };
        let reply = |native| Message::Assistant { text: "so".into(), calls: Vec::new(), native };
        let vocabulary = o200k_base_singleton();
        let more = of_message(vocabulary, &reply(Some(native))) - of_message(vocabulary, &reply(None));
        assert_eq!(more, of_text(vocabulary, &kept));
    }

    #[test]
    fn chat_models_are_known_by_name() {
        for name in ["gpt-4.1", "openai/gpt-4o-mini", "gpt-5.1", "gpt-4", "gpt-35-turbo"] {
            assert!(knows(name), "{name}");
        }
        for name in ["claude-haiku-4-5", "llama-3", "default", "davinci"] {
            assert!(!knows(name), "{name}");
        }
    }

    #[test]
    fn a_long_word_is_counted_in_pieces() {
        let tokens = of_text(cl100k_base_singleton(), &"x".repeat(200_000));
        assert!((12_000..=200_000).contains(&tokens), "{tokens}");
    }
}
