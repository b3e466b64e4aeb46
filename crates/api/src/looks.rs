//! Hints to the streams of this process: executions that changed, and text as models write it.

use longhaul_shared::domain::ExecutionId;

/// A hint that executions changed. Hints may be lost or duplicated: streams also read once per second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// The executions that changed.
    At(Vec<ExecutionId>),
    /// Models wrote this.
    Text(Vec<TextDelta>),
    /// Any execution may have changed, because hints were lost.
    Everywhere,
}

/// A piece of a reply's text while the model writes. Pieces may be lost: the recorded turn has the whole text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextDelta {
    pub execution: ExecutionId,
    /// Number of the turn in its execution, from 1.
    pub turn: u32,
    /// Bytes of the turn's text before this piece.
    pub offset: usize,
    pub text: String,
}
