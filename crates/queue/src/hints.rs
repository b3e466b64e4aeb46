//! Subscribes to looks: notifications of changed executions.
//!
//! A look is a hint to read Postgres now. Losing looks is harmless, because followers also poll at least every
//! second. On every (re)connect followers are told to read everything, since messages sent in between are lost.

use std::time::Duration;

use futures::StreamExt;
use redis::aio::PubSub;
use tokio::{
    sync::broadcast,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    QueueError, QueueOptions,
    keys::Keys,
    link::{Backoff, client},
    messages::read_look,
};

pub use super::messages::{Look, TextDelta};

/// Capacity in batches. A slower follower lags and skips to the newest ones.
const BEHIND: usize = 256;
/// Interval of pings on a silent connection.
const PING_EVERY: Duration = Duration::from_secs(10);

/// A subscription to looks, cancelled on drop.
#[derive(Debug)]
pub struct LookSubscriber {
    looks: broadcast::Sender<Look>,
    _task: AbortOnDropHandle<()>,
}

impl LookSubscriber {
    /// Starts listening on the current runtime. Redis may be unavailable.
    ///
    /// # Errors
    /// [`QueueError::Url`] if the URL cannot be parsed.
    pub fn start(options: &QueueOptions) -> Result<Self, QueueError> {
        let (looks, _) = broadcast::channel(BEHIND);
        let listener = Listener {
            client: client(options)?,
            channel: Keys::new(&options.prefix).look(),
            texts: Keys::new(&options.prefix).text(),
            command_timeout: options.command_timeout,
            connect_timeout: options.connect_timeout,
            looks: looks.clone(),
        };
        Ok(Self { looks, _task: AbortOnDropHandle::new(tokio::spawn(listener.run())) })
    }

    /// Returns a receiver of future looks. Treat lag as [`Look::AtEverything`].
    pub fn subscribe(&self) -> broadcast::Receiver<Look> {
        self.looks.subscribe()
    }
}

struct Listener {
    client: redis::Client,
    channel: String,
    /// Channel of [`TextDelta`]s.
    texts: String,
    command_timeout: Duration,
    connect_timeout: Duration,
    looks: broadcast::Sender<Look>,
}

impl Listener {
    async fn run(self) {
        let mut backoff = Backoff::default();
        loop {
            backoff.pause().await;
            match timeout(self.connect_timeout, self.subscribe()).await {
                Ok(Ok(subscription)) => {
                    backoff.reset();
                    let _ = self.looks.send(Look::AtEverything);
                    self.listen(subscription).await;
                }
                Ok(Err(error)) => tracing::debug!(%error, "subscription to looks failed"),
                Err(_) => tracing::debug!("subscription to looks timed out"),
            }
            backoff.failed();
        }
    }

    async fn subscribe(&self) -> redis::RedisResult<PubSub> {
        let mut subscription = self.client.get_async_pubsub().await?;
        subscription.subscribe(&[&self.channel, &self.texts]).await?;
        Ok(subscription)
    }

    /// Forwards looks until the connection is lost.
    async fn listen(&self, subscription: PubSub) {
        let (mut sink, mut messages) = subscription.split();
        let mut ping_at = Instant::now() + PING_EVERY;
        loop {
            tokio::select! {
                message = messages.next() => {
                    let Some(message) = message else { return };
                    let look = if message.get_channel_name() == self.texts {
                        // A later release may write another form; the recorded turns have the text.
                        let Ok(deltas) = serde_json::from_slice::<Vec<TextDelta>>(message.get_payload_bytes()) else {
                            continue;
                        };
                        Look::Text(deltas.into())
                    } else {
                        read_look(message.get_payload_bytes())
                    };
                    // An error means that there are no followers at the moment.
                    let _ = self.looks.send(look);
                }
                // A peer that disappears without closing the connection never ends the stream; the ping detects it.
                () = sleep_until(ping_at) => {
                    let pong = timeout(self.command_timeout, sink.ping::<redis::Value>()).await;
                    if !matches!(pong, Ok(Ok(_))) {
                        return;
                    }
                    ping_at = Instant::now() + PING_EVERY;
                }
            }
        }
    }
}
