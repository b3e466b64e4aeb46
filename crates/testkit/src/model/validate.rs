//! Rules that every request must keep, whichever test sends it. The real endpoints refuse a whole transcript that
//! breaks one.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Value, value::RawValue};

use super::captured::{Captured, Dialect};

/// Largest parts of a request, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Caps {
    /// One tool result.
    pub tool_result: usize,
    /// Any other text.
    pub text: usize,
}

impl Default for Caps {
    fn default() -> Self {
        // The default cap of a result, with room for the note that it was cut.
        Self { tool_result: 65_536 + 256, text: 4 * 1024 * 1024 }
    }
}

/// All violations of a request.
pub(super) fn violations(request: &Captured, caps: &Caps) -> Vec<String> {
    let mut found = Vec::new();
    if request.idempotency_key.as_deref().is_none_or(str::is_empty) {
        found.push("it has no Idempotency-Key".to_owned());
    }
    if request.body.is_null() {
        found.push("its body is not JSON".to_owned());
        return found;
    }
    if request.body["model"].as_str().is_none_or(str::is_empty) {
        found.push("it names no model".to_owned());
    }
    if request.messages().is_empty() {
        found.push("it has no messages".to_owned());
    }
    check_tools(request, &mut found);
    check_cache(request, &mut found);
    let mut transcript = Transcript { caps, pending: BTreeSet::new(), ids: HashSet::new(), found };
    match request.dialect {
        Dialect::OpenAi => transcript.openai(request),
        Dialect::Anthropic => transcript.anthropic(request),
    }
    transcript.found
}

fn check_tools(request: &Captured, found: &mut Vec<String>) {
    let mut names = HashSet::new();
    for name in request.tools() {
        if !is_name(name) {
            found.push(format!("tool name `{name}` is not allowed"));
        }
        if !names.insert(name) {
            found.push(format!("tool `{name}` is offered twice"));
        }
    }
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (1..=64).contains(&name.len()) && name.chars().all(fits)
}

/// The order of messages that Mistral's API and the templates of Qwen and Gemma demand. A reply with calls is `calls`.
fn may_follow(before: &str, role: &str) -> bool {
    match role {
        "system" => before.is_empty(),
        "user" => matches!(before, "" | "system" | "assistant"),
        "assistant" => matches!(before, "user" | "tool"),
        "tool" => matches!(before, "calls" | "tool"),
        _ => true,
    }
}

/// Hints for the prompt cache: at most four marks, none on thinking, and a key of at most 64 characters.
fn check_cache(request: &Captured, found: &mut Vec<String>) {
    let body = &request.body;
    if body["prompt_cache_key"].as_str().is_some_and(|key| key.is_empty() || key.chars().count() > 64) {
        found.push(format!("prompt_cache_key {} is not allowed", body["prompt_cache_key"]));
    }
    let parts = request.messages().iter().map(|message| &message["content"]);
    let blocks = [&body["tools"], &body["system"]].into_iter().chain(parts).filter_map(Value::as_array).flatten();
    let marked: Vec<&Value> = blocks.filter(|block| block.get("cache_control").is_some()).collect();
    if marked.len() > 4 || (request.dialect == Dialect::OpenAi && !marked.is_empty()) {
        found.push(format!("it marks {} blocks for the cache", marked.len()));
    }
    if marked.iter().any(|block| matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"))) {
        found.push("it marks thinking for the cache".to_owned());
    }
}

struct Transcript<'a> {
    caps: &'a Caps,
    /// Calls whose results must come next.
    pending: BTreeSet<String>,
    ids: HashSet<String>,
    found: Vec<String>,
}

impl Transcript<'_> {
    fn openai(&mut self, request: &Captured) {
        let mut before = "";
        for (at, message) in request.messages().iter().enumerate() {
            let role = message["role"].as_str().unwrap_or_default();
            let calls = message["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
            if !may_follow(before, role) {
                self.found.push(format!("message {at} has role `{role}` after `{before}`"));
            }
            before = if calls { "calls" } else { role };
            if role == "tool" {
                self.answer(at, &message["tool_call_id"], &message["content"]);
                continue;
            }
            self.expect_answered(at);
            self.check_text(at, &message["content"]);
            match role {
                "system" | "user" if message["content"].is_string() => {}
                "user" if message["content"].is_array() => self.openai_parts(at, &message["content"]),
                "assistant" => {
                    let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
                    if calls.is_empty() && message["content"].is_null() {
                        self.found.push(format!("message {at} is an empty reply"));
                    }
                    for call in calls {
                        self.call(at, &call["id"]);
                        self.name(at, &call["function"]["name"]);
                        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
                        let json = serde_json::from_str::<&RawValue>(arguments);
                        if !json.is_ok_and(|json| json.get().starts_with('{')) {
                            self.found.push(format!("message {at} holds arguments that are no JSON object"));
                        }
                    }
                }
                _ => self.found.push(format!("message {at} has role `{role}` and content {}", message["content"])),
            }
        }
        if !matches!(before, "user" | "tool") {
            self.found.push(format!("the last message has role `{before}`"));
        }
        self.expect_answered(request.messages().len());
        if request.streams() && request.body["stream_options"]["include_usage"] != true {
            self.found.push("it streams without asking for usage".to_owned());
        }
    }

    /// Parts of a user's message: texts, images and PDF as `data:` URLs.
    fn openai_parts(&mut self, at: usize, parts: &Value) {
        for part in parts.as_array().map_or(&[][..], Vec::as_slice) {
            let (has_kind, url) = match part["type"].as_str().unwrap_or_default() {
                "text" => {
                    self.check_text(at, &part["text"]);
                    (part["text"].is_string(), None)
                }
                "image_url" => (true, part["image_url"]["url"].as_str()),
                "file" => {
                    let url = part["file"]["file_data"].as_str();
                    (part["file"]["filename"].is_string() && url.is_some_and(|url| url.contains("/pdf;")), url)
                }
                _ => (false, None),
            };
            if !has_kind || url.is_some_and(|url| !url.starts_with("data:") || !url.contains(";base64,")) {
                self.found.push(format!("message {at} holds a part that the format does not have"));
            }
        }
    }

    /// A block with bytes: an image, or a PDF.
    fn source(&mut self, at: usize, part: &Value) {
        let media_type = part["source"]["media_type"].as_str().unwrap_or_default();
        let fits = match part["type"].as_str() {
            Some("image") => matches!(media_type, "image/png" | "image/jpeg" | "image/webp" | "image/gif"),
            Some("document") => media_type == "application/pdf",
            Some(_) | None => false,
        };
        if !fits || part["source"]["type"] != "base64" || part["source"]["data"].as_str().is_none_or(str::is_empty) {
            self.found.push(format!("message {at} holds a source that the format does not have"));
        }
    }

    fn anthropic(&mut self, request: &Captured) {
        if request.header("anthropic-version").is_none() {
            self.found.push("it has no anthropic-version".to_owned());
        }
        if !request.body["max_tokens"].is_u64() {
            self.found.push("it has no max_tokens".to_owned());
        }
        self.check_text(0, &request.body["system"]);
        for (at, message) in request.messages().iter().enumerate() {
            let role = message["role"].as_str().unwrap_or_default();
            if role != ["user", "assistant"][at % 2] {
                self.found.push(format!("message {at} has role `{role}`: turns must alternate"));
            }
            if role == "assistant" {
                self.expect_answered(at);
            }
            let parts = message["content"].as_array().map_or(&[][..], Vec::as_slice);
            if parts.is_empty() {
                self.found.push(format!("message {at} is empty"));
            }
            for part in parts {
                match (role, part["type"].as_str().unwrap_or_default()) {
                    ("user", "tool_result") => {
                        self.answer(at, &part["tool_use_id"], &part["content"]);
                        for block in part["content"].as_array().map_or(&[][..], Vec::as_slice) {
                            match block["type"].as_str() {
                                Some("text") => self.check_text(at, &block["text"]),
                                _ => self.source(at, block),
                            }
                        }
                    }
                    ("user", "image" | "document") => self.source(at, part),
                    (_, "text") => {
                        if role == "user" {
                            self.expect_answered(at);
                        }
                        if part["text"].as_str().is_none_or(|text| text.trim().is_empty()) {
                            self.found.push(format!("message {at} holds blank text"));
                        }
                        self.check_text(at, &part["text"]);
                    }
                    ("assistant", "tool_use") => {
                        self.call(at, &part["id"]);
                        self.name(at, &part["name"]);
                        if !part["input"].is_object() {
                            self.found.push(format!("message {at} holds an input that is no object"));
                        }
                    }
                    ("assistant", "thinking" | "redacted_thinking") => {}
                    (_, kind) => self.found.push(format!("message {at} holds a `{kind}` block of role `{role}`")),
                }
            }
        }
        self.expect_answered(request.messages().len());
    }

    fn name(&mut self, at: usize, name: &Value) {
        if !name.as_str().is_some_and(is_name) {
            self.found.push(format!("message {at} holds a call of `{name}`"));
        }
    }

    fn call(&mut self, at: usize, id: &Value) {
        let id = id.as_str().unwrap_or_default().to_owned();
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':' | '.');
        if id.is_empty() || !id.chars().all(fits) {
            self.found.push(format!("message {at} holds a call with id `{id}`"));
        }
        if !self.ids.insert(id.clone()) {
            self.found.push(format!("message {at} repeats call id `{id}`"));
        }
        self.pending.insert(id);
    }

    fn answer(&mut self, at: usize, id: &Value, content: &Value) {
        let id = id.as_str().unwrap_or_default();
        if !self.pending.remove(id) {
            self.found.push(format!("message {at} answers `{id}`, which is no open call of the reply before it"));
        }
        let size = content.as_str().map_or(0, str::len);
        if size > self.caps.tool_result {
            self.found.push(format!("message {at} holds a result of {size} bytes"));
        }
    }

    /// Results must follow their reply directly and completely.
    fn expect_answered(&mut self, at: usize) {
        if !self.pending.is_empty() {
            self.found.push(format!("before message {at} no result answers {:?}", self.pending));
            self.pending.clear();
        }
    }

    fn check_text(&mut self, at: usize, content: &Value) {
        let size = content.as_str().map_or(0, str::len);
        if size > self.caps.text {
            self.found.push(format!("message {at} holds text of {size} bytes"));
        }
    }
}
