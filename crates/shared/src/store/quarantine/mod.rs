//! Executions that killed their workers: what is known of it, and how they are tried again (docs/adr/0019-quarantine.md).
//!
//! What must hold: a quarantined execution is FAILED and stays so; it is released at most once, by one retry that points back, in one
//! statement with the link; of a group at most one canary is open; nothing of a group runs under a build that it killed.

mod notes;
mod release;
mod standing;
mod tend;

pub use release::{Refused, Released};
pub use standing::{Group, Holding, Quarantined};
pub use tend::{QuarantineRules, Tended};
