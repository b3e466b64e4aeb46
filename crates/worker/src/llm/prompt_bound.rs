//! An upper bound of the tokens of a prompt: one for each byte, since no token of a byte-level vocabulary stands for less than a byte,
//! and constants for what a provider writes around messages and tools.

use super::types::{Message, ModelRequest};

/// Around the whole: special tokens, and the instructions that templates of some open models begin with.
pub(crate) const PER_REQUEST: u64 = 256;
/// Around a message: role, name, separators. OpenAI's formats take four to seven.
pub(crate) const PER_MESSAGE: u64 = 16;
/// Around a tool.
const PER_TOOL: u64 = 64;
/// The instructions that a provider adds as soon as there are tools; Anthropic states 264 to 530.
const WITH_TOOLS: u64 = 1_024;

/// Of one message: its stored form holds everything that is sent of it.
pub(crate) fn of_message(message: &Message) -> u64 {
    PER_MESSAGE + bytes(message)
}

/// Of everything but messages and tools' texts.
pub(super) fn of_frame(request: &ModelRequest<'_>) -> u64 {
    let tools = request.tools.len() as u64;
    let around_tools = if tools == 0 { 0 } else { WITH_TOOLS + PER_TOOL * tools };
    let schema = request.output_schema.map_or(0, bytes);
    PER_REQUEST + around_tools + schema + bytes(&request.model.extra)
}

/// Of a whole prompt, whose tools take `tool_bytes` as JSON.
pub(crate) fn of_request(request: &ModelRequest<'_>, tool_bytes: usize) -> u64 {
    let messages: u64 = request.messages.iter().map(|message| of_message(message)).sum();
    of_frame(request) + messages + tool_bytes as u64
}

fn bytes(value: &(impl serde::Serialize + ?Sized)) -> u64 {
    // Strings and JSON can always be written.
    serde_json::to_vec(value).map_or(u64::MAX / 4, |bytes| bytes.len() as u64)
}
