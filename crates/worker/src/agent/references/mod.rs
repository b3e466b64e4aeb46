//! References between the calls of one reply: `†state.x` in an argument reads what another call wrote there.
//!
//! Pure: no IO, no clock, nothing of the journal. The orchestrator of calls drives it: a call is read once as the model wrote it
//! ([`PlannedCall::read`]), resolved against the [`StateLog`] whenever something changed ([`PlannedCall::resolve`]), and what it
//! writes is appended when it ends ([`StateLog::write`]). Only arguments that a model wrote are ever scanned; results never are.

mod condition;
mod expression;
mod fold;
mod instance;
mod path;
mod plan;
#[cfg(test)]
mod properties;
mod resolve;
mod shown;
mod signature;
mod state;
mod syntax;
#[cfg(test)]
mod tests;
mod widen;

pub(crate) use condition::Condition;
pub(crate) use fold::Method;
pub(crate) use instance::Instance;
pub(crate) use path::Path;
pub(crate) use plan::PlannedCall;
pub(crate) use resolve::{Access, Missing, Resolution, Resolved};
pub(crate) use shown::{stored, value_of};
pub(crate) use signature::{Features, Signature};
pub(crate) use state::{CallWrite, StateLimits, StateLog, StateWrite};
pub(crate) use widen::{instructions, shown};
