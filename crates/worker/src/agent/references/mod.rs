//! References let one call of a reply read the result of another: `†state.x` as an argument reads the value that
//! another call wrote to `†state.x`. The grammar, in EBNF:
//!
//! ```text
//! input     = group { ("&&" | "*>") group }      an argument: all groups must exist, the last is the value
//! group     = operand { ("||" | "<|>") operand } the first operand that exists (0, false and null exist)
//! operand   = path | literal                     at least one operand of an input is a path
//! output    = an input without literals          `_outputPath`: one path of each group is written
//! condition = all { "||" all }                   `_when`: about truth, and && binds tighter than ||
//! all       = compare { "&&" compare }
//! compare   = unary [ ("==" | "!=" | "<=" | ">=" | "<" | ">") unary ]
//! unary     = "!" unary | "(" condition ")" | literal | path
//! path      = "†" kind { "." name | "[" digits "]" | "[" quoted "]" }
//! name      = letters, digits, "_", "-", ":", "$", "@"
//! kind      = "state" | "input" | "data" | "calls"
//! literal   = number | quoted | "true" | "false" | "null"
//! ```
//!
//! A reference is the whole text of an argument, or `{"$ref": "…"}` without literals; in `$ref` and `_outputPath` the
//! `†` is optional. A `†` in plain text is written `††`.
//!
//! The module is pure: no IO, no clock, no journal. The orchestrator reads each call once ([`PlannedCall::read`]),
//! resolves it against the [`StateLog`] after every change ([`PlannedCall::resolve`]) and appends its writes when
//! it ends ([`StateLog::write`]). Only arguments written by the model are scanned for references, never results.

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
