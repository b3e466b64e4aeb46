//! The wake-up transport: Redis and apalis, and the only place where either is named.
//!
//! Postgres is the truth; nothing here is authoritative. A **wake-up** says that a queue has work. It gives no right to
//! anything: whoever hears one asks Postgres for the next executions in fair order, and the claim is the lease.
//! Therefore a wake-up
//! - may be **lost** (Redis restarted, emptied or unreachable; the list at its cap; the process that took it died): the
//!   sweep brings every list up to the rows that are due each second, consumers ask Postgres every few seconds while all
//!   is quiet, and at least twice a second while Redis does not answer;
//! - may be **late**: the claim reads what is due now, not what the wake-up said;
//! - may be **doubled**: the second claim finds nothing, which is counted and costs one query.
//!
//! **Looks** (`hints.rs`) tell observers that an execution changed; they may be lost and doubled just the same, because
//! observers also read each second.
//!
//! What must hold: a Redis that stalls, restarts or is emptied delays no submit, no claim and no handler, and cancels
//! nothing that runs; nothing is claimed without a permit; every buffer here is bounded and drops at its limit.
//! Not here: leases, retries, delays and priorities. Those are columns in Postgres.

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

/// Where the wake-ups live.
#[derive(Debug, Clone)]
pub struct QueueOptions {
    /// `redis://` or `rediss://`; may carry a password.
    pub url: SecretString,
    /// First part of every key; installations that share a Redis differ in it.
    pub prefix: String,
    /// The most wake-ups a queue's list holds. More would not make anybody faster: under backlog a claim takes the next
    /// executions of the queue, whatever the list says.
    pub list_cap: usize,
    /// Limit of one command. The `redis` crate's own default, 500 ms, takes a slow script for an outage.
    pub command_timeout: Duration,
    /// Limit of one connection attempt, handshake included.
    pub connect_timeout: Duration,
}

impl QueueOptions {
    /// The defaults, for a server and a prefix.
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

/// The name of a queue: 1 to 64 characters of `a-z 0-9 . _ -`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueName(Arc<str>);

impl QueueName {
    /// # Errors
    /// [`InvalidQueueName`] when the name is empty, too long or has another character.
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

/// Why the queue could not start or had to stop. A Redis that is merely away is never an error.
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
