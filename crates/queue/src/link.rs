//! Redis connections that connect on demand and reconnect after failures.
//!
//! Invariants: every step has a timeout; after a failure the next attempt waits (`FIRST_RETRY`, doubling to
//! `LAST_RETRY`); every error drops the connection, even an error reply, because a demoted primary answers READONLY on
//! a healthy socket.
//! The caller chooses to wait for the next attempt or to give up.

use std::{
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use redis::{AsyncConnectionConfig, RedisError, RedisResult, aio::MultiplexedConnection};
use secrecy::ExposeSecret;
use tokio::{
    sync::{Mutex, Semaphore},
    time::{Instant, sleep_until, timeout},
};

use super::{QueueError, QueueOptions};
use longhaul_shared::tls::install_tls_provider;

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(1);

pub(super) struct Link {
    client: redis::Client,
    config: AsyncConnectionConfig,
    live: Option<MultiplexedConnection>,
    backoff: Backoff,
}

impl Link {
    /// Creates an unconnected link. `response_timeout` limits each command.
    pub(super) fn new(options: &QueueOptions, response_timeout: Duration) -> Result<Self, QueueError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(response_timeout));
        Ok(Self { client: client(options)?, config, live: None, backoff: Backoff::default() })
    }

    /// Runs `commands`. During the backoff pause after a failure it fails immediately.
    pub(super) async fn run<T>(
        &mut self,
        commands: impl AsyncFnOnce(&mut MultiplexedConnection) -> RedisResult<T>,
    ) -> RedisResult<T> {
        if self.live.is_none() && self.backoff.is_pausing() {
            return Err(away());
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

    /// Waits for the end of the backoff pause; returns immediately if there is none.
    pub(super) async fn pause(&self) {
        self.backoff.pause().await;
    }

    async fn attempt<T>(
        &mut self,
        commands: impl AsyncFnOnce(&mut MultiplexedConnection) -> RedisResult<T>,
    ) -> RedisResult<T> {
        // Taken out while in use: if the caller is cancelled, the connection is dropped together with its pending
        // reply.
        let mut connection = match self.live.take() {
            Some(connection) => connection,
            None => self.client.get_multiplexed_async_connection_with_config(&self.config).await?,
        };
        let answer = commands(&mut connection).await?;
        self.live = Some(connection);
        Ok(answer)
    }
}

/// Maximum commands in flight on a [`SharedLink`]; further callers wait. Smaller than the connection's own queue,
/// so that the reply timeout starts when the command is written.
const PIPELINED: usize = 48;

/// One Redis connection shared by concurrent callers: commands are pipelined.
///
/// Invariant: an outage is a state of the connection. Waiting for a permit in this process has no limit and is no
/// sign of an outage. One late reply or error marks the connection as away for every caller at once.
pub(super) struct SharedLink {
    client: redis::Client,
    config: AsyncConnectionConfig,
    answer_limit: Duration,
    turns: Semaphore,
    /// Held while connecting, never while a command is in flight.
    state: Mutex<SharedState>,
    is_away: AtomicBool,
}

#[derive(Default)]
struct SharedState {
    live: Option<MultiplexedConnection>,
    /// Sequence number of `live`, counting all connections made.
    number: u64,
    backoff: Backoff,
}

impl SharedLink {
    /// Creates an unconnected link.
    pub(super) fn new(options: &QueueOptions, answer_limit: Duration) -> Result<Self, QueueError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(None);
        Ok(Self {
            client: client(options)?,
            config,
            answer_limit,
            turns: Semaphore::new(PIPELINED),
            state: Mutex::default(),
            is_away: AtomicBool::new(false),
        })
    }

    /// Runs `commands`. Fails immediately while Redis is away.
    pub(super) async fn run<T>(
        &self,
        commands: impl AsyncFnOnce(&mut MultiplexedConnection) -> RedisResult<T>,
    ) -> RedisResult<T> {
        let _turn = self.turns.acquire().await;
        let (number, mut connection) = self.connection().await?;
        let outcome = in_time(self.answer_limit, commands(&mut connection)).await;
        if outcome.is_err() {
            self.failed(number).await;
        }
        outcome
    }

    async fn connection(&self) -> RedisResult<(u64, MultiplexedConnection)> {
        let mut state = if self.is_away.load(Ordering::Relaxed) {
            // If the lock is taken, another caller is already reconnecting.
            self.state.try_lock().map_err(|_| away())?
        } else {
            self.state.lock().await
        };
        if let Some(connection) = &state.live {
            return Ok((state.number, connection.clone()));
        }
        if state.backoff.is_pausing() {
            return Err(away());
        }
        match self.client.get_multiplexed_async_connection_with_config(&self.config).await {
            Ok(connection) => {
                state.number += 1;
                state.live = Some(connection.clone());
                state.backoff.reset();
                self.is_away.store(false, Ordering::Relaxed);
                Ok((state.number, connection))
            }
            Err(error) => {
                state.backoff.failed();
                self.is_away.store(true, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// Drops the connection on which a command failed, unless it has already been replaced.
    async fn failed(&self, number: u64) {
        let mut state = self.state.lock().await;
        if state.number == number && state.live.take().is_some() {
            state.backoff.failed();
            self.is_away.store(true, Ordering::Relaxed);
        }
    }
}

fn away() -> RedisError {
    RedisError::from((redis::ErrorKind::Io, "redis is away, the next attempt comes later"))
}

/// Limits the wait for a reply. If the timer fires late, this process itself stalled, so the reply gets the full
/// limit again.
async fn in_time<T>(limit: Duration, answer: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let mut answer = pin!(answer);
    loop {
        let asked = Instant::now();
        match timeout(limit, &mut answer).await {
            Ok(answer) => return answer,
            Err(_) if asked.elapsed() > limit + limit / 2 => {}
            Err(_) => return Err(RedisError::from((redis::ErrorKind::Io, "redis did not answer in time"))),
        }
    }
}

/// Exponential backoff between attempts to reach Redis.
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
    // Required by rediss:// URLs.
    install_tls_provider();
    redis::Client::open(options.url.expose_secret()).map_err(QueueError::Url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn backoff_doubles_to_a_second_until_success() {
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
