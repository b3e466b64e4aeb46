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
//! The crate is pure: no IO, no clock, no journal. The agent loop reads each call once ([`PlannedCall::read`]),
//! resolves it against the [`StateLog`] after every change ([`PlannedCall::resolve`]) and appends its writes when
//! it ends ([`StateLog::write`]). Only arguments written by the model are scanned for references, never results.

// The language.
mod condition;
mod expression;
mod path;
mod syntax;

// Values that calls write.
mod fold;
mod instance;
mod state;

// Calls that read and write them.
mod plan;
mod resolve;
mod signature;
mod source;

// Texts for the model.
mod shown;
mod widen;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use condition::Condition;
pub use expression::OutputExpression;
pub use fold::Method;
pub use instance::{Instance, Instances};
pub use path::{Kind, Path};
pub use plan::PlannedCall;
pub use resolve::{Access, Missing, Resolution, Resolved};
pub use shown::{stored, value_of};
pub use signature::{Features, Signature};
pub use source::Source;
pub use state::{CallWrite, StateConflict, StateError, StateLimits, StateLog, StateWrite};
pub use syntax::SyntaxError;
pub use widen::{instructions, shown};
