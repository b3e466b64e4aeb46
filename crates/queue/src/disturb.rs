//! Fault injection for wake-ups: empties Redis, doubles wake-ups, drops wake-ups. Used by `longhaul verify`.
//!
//! Wake-ups are dropped between Redis and the worker, not from the list: a consumer blocked on the list receives a
//! wake-up as soon as it is pushed, so the list is nearly always empty. [`PopAnswers`] recognises such replies, and
//! a proxy discards their wake-ups.

use std::borrow::Cow;

use redis::{AsyncConnectionConfig, aio::MultiplexedConnection};

use super::{QueueError, QueueName, QueueOptions, keys::Keys, link::client, messages};

/// Common suffix of the commands `LMPOP` and `BLMPOP`.
const POP: &[u8] = b"LMPOP";
/// Reply to a pop that found no element (RESP null array).
const NOTHING_POPPED: &[u8] = b"*-1\r\n";

/// Injects faults into the wake-ups of one installation. Connects for each fault, because Redis may have been
/// restarted.
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

/// A Redis command failed.
#[derive(Debug, thiserror::Error)]
#[error("redis did not do it")]
pub struct DisturbError(#[source] redis::RedisError);

impl Disturber {
    /// # Errors
    /// [`QueueError::Url`] if the URL cannot be parsed.
    pub fn new(options: QueueOptions) -> Result<Self, QueueError> {
        Ok(Self { client: client(&options)?, keys: Keys::new(&options.prefix), options })
    }

    /// Runs `FLUSHALL` on the server, including data of other users. Returns the number of lost wake-ups of
    /// `queue`.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub async fn flush_all(&self, queue: &QueueName) -> Result<usize, DisturbError> {
        let mut pipeline = redis::pipe();
        pipeline.atomic().cmd("LLEN").arg(self.keys.wake(queue)).cmd("FLUSHALL").ignore();
        let mut connection = self.connect().await?;
        let (lost,): (usize,) = pipeline.query_async(&mut connection).await.map_err(DisturbError)?;
        Ok(lost)
    }

    /// Number of wake-ups in a queue's list.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub async fn depth(&self, queue: &QueueName) -> Result<usize, DisturbError> {
        let mut command = redis::cmd("LLEN");
        command.arg(self.keys.wake(queue));
        self.run(command).await
    }

    /// Pushes `count` wake-ups that stand for no work.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub async fn add_wakeups(&self, queue: &QueueName, count: usize) -> Result<(), DisturbError> {
        let mut command = redis::cmd("RPUSH");
        command.arg(self.keys.wake(queue));
        for _ in 0..count {
            command.arg(&messages::wakeup());
        }
        self.run::<usize>(command).await.map(drop)
    }

    async fn run<T: redis::FromRedisValue>(&self, command: redis::Cmd) -> Result<T, DisturbError> {
        let mut connection = self.connect().await?;
        command.query_async(&mut connection).await.map_err(DisturbError)
    }

    async fn connect(&self) -> Result<MultiplexedConnection, DisturbError> {
        // The handshake gets the time of a command, because the machine may be busy with the fleet.
        let limit = Some(self.options.command_timeout);
        let config = AsyncConnectionConfig::new().set_connection_timeout(limit).set_response_timeout(limit);
        self.client.get_multiplexed_async_connection_with_config(&config).await.map_err(DisturbError)
    }
}

/// A proxy's view of one worker connection: detects the connection that pops wake-ups (the ear), and the replies to
/// its pops. An ear has at most one command in flight, so all bytes from the server belong to one reply.
#[derive(Debug, Default)]
pub struct PopAnswers {
    is_ear: bool,
    answer: Vec<u8>,
}

impl PopAnswers {
    /// Inspects bytes from the client. Once a connection has popped, blocking or not, it sends nothing else.
    pub fn asked(&mut self, bytes: &[u8]) {
        self.is_ear = self.is_ear || bytes.windows(POP.len()).any(|at| at == POP);
    }

    /// Returns true while a reply is buffered and incomplete.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        !self.answer.is_empty()
    }

    /// Removes the wake-ups from bytes of the server. Returns the bytes to forward (none while a reply is
    /// incomplete) and the number of wake-ups removed.
    #[must_use]
    pub fn without_wakeups<'a>(&mut self, bytes: &'a [u8]) -> (Cow<'a, [u8]>, usize) {
        if !self.is_ear {
            return (Cow::Borrowed(bytes), 0);
        }
        self.answer.extend_from_slice(bytes);
        let Ok(answer) = redis::parse_redis_value(&self.answer) else { return (Cow::Borrowed(&[]), 0) };
        let whole = std::mem::take(&mut self.answer);
        match redis::from_redis_value::<Option<(String, Vec<Vec<u8>>)>>(answer) {
            Ok(Some((_list, wakeups))) => (Cow::Borrowed(NOTHING_POPPED), wakeups.len()),
            Ok(None) | Err(_) => (Cow::Owned(whole), 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POPPED: &[u8] = b"*2\r\n$1\r\nl\r\n*2\r\n$2\r\nab\r\n$0\r\n\r\n";

    #[test]
    fn wakeups_are_dropped_only_from_pop_answers() {
        let mut other = PopAnswers::default();
        other.asked(b"*1\r\n$4\r\nPING\r\n");
        assert_eq!(other.without_wakeups(POPPED), (Cow::Borrowed(POPPED), 0));

        let mut ear = PopAnswers::default();
        ear.asked(b"*6\r\n$6\r\nBLMPOP\r\n");
        assert_eq!(ear.without_wakeups(POPPED), (Cow::Borrowed(NOTHING_POPPED), 2));
        for passes in [NOTHING_POPPED, b"-LOADING redis is loading\r\n"] {
            assert_eq!(ear.without_wakeups(passes), (Cow::Borrowed(passes), 0));
        }
    }

    #[test]
    fn fragmented_answer_is_read_as_one() {
        let mut ear = PopAnswers::default();
        ear.asked(b"*5\r\n$5\r\nLMPOP\r\n");
        let (first, rest) = POPPED.split_at(9);
        assert_eq!(ear.without_wakeups(first), (Cow::Borrowed([].as_slice()), 0));
        assert!(ear.is_incomplete());
        assert_eq!(ear.without_wakeups(rest), (Cow::Borrowed(NOTHING_POPPED), 2));
        assert!(!ear.is_incomplete());
    }
}
