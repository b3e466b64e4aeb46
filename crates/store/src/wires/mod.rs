//! Tables and look-ups of the wires of other clients (docs/design/runs.md): the requests that continued an answer, the
//! executions that are not to be kept, and the transcripts that a new session begins with.

mod branch;
mod leg;
mod record;
mod unstored;

pub use leg::Leg;
pub use record::WireRecord;
