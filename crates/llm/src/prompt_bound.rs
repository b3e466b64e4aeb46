//! Upper bound of a prompt's tokens: one per byte, since a token of a byte-level vocabulary is at least one
//! byte, plus constants for the provider's framing of messages and tools.

use longhaul_sdk::spec::ModelSpec;

use super::{
    files::RequestFiles,
    types::{Message, ModelRequest},
};

/// Tokens per request: special tokens, and instructions that templates of some open models begin with.
pub const PER_REQUEST: u64 = 256;
/// Tokens per message: role, name, separators. OpenAI's formats take four to seven.
pub const PER_MESSAGE: u64 = 16;
/// Tokens per tool.
const PER_TOOL: u64 = 64;
/// Tokens of the instructions that a provider adds if there are tools; Anthropic states 264 to 530.
const WITH_TOOLS: u64 = 1_024;

/// Bound of one message. Its stored form contains everything of it that is sent, but for files.
pub fn of_message(message: &Message, spec: &ModelSpec) -> u64 {
    PER_MESSAGE + bytes(message) + of_files(message, spec)
}

/// Bound of the files of a message that the model takes.
pub(super) fn of_files(message: &Message, spec: &ModelSpec) -> u64 {
    let sent = message.files().filter(|file| RequestFiles::takes(spec, file));
    sent.map(|file| PER_MESSAGE.saturating_add(file.token_bound())).fold(0, u64::saturating_add)
}

/// Bound of everything except messages and the tools' texts.
pub(super) fn of_frame(request: &ModelRequest<'_>) -> u64 {
    let tools = request.tools.len() as u64;
    let around_tools = if tools == 0 { 0 } else { WITH_TOOLS + PER_TOOL * tools };
    let schema = request.output_schema.map_or(0, bytes);
    PER_REQUEST + around_tools + schema + bytes(&request.model.extra)
}

/// Bound of a whole prompt whose tools take `tool_bytes` as JSON.
pub fn of_request(request: &ModelRequest<'_>, tool_bytes: usize) -> u64 {
    let messages: u64 = request.messages.iter().map(|message| of_message(message, request.model)).sum();
    of_frame(request) + messages + tool_bytes as u64
}

fn bytes(value: &(impl serde::Serialize + ?Sized)) -> u64 {
    // Strings and JSON values always serialise.
    serde_json::to_vec(value).map_or(u64::MAX / 4, |bytes| bytes.len() as u64)
}
