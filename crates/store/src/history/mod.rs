//! What executions leave behind: steps with their messages, events and the ledger; their reads, erasure and pruning.

pub mod body;
pub mod calls;
pub mod erasure;
pub mod events;
mod hash;
pub mod journal;
pub mod ledger;
pub(crate) mod partitions;
pub mod prune;
pub mod read;
