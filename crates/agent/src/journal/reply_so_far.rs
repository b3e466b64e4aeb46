//! The reply of a session's turn as far as it has come.
//!
//! The future that reads the reply is dropped at a cancel, so the text is copied here while it arrives. A worker that
//! dies at that moment loses it.

use longhaul_domain::ToolCall;
use longhaul_store::history::journal::{Hash, MessageBytes};

/// Most bytes of an unfinished reply that are kept.
const MAX_KEPT_BYTES: usize = 256 * 1024;

/// A reply under way.
#[derive(Debug)]
pub(super) struct ReplySoFar {
    pub(super) key: Hash,
    /// Sequence number of the turn's step, if it is partly recorded.
    pub(super) seq: Option<i32>,
    /// Messages that the turn sent for the first time.
    pub(super) said: Vec<MessageBytes>,
    pub(super) provider: String,
    pub(super) model: String,
    text: String,
    /// Calls with complete arguments.
    pub(super) calls: Vec<ToolCall>,
}

impl ReplySoFar {
    /// An empty reply to the turn `key` of a model, given as provider and name.
    pub(super) fn new(key: Hash, said: Vec<MessageBytes>, (provider, model): (&str, &str)) -> Self {
        let (provider, model) = (provider.to_owned(), model.to_owned());
        Self { key, seq: None, said, provider, model, text: String::new(), calls: Vec::new() }
    }

    /// Copies what has arrived since: `text` and `calls` are all that has arrived.
    pub(super) fn follow(&mut self, seq: Option<i32>, text: &str, calls: &[ToolCall]) {
        self.seq = seq;
        if self.text.len() < MAX_KEPT_BYTES
            && let Some(more) = text.get(self.text.len()..)
        {
            self.text.push_str(more);
        }
        if let Some(more) = calls.get(self.calls.len()..) {
            self.calls.extend_from_slice(more);
        }
    }

    /// The text that is kept.
    pub(super) fn take_text(&mut self) -> String {
        let mut text = std::mem::take(&mut self.text);
        text.truncate(text.floor_char_boundary(MAX_KEPT_BYTES));
        text
    }
}
