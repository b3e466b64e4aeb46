//! The prompt caches of both providers, by their own rules. A token is four bytes.
//!
//! - OpenAI: the longest common prefix with an earlier prompt of the same `prompt_cache_key`, in steps of 128 tokens,
//!   if it has at least 1,024.
//! - Anthropic: a prompt is stored at its marked blocks, and read at a marked block or one of the 19 before it, if the
//!   prefix has at least 1,024 tokens and each of its bytes is the same.
//!
//! An entry lives for five minutes after its last use; OpenAI promises no more either.

use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use super::captured::{Captured, Dialect};

const BYTES_PER_TOKEN: usize = 4;
const LEAST_TOKENS: usize = 1_024;
const STEP_TOKENS: usize = 128;
/// Positions searched for an entry, from the marked block backwards.
const LOOK_BACK: usize = 20;
const LIFE: Duration = Duration::from_secs(300);

/// Tokens of one prompt, or of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCount {
    pub prompt: usize,
    /// Read from the cache.
    pub read: usize,
    /// Written to the cache.
    pub written: usize,
    /// The longest prefix that an earlier prompt of the same model had, if it was long enough and recent enough:
    /// the most that a cache could have served.
    pub servable: usize,
}

/// The cache; a handle to it.
#[derive(Debug, Clone, Default)]
pub struct CacheStub(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    now: Duration,
    prompts: Vec<Earlier>,
    /// Time until which a prefix of blocks is stored, by its hash.
    stored: HashMap<u64, Duration>,
    counts: Vec<CacheCount>,
}

/// A prompt that was answered.
#[derive(Debug)]
struct Earlier {
    model: String,
    key: Option<String>,
    prompt: Prompt,
    used: Duration,
}

#[derive(Debug)]
enum Prompt {
    Text(Vec<u8>),
    Blocks(Vec<Block>),
}

#[derive(Debug)]
struct Block {
    /// Hash of all blocks through this one.
    prefix: u64,
    /// Tokens of all blocks through this one.
    tokens: usize,
    is_marked: bool,
}

impl CacheStub {
    /// Lets time pass for the entries.
    pub fn advance(&self, time: Duration) {
        self.lock().now += time;
    }

    /// One count for each prompt that was answered, in order.
    #[must_use]
    pub fn counts(&self) -> Vec<CacheCount> {
        self.lock().counts.clone()
    }

    /// Serves a prompt that is answered, and stores it.
    pub(super) fn serve(&self, request: &Captured) -> CacheCount {
        let mut inner = self.lock();
        let model = request.body["model"].as_str().unwrap_or_default().to_owned();
        let key = request.body["prompt_cache_key"].as_str().map(str::to_owned);
        let prompt = match request.dialect {
            Dialect::OpenAi => Prompt::Text(text_of(&request.body)),
            Dialect::Anthropic => Prompt::Blocks(blocks_of(&request.body, &model)),
        };
        let (servable, of_key) = inner.common(&model, key.as_deref(), &prompt);
        let count = match &prompt {
            Prompt::Text(text) => {
                CacheCount { prompt: text.len() / BYTES_PER_TOKEN, read: of_key, written: 0, servable }
            }
            Prompt::Blocks(blocks) => {
                let (read, written) = inner.marks(blocks);
                CacheCount { prompt: tokens_of(blocks), read, written, servable }
            }
        };
        let used = inner.now;
        inner.prompts.push(Earlier { model, key, prompt, used });
        inner.counts.push(count);
        count
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }
}

impl Inner {
    /// Tokens of the longest prefix common with an earlier prompt of the model, and with one of the same key.
    fn common(&mut self, model: &str, key: Option<&str>, prompt: &Prompt) -> (usize, usize) {
        let now = self.now;
        let (mut of_model, mut of_key) = (0, 0);
        for earlier in self.prompts.iter_mut().filter(|earlier| earlier.model == model && now < earlier.used + LIFE) {
            let tokens = common_tokens(&earlier.prompt, prompt);
            if tokens > 0 {
                earlier.used = now;
            }
            of_model = of_model.max(tokens);
            if earlier.key.as_deref() == key {
                of_key = of_key.max(tokens);
            }
        }
        (of_model, of_key)
    }

    /// Tokens read and written at the marks of a prompt, which are stored or kept.
    fn marks(&mut self, blocks: &[Block]) -> (usize, usize) {
        let now = self.now;
        let (mut read, mut written) = (0, 0);
        let marks: Vec<usize> =
            (0..blocks.len()).filter(|at| blocks[*at].is_marked && blocks[*at].tokens >= LEAST_TOKENS).collect();
        for mark in &marks {
            let hit = (mark.saturating_sub(LOOK_BACK - 1)..=*mark)
                .rev()
                .find(|at| self.stored.get(&blocks[*at].prefix).is_some_and(|until| now < *until));
            if let Some(at) = hit {
                self.stored.insert(blocks[at].prefix, now + LIFE);
                read = read.max(blocks[at].tokens);
            }
        }
        for mark in marks {
            self.stored.insert(blocks[mark].prefix, now + LIFE);
            written = blocks[mark].tokens.saturating_sub(read);
        }
        (read, written)
    }
}

/// Tokens of the common prefix, by the rules for its least length and steps.
fn common_tokens(one: &Prompt, other: &Prompt) -> usize {
    let tokens = match (one, other) {
        (Prompt::Text(one), Prompt::Text(other)) => {
            let bytes = one.iter().zip(other).take_while(|(one, other)| one == other).count();
            bytes / BYTES_PER_TOKEN / STEP_TOKENS * STEP_TOKENS
        }
        (Prompt::Blocks(one), Prompt::Blocks(other)) => {
            let same = one.iter().zip(other).take_while(|(one, other)| one.prefix == other.prefix);
            same.last().map_or(0, |(block, _)| block.tokens)
        }
        (Prompt::Text(_), Prompt::Blocks(_)) | (Prompt::Blocks(_), Prompt::Text(_)) => 0,
    };
    if tokens < LEAST_TOKENS { 0 } else { tokens }
}

fn tokens_of(blocks: &[Block]) -> usize {
    blocks.last().map_or(0, |block| block.tokens)
}

/// The prompt as the model sees it: tools, then messages.
fn text_of(body: &Value) -> Vec<u8> {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let mut text = body["tools"].to_string();
    for message in messages {
        text.push_str(&message.to_string());
    }
    text.into_bytes()
}

/// The prompt as blocks: tools, instructions, messages. Another `tool_choice` makes other messages.
fn blocks_of(body: &Value, model: &str) -> Vec<Block> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let system = match body["system"].as_str() {
        Some(text) => vec![serde_json::json!({ "type": "text", "text": text })],
        None => list(&body["system"]),
    };
    let mut hasher = DefaultHasher::new();
    model.hash(&mut hasher);
    let (mut blocks, mut bytes) = (Vec::new(), 0);
    let mut push = |hasher: &mut DefaultHasher, place: &str, mut block: Value| {
        let mark = block.as_object_mut().and_then(|block| block.remove("cache_control"));
        let text = block.to_string();
        (place, &text).hash(hasher);
        bytes += text.len();
        blocks.push(Block {
            prefix: hasher.clone().finish(),
            tokens: bytes / BYTES_PER_TOKEN,
            is_marked: mark.is_some(),
        });
    };
    for tool in list(&body["tools"]) {
        push(&mut hasher, "tools", tool);
    }
    for block in system {
        push(&mut hasher, "system", block);
    }
    body["tool_choice"].to_string().hash(&mut hasher);
    for (at, message) in list(&body["messages"]).iter().enumerate() {
        for block in list(&message["content"]) {
            push(&mut hasher, &at.to_string(), block);
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prompt(body: &Value, path: &str) -> Captured {
        Captured::new(path, axum::http::HeaderMap::new(), body.to_string().into())
    }

    fn openai(key: &str, texts: &[&str]) -> Captured {
        let messages: Vec<Value> = texts.iter().map(|text| json!({ "role": "user", "content": text })).collect();
        prompt(&json!({ "model": "m", "prompt_cache_key": key, "messages": messages }), "/v1/chat/completions")
    }

    /// One user message of these blocks; a text that ends in `!` is marked.
    fn anthropic(texts: &[String]) -> Captured {
        let block = |text: &String| match text.strip_suffix('!') {
            Some(text) => json!({ "type": "text", "text": text, "cache_control": { "type": "ephemeral" } }),
            None => json!({ "type": "text", "text": text }),
        };
        let content: Vec<Value> = texts.iter().map(block).collect();
        prompt(&json!({ "model": "m", "messages": [{ "role": "user", "content": content }] }), "/v1/messages")
    }

    #[test]
    fn openai_reads_the_common_prefix_of_a_key() {
        let (cache, long) = (CacheStub::default(), "x".repeat(6_000));
        assert_eq!(cache.serve(&openai("a", &[&long])).read, 0);
        let again = cache.serve(&openai("a", &[&long, "more"]));
        assert_eq!((again.read, again.servable), (1_408, 1_408), "in steps of 128 tokens");
        let of_other = cache.serve(&openai("b", &[&long, "more"]));
        assert_eq!((of_other.read, of_other.servable), (0, 1_408), "another key");
        assert_eq!(cache.serve(&openai("a", &["short", "more"])).read, 0, "below 1,024 tokens");
        cache.advance(LIFE);
        assert_eq!(cache.serve(&openai("a", &[&long])).servable, 0, "expired");
    }

    #[test]
    fn anthropic_reads_at_marks_within_twenty_blocks() {
        let (cache, long) = (CacheStub::default(), "x".repeat(6_000));
        let blocks = |more: usize| {
            let mut blocks = vec![long.clone()];
            blocks.extend((0..more).map(|n| format!("block {n}")));
            blocks.last_mut().unwrap().push('!');
            blocks
        };
        let first = cache.serve(&anthropic(&blocks(0)));
        assert_eq!((first.read, first.written), (0, first.prompt));
        let near = cache.serve(&anthropic(&blocks(19)));
        assert_eq!((near.read, near.servable), (first.prompt, first.prompt));
        let far = cache.serve(&anthropic(&blocks(39)));
        assert_eq!((far.read, far.servable), (0, near.prompt), "the twentieth block before the mark is not searched");
        assert_eq!(cache.serve(&anthropic(&["short!".into()])).written, 0);
        cache.advance(LIFE);
        assert_eq!(cache.serve(&anthropic(&blocks(0))).read, 0, "expired");
    }
}
