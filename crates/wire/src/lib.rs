//! The wires of other clients: OpenAI's responses and chat completions, Anthropic's messages, AG-UI.
//!
//! A request of any of them becomes an [`Asked`]; the record of a run becomes [`Moment`]s, from which each wire makes
//! its objects and the frames of its streams. No IO. Invariant: frames depend on the moments alone, so that every
//! reader of a run gets the same bytes. See docs/design/wires.md.

pub mod agui;
pub mod answer;
pub mod approvals;
pub mod asked;
pub mod chat;
pub mod content;
pub mod fault;
mod inline;
mod members;
pub mod messages;
pub mod models;
pub mod moment;
mod parameters;
pub mod render;
pub mod responses;

pub use asked::{Asked, Choice, Format, FunctionTool, Inline, InlineKind, Item, ModelName, Part, Sampling, Source};
pub use fault::{Fault, FaultKind};
pub use moment::{End, Frame, Moment, Reply, ReplyCall, Runner, Tokens, Wanted, WantedKind};
pub use render::{Broken, Render};
