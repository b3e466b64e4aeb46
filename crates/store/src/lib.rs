//! All SQL of the product.
//!
//! Invariants:
//! - One function per statement, one guarded statement per transition, with its event in the same statement.
//! - Every write of a worker is fenced: the statement takes `for key share` on the worker's own live row and
//!   names the lease token; the reaper takes `for update` on that row before it moves anything (core-rules 2).
//! - Lock order: worker row, then executions in id order, then everything else by execution. A batch takes the
//!   executions with `skip locked` and repeats what it skipped, so no two batches wait for each other (core-rules
//!   9).
//! - No statement of a worker's hot path holds a transaction across a round trip, so a paused client cannot hold its
//!   locks (core-rules 10).
//! - Time comes from `longhaul_now()`, which tests shift; leases, duties of the sweep and the pacing of breakers
//!   use the real clock.

pub mod catalogue;
mod columns;
pub mod contract;
pub mod database;
pub mod ends;
pub mod error;
pub mod executions;
pub mod files;
pub mod fleet;
pub mod history;
pub mod human_requests;
pub mod memory;
pub mod projects;
pub mod proof;
pub mod providers;
pub mod quarantine;
pub mod runs;
pub mod schedules;
pub mod sessions;
pub mod tenants;
pub mod waiting;
pub mod webhooks;
pub mod wires;

pub use database::pool::{Store, StoreOptions};
pub use error::StoreError;
