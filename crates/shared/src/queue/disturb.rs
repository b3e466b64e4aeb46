//! What can happen to wake-ups, done on purpose: Redis emptied, wake-ups doubled, wake-ups lost. For `longhaul verify`.
//!
//! Wake-ups are lost on their way to the worker: whoever blocks on a list has a wake-up the moment it is pushed, so that the list
//! itself is empty whenever one looks. [`PopAnswers`] knows the way, and a proxy throws away what it says.

use std::borrow::Cow;

use redis::{AsyncConnectionConfig, aio::MultiplexedConnection};

use super::{QueueError, QueueName, QueueOptions, keys::Keys, link::client, messages};

/// The end of both commands that take wake-ups, blocking or not.
const POP: &[u8] = b"LMPOP";
/// What the server says when a pop found nothing.
const NOTHING_POPPED: &[u8] = b"*-1\r\n";

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

    /// Empties the server, whoever uses it. Returns how many wake-ups of `queue` went with the rest.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn flush_all(&self, queue: &QueueName) -> Result<usize, DisturbError> {
        let mut pipeline = redis::pipe();
        pipeline.atomic().cmd("LLEN").arg(self.keys.wake(queue)).cmd("FLUSHALL").ignore();
        let mut connection = self.connect().await?;
        let (lost,): (usize,) = pipeline.query_async(&mut connection).await.map_err(DisturbError)?;
        Ok(lost)
    }

    /// How many wake-ups a queue holds.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn depth(&self, queue: &QueueName) -> Result<usize, DisturbError> {
        let mut command = redis::cmd("LLEN");
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
        let mut connection = self.connect().await?;
        command.query_async(&mut connection).await.map_err(DisturbError)
    }

    async fn connect(&self) -> Result<MultiplexedConnection, DisturbError> {
        // On a machine that is busy with the fleet a handshake may take as long as a command.
        let limit = Some(self.options.command_timeout);
        let config = AsyncConnectionConfig::new().set_connection_timeout(limit).set_response_timeout(limit);
        self.client.get_multiplexed_async_connection_with_config(&config).await.map_err(DisturbError)
    }
}

/// The ear of a worker as a proxy sees it: which connection pops wake-ups, and what a pop brought.
///
/// An ear has one command under way at a time, so that all bytes from the server are one answer.
#[derive(Debug, Default)]
pub struct PopAnswers {
    is_ear: bool,
    answer: Vec<u8>,
}

impl PopAnswers {
    /// Looks at what the client sends: an ear asks for nothing else once it pops, blocking or not.
    pub fn asked(&mut self, bytes: &[u8]) {
        self.is_ear = self.is_ear || bytes.windows(POP.len()).any(|at| at == POP);
    }

    /// Whether the rest of an answer must come here too.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        !self.answer.is_empty()
    }

    /// Takes the wake-ups out of what the server sends. Returns what is left to pass on, nothing while an answer is incomplete, and
    /// how many wake-ups there were.
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
    fn wakeups_are_taken_out_of_the_answers_to_pops_alone() {
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
    fn an_answer_in_pieces_is_one_answer() {
        let mut ear = PopAnswers::default();
        ear.asked(b"*5\r\n$5\r\nLMPOP\r\n");
        let (first, rest) = POPPED.split_at(9);
        assert_eq!(ear.without_wakeups(first), (Cow::Borrowed([].as_slice()), 0));
        assert!(ear.is_incomplete());
        assert_eq!(ear.without_wakeups(rest), (Cow::Borrowed(NOTHING_POPPED), 2));
        assert!(!ear.is_incomplete());
    }
}
