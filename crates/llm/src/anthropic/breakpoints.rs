//! Breakpoints of the prompt cache (docs/guide/prompts.md).
//!
//! The API caches a prompt (tools, system, messages, in this order) up to each marked block, at most four of them, and
//! finds an earlier entry within twenty blocks, the marked one included. The marks:
//!
//! 1. the first system block, or the last tool if there is none: what all executions of an agent share
//! 2. the end of the first message: what a compression keeps
//! 3. the end of the message before the last reply, where the previous request ended: a tick may add more blocks than
//!    are searched
//! 4. the end of the conversation
//!
//! They depend on the request alone, so a repeated request has the same bytes. Prompts below the model's minimum are
//! not cached; the API ignores the marks.

use super::content::{WireConversation, WireMessage};

/// Sets marks 2 to 4.
pub(super) fn mark(wire: &mut WireConversation<'_>) {
    let from_caller = wire.messages.iter_mut().rev().filter(|message| message.role == "user");
    for message in from_caller.take(2) {
        mark_block(message, message.content.len());
    }
    if let Some(first) = wire.messages.first_mut() {
        mark_block(first, wire.head);
    }
}

/// Marks the last of the first `count` blocks.
fn mark_block(message: &mut WireMessage<'_>, count: usize) {
    if let Some(block) = count.checked_sub(1).and_then(|last| message.content.get_mut(last)) {
        block.mark();
    }
}
