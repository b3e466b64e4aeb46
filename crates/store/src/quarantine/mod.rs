//! Quarantine of executions that killed their workers: the record of their deaths, and how they are tried again
//! (docs/design/quarantine.md).
//!
//! Invariants: a quarantined execution is FAILED and stays so; it is released at most once, by one retry that
//! points back, in one statement with the link; at most one canary of a group is open; no execution of a group
//! runs on a build that the group killed.

mod notes;
mod read;
mod release;
mod tend;

pub use read::{Group, Holding, Quarantined};
pub use release::{Refused, Released};
pub use tend::{QuarantineRules, Tended};
