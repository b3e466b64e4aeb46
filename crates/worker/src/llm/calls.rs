//! What both wire formats do with calls: ids that are unique, and arguments that may not be JSON.

use std::{borrow::Cow, collections::HashSet};

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::ModelRequest;

/// Ids of a reply's calls. Providers require them unique in the whole transcript; compatible servers omit them, repeat them
/// within a reply, or count from zero in each.
#[derive(Debug)]
pub(super) struct CallIds {
    taken: HashSet<String>,
    prefix: String,
    made: usize,
}

impl CallIds {
    /// Knows the ids of the transcript. Ids it makes depend on the request alone.
    pub(super) fn new(request: &ModelRequest<'_>) -> Self {
        let taken = request.messages.iter().flat_map(|message| message.calls()).map(|call| call.id.clone()).collect();
        let mut prefix = hex::encode(Sha256::digest(request.idempotency_key.as_bytes()));
        prefix.truncate(12);
        Self { taken, prefix, made: 0 }
    }

    /// The provider's id if it is usable, another otherwise.
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

/// Arguments as they are kept: the model's text, `{}` when it wrote none.
pub(super) fn arguments_or_empty(text: String) -> String {
    if text.trim().is_empty() { "{}".to_owned() } else { text }
}

/// Whether a text is one whole JSON object. An object cannot go on after its last brace, so a reply that was cut by the output
/// limit after one was cut behind the call.
pub(super) fn is_whole_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok()
}

/// Arguments as they go back on the wire: an object as the model wrote it, byte for byte. Anything else is put inside one,
/// because providers and chat templates parse what they are sent and refuse the whole transcript if it fails.
pub(super) fn wire_object(arguments: &str) -> Cow<'_, str> {
    if arguments.trim().is_empty() {
        return Cow::Borrowed("{}");
    }
    if is_whole_object(arguments) {
        return Cow::Borrowed(arguments);
    }
    Cow::Owned(serde_json::json!({ "INVALID_JSON": arguments }).to_string())
}
