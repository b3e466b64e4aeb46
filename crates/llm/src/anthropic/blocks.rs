//! The content blocks of a reply.
//!
//! Signed thinking must be sent back unchanged and in its place among the other blocks, or the API refuses the
//! next request. A reply with any block besides text and calls therefore keeps all its blocks.
//!
//! In a circle with `wire.rs`: a reply is read into blocks, and blocks are written back in the format of a request.

use longhaul_shared::domain::ToolCall;
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use super::wire::{malformed, tool_use};
use crate::{
    FinishReason, ModelError, NativeBlocks, NativeFormat, Usage, calls::CallIds, reply::FinishedReply,
    wire_text::WireText,
};

/// A block of a whole reply, or the start of a streamed block.
#[derive(Deserialize)]
pub(super) struct WireBlock {
    #[serde(rename = "type")]
    kind: String,
    text: Option<WireText>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Box<RawValue>>,
    thinking: Option<WireText>,
    #[serde(default)]
    signature: Option<String>,
}

#[derive(Debug)]
pub(super) enum Block {
    Text {
        /// Text already shown.
        text: String,
        /// Text that ends in half a surrogate pair.
        unsettled: WireText,
    },
    Call {
        id: String,
        name: String,
        /// Streamed arguments, or the input that the block began with.
        arguments: WireText,
    },
    /// Thinking whose signature arrives at its end.
    Thinking { thinking: WireText, signature: String },
    /// The JSON of a block of another kind.
    Other(String),
}

impl Block {
    /// Parses a block of a whole reply.
    pub(super) fn whole(raw: &RawValue, ids: &mut CallIds) -> Result<Self, ModelError> {
        let block = Self::begun(raw, ids)?;
        Ok(match block {
            // The block is complete; keep its JSON, which may hold fields unknown to this build.
            Self::Thinking { .. } => Self::Other(raw.get().to_owned()),
            text @ Self::Text { .. } => text,
            call @ Self::Call { .. } => call,
            other @ Self::Other(_) => other,
        })
    }

    /// Parses the start of a streamed block.
    pub(super) fn begun(raw: &RawValue, ids: &mut CallIds) -> Result<Self, ModelError> {
        let block: WireBlock = serde_json::from_str(raw.get()).map_err(|source| malformed("a block of it", source))?;
        Ok(match block.kind.as_str() {
            "text" => Self::Text { text: block.text.unwrap_or_default().into_prose(), unsettled: WireText::default() },
            "tool_use" => {
                let name = block.name.filter(|name| !name.is_empty());
                let name = name.ok_or(ModelError::Malformed { what: "a call names no tool", source: None })?;
                let arguments = block.input.as_deref().map(WireText::of_value).transpose();
                let arguments = arguments.map_err(|source| malformed("a call's input", source))?.unwrap_or_default();
                Self::Call { id: ids.unique(block.id.as_deref()), name, arguments }
            }
            "thinking" => Self::Thinking {
                thinking: block.thinking.unwrap_or_default(),
                signature: block.signature.unwrap_or_default(),
            },
            _ => Self::Other(raw.get().to_owned()),
        })
    }

    /// The call, if the block is one, with the arguments received so far.
    pub(super) fn call(&self) -> Option<ToolCall> {
        match self {
            Self::Call { id, name, arguments } => {
                let arguments = arguments.clone().into_json_text();
                Some(ToolCall { id: id.clone(), name: name.clone(), arguments })
            }
            Self::Text { .. } | Self::Thinking { .. } | Self::Other(_) => None,
        }
    }

    /// The block's JSON as sent back; none for blank text, which the API refuses.
    fn native(&self) -> Option<String> {
        match self {
            Self::Text { text, .. } if text.trim().is_empty() => None,
            Self::Text { text, .. } => Some(json!({ "type": "text", "text": text }).to_string()),
            Self::Call { .. } => self.call().map(|call| tool_use(&call)),
            Self::Thinking { thinking, signature } => {
                let thinking = thinking.clone().into_prose();
                Some(json!({ "type": "thinking", "thinking": thinking, "signature": signature }).to_string())
            }
            Self::Other(raw) => Some(raw.clone()),
        }
    }
}

/// The text, the calls, and all blocks if text and calls do not represent the reply completely.
pub(super) fn parts(blocks: &[Block]) -> (String, Vec<ToolCall>, Option<NativeBlocks>) {
    let text = blocks
        .iter()
        .filter_map(|block| match block {
            Block::Text { text, .. } => Some(text.as_str()),
            Block::Call { .. } | Block::Thinking { .. } | Block::Other(_) => None,
        })
        .collect();
    let calls = blocks.iter().filter_map(Block::call).collect();
    let plain = blocks.iter().all(|block| matches!(block, Block::Text { .. } | Block::Call { .. }));
    let native = (!plain).then(|| NativeBlocks {
        format: NativeFormat::Anthropic,
        blocks: blocks.iter().filter_map(Block::native).collect(),
    });
    (text, calls, native)
}

/// Assembles a reply from its blocks.
pub(super) fn finished(
    mut blocks: Vec<Block>,
    finish: FinishReason,
    usage: Usage,
    model: Option<String>,
) -> FinishedReply {
    for block in &mut blocks {
        if let Block::Text { text, unsettled } = block {
            text.push_str(&std::mem::take(unsettled).into_prose());
        }
    }
    let (text, calls, native) = parts(&blocks);
    FinishedReply { text, calls, native, finish, usage, model }
}
