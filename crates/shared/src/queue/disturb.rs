//! What can happen to wake-ups, done on purpose: Redis emptied, wake-ups lost, wake-ups doubled. For `longhaul verify`.

use redis::AsyncConnectionConfig;

use super::{QueueError, QueueName, QueueOptions, keys::Keys, link::client, messages};

/// Disturbs the wake-ups of one installation. Connects anew for each disturbance: Redis may have been restarted meanwhile.
pub struct Disturber {
    client: redis::Client,
    options: QueueOptions,
    keys: Keys,
}

impl std::fmt::Debug for Disturber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disturber").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// Redis did not do it.
#[derive(Debug, thiserror::Error)]
#[error("redis did not do it")]
pub struct DisturbError(#[source] redis::RedisError);

impl Disturber {
    /// # Errors
    /// [`QueueError::Url`] when the address cannot be parsed.
    pub fn new(options: QueueOptions) -> Result<Self, QueueError> {
        Ok(Self { client: client(&options)?, keys: Keys::new(&options.prefix), options })
    }

    /// Empties the server, whoever uses it.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn flush_all(&self) -> Result<(), DisturbError> {
        self.run(redis::cmd("FLUSHALL")).await
    }

    /// Throws away every wake-up of a queue. Returns whether there were any.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn drop_wakeups(&self, queue: &QueueName) -> Result<bool, DisturbError> {
        let mut command = redis::cmd("DEL");
        command.arg(self.keys.wake(queue));
        self.run(command).await
    }

    /// Adds `count` wake-ups for no work to a queue.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn add_wakeups(&self, queue: &QueueName, count: usize) -> Result<(), DisturbError> {
        let mut command = redis::cmd("RPUSH");
        command.arg(self.keys.wake(queue));
        for _ in 0..count {
            command.arg(&messages::wakeup());
        }
        self.run::<usize>(command).await.map(drop)
    }

    async fn run<T: redis::FromRedisValue>(&self, command: redis::Cmd) -> Result<T, DisturbError> {
        // On a machine that is busy with the fleet a handshake may take as long as a command.
        let limit = Some(self.options.command_timeout);
        let config = AsyncConnectionConfig::new().set_connection_timeout(limit).set_response_timeout(limit);
        let asked = async {
            let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            command.query_async(&mut connection).await
        };
        asked.await.map_err(DisturbError)
    }
}
