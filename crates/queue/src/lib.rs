//! The wake-up transport. Only this module names Redis and apalis.
//!
//! Postgres is the truth; nothing here is authoritative. A **wake-up** says that a queue has work and gives no
//! right to an execution: its receiver asks Postgres for the next executions in fair order, and the claim is the
//! lease. A wake-up may be
//! - **lost** (Redis restarted, emptied or unreachable; the list at its cap; the process that popped it died): each
//!   second the sweep refills the lists for rows that are due, and consumers poll Postgres every few seconds when
//!   idle and at least twice a second while Redis does not answer;
//! - **late**: the claim reads the rows that are due now;
//! - **doubled**: the second claim finds no row, which is counted and costs one query.
//!
//! **Looks** (`hints.rs`) tell observers that an execution changed. They may be lost or doubled as well, because
//! observers also poll each second.
//!
//! Invariants: a Redis that stalls, restarts or is emptied delays no submit, claim or handler, and cancels nothing
//! that runs; nothing is claimed without a permit; every buffer is bounded and drops at its limit. Leases, retries,
//! delays and priorities are columns in Postgres, not part of this module.

pub mod consumer;
pub mod disturb;
pub mod hints;
pub mod model_calls;
pub mod producer;
pub mod watch;

mod keys;
mod link;
mod messages;
mod replies;

pub use longhaul_config::QueueOptions;
pub use longhaul_domain::QueueName;

/// Reason why the queue could not start or had to stop. A Redis outage is never an error.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    #[error("the redis url is not usable")]
    Url(#[source] redis::RedisError),
    #[error("a consumer needs at least one queue")]
    NoQueues,
    #[error("the fetch loop ended unasked")]
    FetchEnded(#[source] Option<tokio::task::JoinError>),
    #[error("the apalis monitor ended unasked: {reason}")]
    MonitorEnded { reason: String },
}
