//! Tool calls as both wire formats treat them: unique ids, and arguments that may not be valid JSON.

use std::{borrow::Cow, collections::HashSet};

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::ModelRequest;

/// Assigns ids to a reply's calls. Providers require ids unique in the whole transcript; compatible servers
/// omit them, repeat them within a reply, or count from zero in each reply.
#[derive(Debug)]
pub(super) struct CallIds {
    taken: HashSet<String>,
    prefix: String,
    made: usize,
}

impl CallIds {
    /// Collects the ids of the transcript. Generated ids depend on the request alone, so a replay generates the
    /// same ones.
    pub(super) fn new(request: &ModelRequest<'_>) -> Self {
        let taken = request.messages.iter().flat_map(|message| message.calls()).map(|call| call.id.clone()).collect();
        let mut prefix = hex::encode(Sha256::digest(request.idempotency_key.as_bytes()));
        prefix.truncate(12);
        Self { taken, prefix, made: 0 }
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
