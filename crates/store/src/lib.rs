//! All SQL of the product.
//!
//! Invariants:
//! - One function per statement, one guarded statement per transition, with its event in the same statement.
//! - Every write of a worker is fenced: the statement takes `for key share` on the worker's own live row and
//!   names the lease token; the reaper takes `for update` on that row before it moves anything (core-rules 2).
//! - Lock order: worker row, then executions in id order, then everything else by execution. A batch takes the
//!   executions with `skip locked` and repeats what it skipped, so no two batches wait for each other (core-rules
//!   9).
//! - No statement holds a transaction across a round trip, so a paused client cannot hold locks (core-rules 10).
//! - Time comes from `longhaul_now()`, which tests shift; leases, duties of the sweep and the pacing of breakers
//!   use the real clock.

pub mod agent_access;
pub mod api_keys;
pub mod audit;
pub mod bare_commits;
mod batch;
mod benchmark_data;
pub mod body;
pub mod budgets;
pub mod children;
pub mod claims;
mod connections;
pub mod contract;
pub mod control;
pub mod definitions;
pub mod document_generations;
pub mod durability;
pub mod duties;
pub mod erasure;
pub mod error;
pub mod events;
pub mod executions;
pub mod expiry;
mod formats;
pub mod history;
pub mod human_requests;
pub mod ids;
pub mod indexes;
pub mod journal;
pub mod lease_writer;
pub mod ledger;
pub mod list_filter;
pub mod maintenance;
pub mod outage;
pub mod outcomes;
mod partitions;
pub mod platform;
mod pool;
pub mod provider_failures;
pub mod provider_limits;
pub mod providers;
pub mod prune;
pub mod quarantine;
pub mod retry;
pub mod schema;
mod session;
pub mod sessions;
pub mod shares;
pub mod slots;
pub mod submit;
pub mod submit_answer;
pub mod tenants;
pub mod waiting;
pub mod workers;

pub use error::StoreError;
pub use pool::{Store, StoreOptions};
