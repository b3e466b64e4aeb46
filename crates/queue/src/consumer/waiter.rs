//! The wait for work of a worker that another process speaks for: an API process waits in its place while the worker's
//! claim is open.

use tokio::time::{Instant, timeout_at};

use super::{ConsumerConfig, wakeups::Wakeups};
use crate::{QueueError, QueueName, QueueOptions};

/// Wake-ups for one worker. Holds a connection to Redis.
pub struct Waiter {
    wakeups: Wakeups,
    claimed_at: Option<Instant>,
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waiter")
    }
}

impl Waiter {
    /// A waiter for work in these queues.
    ///
    /// # Errors
    /// The address of Redis is not usable.
    pub fn new(redis: QueueOptions, queues: Vec<QueueName>) -> Result<Self, QueueError> {
        Ok(Self { wakeups: Wakeups::new(&ConsumerConfig::new(redis, queues))?, claimed_at: None })
    }

    /// Notes a claim, which made `claimed` executions of up to `wanted`. Wake-ups that brought none are passed on to
    /// other workers of their queue; after a full claim no wait is needed.
    pub async fn claimed(&mut self, claimed: usize, wanted: usize) {
        self.wakeups.pass_on(claimed).await;
        self.claimed_at = (claimed < wanted).then(Instant::now);
    }

    /// Waits for a reason to claim up to `count` executions: a wake-up or, without one, a poll of Postgres as a worker
    /// makes it. Returns false if `until` came first.
    pub async fn wait(&mut self, count: usize, until: Instant) -> bool {
        timeout_at(until, self.wakeups.reason_to_claim(count, self.claimed_at)).await.is_ok()
    }
}
