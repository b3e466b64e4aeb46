//! The content blocks of a reply.
//!
//! Signed thinking must be sent back unchanged and in its place among the other blocks, or the API refuses the
//! next request. A reply with any block besides text and calls therefore keeps all its blocks.

use longhaul_domain::ToolCall;
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};

use super::content::tool_use;
use crate::{
    FinishReason, ModelError, NativeBlocks, NativeFormat, Usage, calls::CallIds, lenient::Members, reader::malformed,
    reply::FinishedReply, wire_text::WireText,
};

#[derive(Debug)]
pub(super) struct Block {
    pub(super) kind: Kind,
    /// Members that this build does not know.
    rest: Members,
}

#[derive(Debug)]
pub(super) enum Kind {
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
    /// A block of another kind, such as a call of a tool that the server runs.
    Other {
        /// Its JSON.
        raw: String,
        /// Input that was streamed.
        input: WireText,
    },
}

impl Block {
    /// Parses a block of a whole reply.
    pub(super) fn whole(raw: &RawValue, ids: &mut CallIds) -> Result<Self, ModelError> {
        let block = Self::begun(raw, ids)?;
        Ok(match block.kind {
            // Thinking is signed: it is kept as it is.
            Kind::Thinking { .. } => Self::other(raw),
            Kind::Text { .. } | Kind::Call { .. } | Kind::Other { .. } => block,
        })
    }

    fn other(raw: &RawValue) -> Self {
        let kind = Kind::Other { raw: raw.get().to_owned(), input: WireText::default() };
        Self { kind, rest: Members::default() }
    }

    /// Parses the start of a streamed block.
    pub(super) fn begun(raw: &RawValue, ids: &mut CallIds) -> Result<Self, ModelError> {
        let mut block = Members::of(raw);
        let text_of =
            |block: &mut Members, name: &str| block.text(name).map_err(|source| malformed("a block of it", source));
        let kind = match block.word("type").unwrap_or_default().as_str() {
            "text" => Kind::Text { text: text_of(&mut block, "text")?.into_prose(), unsettled: WireText::default() },
            "tool_use" => {
                let nameless = ModelError::Malformed { what: "a call names no tool", source: None };
                let (id, name) = (block.id("id"), block.word("name").ok_or(nameless)?);
                Kind::Call { id: ids.unique(id.as_deref()), name, arguments: text_of(&mut block, "input")? }
            }
            "thinking" => {
                let signature = block.word("signature").unwrap_or_default();
                Kind::Thinking { thinking: text_of(&mut block, "thinking")?, signature }
            }
            _ => return Ok(Self::other(raw)),
        };
        Ok(Self { kind, rest: block.said() })
    }

    /// A block whose start was not sent, told by its first delta.
    pub(super) fn of_delta(has_text: bool) -> Self {
        let kind = match has_text {
            true => Kind::Text { text: String::new(), unsettled: WireText::default() },
            false => Kind::Thinking { thinking: WireText::default(), signature: String::new() },
        };
        Self { kind, rest: Members::default() }
    }

    /// The call, if the block is one, with the arguments received so far.
    pub(super) fn call(&self) -> Option<ToolCall> {
        match &self.kind {
            Kind::Call { id, name, arguments } => {
                let arguments = arguments.clone().into_json_text();
                Some(ToolCall { id: id.clone(), name: name.clone(), arguments })
            }
            Kind::Text { .. } | Kind::Thinking { .. } | Kind::Other { .. } => None,
        }
    }

    /// True if text and calls represent the block completely.
    fn is_plain(&self) -> bool {
        matches!(self.kind, Kind::Text { .. } | Kind::Call { .. }) && self.rest.is_empty()
    }

    /// The block's JSON as sent back; none for blank text, which the API refuses.
    fn native(&self) -> Option<String> {
        let mut own = match &self.kind {
            Kind::Text { text, .. } if text.trim().is_empty() => return None,
            Kind::Text { text, .. } => json!({ "type": "text", "text": text }).to_string(),
            Kind::Call { .. } => tool_use(&self.call()?),
            Kind::Thinking { thinking, signature } => {
                let thinking = thinking.clone().into_prose();
                json!({ "type": "thinking", "thinking": thinking, "signature": signature }).to_string()
            }
            Kind::Other { raw, input } if input.is_empty() => return Some(raw.clone()),
            Kind::Other { raw, input } => {
                let (mut block, input) = (Members::read(raw.as_bytes()).ok()?, input.clone().into_json_text());
                block.insert("input", RawValue::from_string(input).ok()?);
                return serde_json::to_string(&block).ok();
            }
        };
        for (name, raw) in self.rest.iter() {
            own.truncate(own.len() - 1);
            own.push_str(&format!(",{}:{raw}}}", to_raw_value(name).ok()?));
        }
        Some(own)
    }
}

/// The text, the calls, and all blocks if text and calls do not represent the reply completely.
pub(super) fn parts(blocks: &[Block]) -> (String, Vec<ToolCall>, Option<NativeBlocks>) {
    let text = blocks
        .iter()
        .filter_map(|block| match &block.kind {
            Kind::Text { text, .. } => Some(text.as_str()),
            Kind::Call { .. } | Kind::Thinking { .. } | Kind::Other { .. } => None,
        })
        .collect();
    let calls = blocks.iter().filter_map(Block::call).collect();
    let is_plain = blocks.iter().all(Block::is_plain);
    let native = (!is_plain).then(|| NativeBlocks {
        format: NativeFormat::Anthropic,
        provider: None,
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
        if let Kind::Text { text, unsettled } = &mut block.kind {
            text.push_str(&std::mem::take(unsettled).into_prose());
        }
    }
    let (text, calls, native) = parts(&blocks);
    FinishedReply { text, calls, native, finish, usage, model }
}
