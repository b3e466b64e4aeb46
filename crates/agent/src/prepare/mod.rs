//! Before the first turn: an agent is prepared from its pinned versions, with the surface that it runs for, its tools
//! as the model sees them, its prompt and the defaults of its input.

pub mod agent;
pub(crate) mod cache;
pub mod defaults;
pub mod differences;
pub mod profile;
pub mod prompt;
pub mod tool_list;
pub mod wire;
