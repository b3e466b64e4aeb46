//! What happened in a run, in order, as its record tells it to every wire.

use longhaul_domain::{ToolCall, message::NativeBlocks};
use serde_json::Value;

/// One thing that happened. A reader of a run gets all of them, from the first.
#[derive(Debug, Clone, PartialEq)]
pub enum Moment {
    /// A worker holds the run for the first time.
    Started,
    /// The model wrote this; `turn` counts from 1, `offset` is in bytes of the turn's text. Portions of a turn follow
    /// each other without a gap.
    Text { turn: u32, offset: usize, text: String },
    /// What was told of the turn is void, because its attempt died or its request failed: the turn is asked again.
    Void { turn: u32 },
    /// A reply is recorded, whole: its text begins with the portions that were told.
    Reply(Reply),
    /// A call that a worker ran has its result.
    Result { call_id: String, name: String, text: String, is_error: bool },
    /// The run waits for its caller. The answer ends here, and the next one begins with what the caller sends.
    Waits(Vec<Wanted>),
    /// The run is over.
    Over(End),
}

/// A reply of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub turn: u32,
    pub text: String,
    pub calls: Vec<ReplyCall>,
    /// The reply in its provider's own blocks, such as signed thinking.
    pub native: Option<NativeBlocks>,
    /// The model's name as its provider reports it.
    pub model: Option<String>,
    pub tokens: Tokens,
    /// True if the reply was cut at its output limit.
    pub is_cut: bool,
}

/// A call in a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyCall {
    pub call: ToolCall,
    pub by: Runner,
}

/// The side that runs a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    Caller,
    Worker,
}

/// Tokens of a reply; 0 if the provider did not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    /// All input, including the cached part.
    pub input: u64,
    /// All output, including thinking.
    pub output: u64,
    /// The part of the input read from the provider's cache.
    pub cached: u64,
    /// The part of the input written to the provider's cache.
    pub cache_write: u64,
}

impl Tokens {
    /// The sum over the replies of an answer.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cached: self.cached.saturating_add(other.cached),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }
}

/// Something that a run waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub kind: WantedKind,
    /// Id of the request: the one that a decision on an approval names.
    pub request_id: String,
    /// The call, with the arguments that it runs with.
    pub call: ToolCall,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedKind {
    /// The result of a function of the caller.
    Result,
    /// The answer to a question (`ask_caller`), given as the result of the call.
    Answer,
    /// A decision whether the call may run.
    Approval,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// `output` is the text of the answer: that of the last reply, or JSON.
    Finished {
        output: String,
    },
    /// The last reply was cut at its output limit.
    Cut,
    Failed {
        class: String,
        code: String,
        summary: String,
        detail: Option<Value>,
    },
    Cancelled,
}

/// One frame of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Name of the event, for wires that name them.
    pub event: Option<&'static str>,
    /// One line: JSON, or `[DONE]`.
    pub data: String,
}

impl Frame {
    /// The bytes of the frame: LF only, no `id:`, whole.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self.event {
            Some(event) => format!("event: {event}\ndata: {}\n\n", self.data).into_bytes(),
            None => format!("data: {}\n\n", self.data).into_bytes(),
        }
    }
}
