//! Tool calls as both wire formats treat them: unique ids, and arguments that may not be valid JSON.

use std::{borrow::Cow, collections::HashSet};

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::ModelRequest;

/// Longest name of a tool that every API takes.
const MAX_NAME_CHARS: usize = 64;

/// Assigns ids to a reply's calls, and knows the names they may have. Providers require ids unique in the whole
/// transcript; compatible servers omit them, repeat them within a reply, or count from zero in each reply.
#[derive(Debug)]
pub(super) struct CallIds {
    taken: HashSet<String>,
    offered: HashSet<String>,
    prefix: String,
    made: usize,
}

impl CallIds {
    /// Collects the ids of the transcript. Generated ids depend on the request alone, so a replay generates the
    /// same ones.
    pub(super) fn new(request: &ModelRequest<'_>) -> Self {
        let taken = request.messages.iter().flat_map(|message| message.calls()).map(|call| call.id.clone()).collect();
        let offered = request.tools.iter().map(|tool| tool.name.clone()).collect();
        let mut prefix = hex::encode(Sha256::digest(request.idempotency_key.as_bytes()));
        prefix.truncate(12);
        Self { taken, offered, prefix, made: 0 }
    }

    /// True if a tool of this name was offered.
    pub(super) fn offers(&self, name: &str) -> bool {
        self.offered.contains(name)
    }

    /// True if the name of an offered tool begins so.
    pub(super) fn offers_longer(&self, beginning: &str) -> bool {
        self.offered.iter().any(|name| name.starts_with(beginning))
    }

    /// Returns the provider's id if it is present and unused, a generated one otherwise.
    pub(super) fn unique(&mut self, given: Option<&str>) -> String {
        if let Some(id) = given
            && !id.is_empty()
            && self.taken.insert(id.to_owned())
        {
            return id.to_owned();
        }
        loop {
            let id = format!("call_{}_{}", self.prefix, self.made);
            self.made += 1;
            if self.taken.insert(id.clone()) {
                return id;
            }
        }
    }
}

/// Arguments as recorded: the model's text, or `{}` if it wrote none.
pub(super) fn arguments_or_empty(text: String) -> String {
    if text.trim().is_empty() { "{}".to_owned() } else { text }
}

/// True if every API takes the character in names and ids.
pub(super) fn is_wire_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// A tool's name as sent back to the provider: models make up names that no API takes in a request.
pub(super) fn wire_name(name: &str) -> Cow<'_, str> {
    if (1..=MAX_NAME_CHARS).contains(&name.len()) && name.chars().all(is_wire_char) {
        return Cow::Borrowed(name);
    }
    let name: String = name.chars().map(|c| if is_wire_char(c) { c } else { '_' }).take(MAX_NAME_CHARS).collect();
    Cow::Owned(if name.is_empty() { "_".to_owned() } else { name })
}

/// Returns true if `text` is one complete JSON object. An object cannot continue after its last brace, so a
/// reply truncated at the output limit after a complete object was truncated behind the call.
pub(super) fn is_whole_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok()
}

/// Arguments as sent back to the provider: an object byte for byte as the model wrote it. Other text is wrapped
/// in an object, because providers and chat templates parse arguments and reject the whole transcript if that
/// fails.
pub(super) fn wire_object(arguments: &str) -> Cow<'_, str> {
    if arguments.trim().is_empty() {
        return Cow::Borrowed("{}");
    }
    if is_whole_object(arguments) {
        return Cow::Borrowed(arguments);
    }
    Cow::Owned(serde_json::json!({ "INVALID_JSON": arguments }).to_string())
}
