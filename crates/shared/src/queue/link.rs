//! One Redis connection that is made when it is needed and made again after it failed.
//!
//! What must hold: every step has a timeout, and after a failure the next attempt waits (100 ms, doubling to 1 s). Any
//! error drops the connection, also one the server answered: a replica that was promoted away says READONLY on a
//! perfectly healthy socket. Whether to wait for the next attempt or to give up is the caller's choice.

use std::time::Duration;

use redis::{AsyncConnectionConfig, RedisError, RedisResult, aio::MultiplexedConnection};
use secrecy::ExposeSecret;
use tokio::time::{Instant, sleep_until};

use super::{QueueError, QueueOptions};
use crate::http::install_tls_provider;

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(1);

pub(super) struct Link {
    client: redis::Client,
    config: AsyncConnectionConfig,
    live: Option<MultiplexedConnection>,
    backoff: Backoff,
}

impl Link {
    /// `response_timeout` is the limit of one command on this connection. Does not connect yet.
    pub(super) fn new(options: &QueueOptions, response_timeout: Duration) -> Result<Self, QueueError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(response_timeout));
        Ok(Self { client: client(options)?, config, live: None, backoff: Backoff::default() })
    }

    /// Runs `commands` on the connection. Fails at once while the pause after a failure lasts.
    pub(super) async fn run<T>(
        &mut self,
        commands: impl AsyncFnOnce(&mut MultiplexedConnection) -> RedisResult<T>,
    ) -> RedisResult<T> {
        if self.live.is_none() && self.backoff.is_pausing() {
            return Err(RedisError::from((redis::ErrorKind::Io, "redis is away, the next attempt comes later")));
        }
        let outcome = self.attempt(commands).await;
        match &outcome {
            Ok(_) => self.backoff.reset(),
            Err(_) => {
                self.live = None;
                self.backoff.failed();
            }
        }
        outcome
    }

    /// Waits until the next attempt makes sense; at once unless the last one failed.
    pub(super) async fn pause(&self) {
        self.backoff.pause().await;
    }

    async fn attempt<T>(
        &mut self,
        commands: impl AsyncFnOnce(&mut MultiplexedConnection) -> RedisResult<T>,
    ) -> RedisResult<T> {
        // Taken out while in use: a caller that stops waiting drops the connection with what it still had to say.
        let mut connection = match self.live.take() {
            Some(connection) => connection,
            None => self.client.get_multiplexed_async_connection_with_config(&self.config).await?,
        };
        let answer = commands(&mut connection).await?;
        self.live = Some(connection);
        Ok(answer)
    }
}

/// The pause between attempts to reach Redis.
#[derive(Default)]
pub(super) struct Backoff {
    failures: u32,
    retry_at: Option<Instant>,
}

impl Backoff {
    pub(super) fn failed(&mut self) {
        let pause = FIRST_RETRY.saturating_mul(2_u32.saturating_pow(self.failures)).min(LAST_RETRY);
        self.failures += 1;
        self.retry_at = Some(Instant::now() + pause);
    }

    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    fn is_pausing(&self) -> bool {
        self.retry_at.is_some_and(|retry_at| Instant::now() < retry_at)
    }

    pub(super) async fn pause(&self) {
        if let Some(retry_at) = self.retry_at {
            sleep_until(retry_at).await;
        }
    }
}

pub(super) fn client(options: &QueueOptions) -> Result<redis::Client, QueueError> {
    // For rediss:// addresses.
    install_tls_provider();
    redis::Client::open(options.url.expose_secret()).map_err(QueueError::Url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_pause_doubles_up_to_a_second_and_ends_with_success() {
        let mut backoff = Backoff::default();
        let mut pauses = Vec::new();
        for _ in 0..6 {
            backoff.failed();
            let failed_at = Instant::now();
            assert!(backoff.is_pausing());
            backoff.pause().await;
            pauses.push(failed_at.elapsed().as_millis());
            assert!(!backoff.is_pausing());
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000]);
        backoff.failed();
        backoff.reset();
        assert!(!backoff.is_pausing());
    }
}
