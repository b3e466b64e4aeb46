//! Settings of a consumer.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use tokio::sync::Notify;

use super::super::{QueueName, QueueOptions};

/// Settings of a consumer.
#[derive(Debug, Clone)]
pub struct ConsumerConfig {
    /// Redis that holds the wake-ups.
    pub redis: QueueOptions,
    /// Queues to listen to. Must be the queues that `claim` serves.
    pub queues: Vec<QueueName>,
    /// Maximum executions per claim.
    pub batch_max: usize,
    /// Permits that are kept for tenants that hold none here.
    pub kept: usize,
    /// Interval of looks for such tenants while only kept permits are free.
    pub look_every: Duration,
    /// Notified when a tenant holds no permit any more, for a look at once.
    pub returned: Arc<Notify>,
    /// Interval of claims while Redis answers and no wake-up arrives.
    pub poll_idle: Duration,
    /// True if `claim` takes every execution of its queues. If false, a wake-up that brought no execution is passed
    /// on.
    pub serves_all: Arc<AtomicBool>,
    /// Interval of claims while Redis does not answer. Interval plus duration of a claim must stay below one
    /// second.
    pub poll_away: Duration,
}

impl ConsumerConfig {
    /// Returns the default settings for a server and queues.
    pub fn new(redis: QueueOptions, queues: Vec<QueueName>) -> Self {
        Self {
            redis,
            queues,
            batch_max: 256,
            kept: 0,
            look_every: Duration::from_millis(250),
            returned: Arc::default(),
            poll_idle: Duration::from_secs(5),
            serves_all: Arc::new(AtomicBool::new(true)),
            poll_away: Duration::from_millis(500),
        }
    }
}
