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

mod keys;
mod link;
mod messages;

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use secrecy::SecretString;

/// Connection and limits of the queue.
#[derive(Debug, Clone)]
pub struct QueueOptions {
    /// URL with scheme `redis://` or `rediss://`; may carry a password.
    pub url: SecretString,
    /// First part of every key. Installations that share a Redis need different prefixes.
    pub prefix: String,
    /// Maximum number of wake-ups in a queue's list. A larger list would not speed anything up: under backlog a
    /// claim takes the next executions of the queue regardless of the list.
    pub list_cap: usize,
    /// Timeout of one command. The `redis` crate's default of 500 ms would treat a slow script as an outage.
    pub command_timeout: Duration,
    /// Timeout of one connection attempt, including the handshake.
    pub connect_timeout: Duration,
}

impl QueueOptions {
    /// Returns the default options for a server and a prefix.
    pub fn new(url: SecretString, prefix: impl Into<String>) -> Self {
        Self {
            url,
            prefix: prefix.into(),
            list_cap: 1_000,
            command_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(1),
        }
    }
}

/// Name of a queue: 1 to 64 characters of `a-z 0-9 . _ -`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueName(Arc<str>);

impl QueueName {
    /// # Errors
    /// [`InvalidQueueName`] if the name is empty, too long or has another character.
    pub fn new(name: &str) -> Result<Self, InvalidQueueName> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) {
            return Err(InvalidQueueName { name: name.chars().take(80).collect() });
        }
        Ok(Self(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for QueueName {
    type Err = InvalidQueueName;

    fn from_str(name: &str) -> Result<Self, InvalidQueueName> {
        Self::new(name)
    }
}

/// A queue name that breaks the rule of [`QueueName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("queue name {name:?} must be 1 to 64 characters of a-z, 0-9, '.', '_' and '-'")]
pub struct InvalidQueueName {
    name: String,
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_names_are_short_and_plain() {
        for good in ["a", "default", "billing.eu-1_x", &"q".repeat(64)] {
            assert_eq!(QueueName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "Default", "a b", "a:b", "{a}", "ä", &"q".repeat(65)] {
            assert!(QueueName::new(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
