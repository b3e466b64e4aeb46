//! The delivery of one process: it takes lanes with something due, and delivers to several at a time.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use longhaul_shared::{guarded_client::GuardedClient, sealing::Sealer, telemetry::metrics};
use longhaul_store::{
    Store, StoreError,
    tenants::api_keys::Pepper,
    webhooks::{DisabledBecause, Due, EndpointKind, EndpointOf, Lane, Outcome, Settled},
};
use secrecy::ExposeSecret;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use crate::{
    attempt::{self, settled},
    email::{Mailer, Post},
    message::Message,
    signature::secret,
    slack,
};

/// Lanes of one process at a time, and how many of them may be doubtful.
const MAX_LANES: usize = 64;
const MAX_DOUBTFUL: usize = 32;
/// Deliveries of one lane at a time, once one was delivered.
const AT_ONCE: usize = 8;
/// Interval of the look for lanes with something due.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Time after which a lane makes room for others.
const TURN: Duration = Duration::from_secs(10);
/// Time for which a lane is held beyond its turn and its last attempt.
const SPARE: Duration = Duration::from_secs(30);
/// Events of which deliveries are made in one look.
const TELL_AT_ONCE: i64 = 500;
/// Interval of giving up and deleting deliveries, and their number at a time.
const TIDY_EVERY: Duration = Duration::from_secs(60);
const TIDY_AT_ONCE: i64 = 10_000;
/// Portions of the deliveries of deleted endpoints removed at a time.
const REMOVALS: usize = 10;

#[derive(Debug, Clone, Copy)]
pub struct WebhookOptions {
    /// True if endpoints may have private addresses.
    pub allow_private: bool,
    /// Limit of one attempt.
    pub timeout: Duration,
    /// Time without a success after which an endpoint is disabled.
    pub patience: Duration,
}

/// Keys and connections of channels. By default nothing can be sent to one.
#[derive(Debug, Clone, Default)]
pub struct Channels {
    /// Opens the URLs of Slack channels.
    pub sealer: Sealer,
    /// `None`: no mail is sent.
    pub mailer: Option<Mailer>,
}

struct Delivery {
    store: Store,
    pepper: Pepper,
    client: GuardedClient,
    options: WebhookOptions,
    channels: Channels,
    shutdown: CancellationToken,
}

/// Delivers until `shutdown`, then completes the attempts under way.
///
/// # Errors
/// The machine's TLS roots cannot be read; as a message.
pub async fn deliver(
    store: Store,
    pepper: Pepper,
    options: WebhookOptions,
    channels: Channels,
    shutdown: CancellationToken,
) -> Result<(), String> {
    let client = GuardedClient::new(options.allow_private)?;
    for because in [DisabledBecause::Failures, DisabledBecause::Gone] {
        metrics::webhooks_disabled(because.as_str(), 0);
    }
    let delivery = Arc::new(Delivery { store, pepper, client, options, channels, shutdown: shutdown.clone() });
    let (all, doubtful) = (Arc::new(Semaphore::new(MAX_LANES)), Arc::new(Semaphore::new(MAX_DOUBTFUL)));
    let mut lanes = JoinSet::new();
    let (mut looks, mut tidies) = (interval(LOOK_EVERY), interval(TIDY_EVERY));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            _ = tidies.tick() => {
                delivery.tidy().await;
                continue;
            }
            () = shutdown.cancelled() => break,
        }
        while lanes.try_join_next().is_some() {}
        // Workers do so at once; a fleet without workers has this process alone.
        if let Err(error) = delivery.store.trouble().on_one_server(delivery.store.tell_due_webhooks(TELL_AT_ONCE)).await
        {
            tracing::debug!(%error, "what has ended is told later");
        }
        let hold = TURN + options.timeout + SPARE;
        let claiming = delivery.store.claim_lanes(all.available_permits(), doubtful.available_permits(), hold);
        let claimed = delivery.store.trouble().on_one_server(claiming).await;
        // Readiness reports the outage; what is due stays due.
        for lane in claimed.unwrap_or_default() {
            // Permits are taken here alone, so there is one for each claimed lane.
            let permit = |of: &Arc<Semaphore>| Arc::clone(of).try_acquire_owned().ok();
            let permits = [permit(&all), lane.is_doubtful.then(|| permit(&doubtful)).flatten()];
            lanes.spawn(run_lane(Arc::clone(&delivery), lane, permits));
        }
    }
    lanes.join_all().await;
    Ok(())
}

async fn run_lane(delivery: Arc<Delivery>, lane: Lane, _permits: [Option<OwnedSemaphorePermit>; 2]) {
    // What was not stored is delivered again once the lane is held no more.
    if let Err(error) = delivery.serve(&lane).await {
        tracing::warn!(%error, webhook.id = %lane.endpoint, "deliveries were not stored");
    }
    let releasing = delivery.store.release_lane(&lane);
    if let Err(error) = delivery.store.trouble().on_one_server(releasing).await {
        tracing::warn!(%error, webhook.id = %lane.endpoint, "a lane is held until its time is over");
    }
}

impl Delivery {
    /// Delivers what is due on a lane until its turn is over or its endpoint fails.
    async fn serve(&self, lane: &Lane) -> Result<(), StoreError> {
        let numbers = [Some(lane.secret_number), lane.signs_twice.then(|| lane.secret_number - 1)];
        let secrets: Vec<Vec<u8>> =
            numbers.into_iter().flatten().map(|number| secret(&self.pepper, lane.endpoint, number)).collect();
        let (until, trouble) = (Instant::now() + TURN, self.store.trouble());
        let mut at_once = 1;
        while Instant::now() < until && !self.shutdown.is_cancelled() {
            let due = trouble.on_one_server(self.store.due_deliveries(lane, at_once)).await?;
            if due.is_empty() {
                break;
            }
            let attempts = due.iter().map(|due| self.attempt(lane, &secrets, due));
            let settled: Vec<Settled> = join_all(attempts).await;
            settled.iter().for_each(|of| metrics::webhook_attempt(of.outcome.as_str()));
            let settling = self.store.settle_deliveries(lane, &settled, self.options.patience);
            if let Some(because) = trouble.on_one_server(settling).await? {
                tell_disabled(lane, because);
            }
            if settled.iter().any(|of| matches!(of.outcome, Outcome::Away | Outcome::Gone)) {
                break;
            }
            at_once = match lane.kind {
                EndpointKind::Standard => AT_ONCE,
                // In the order of the events; chats limit the rate.
                EndpointKind::Slack | EndpointKind::Email => 1,
            };
        }
        Ok(())
    }

    async fn attempt(&self, lane: &Lane, secrets: &[Vec<u8>], due: &Due) -> Settled {
        if lane.kind == EndpointKind::Standard {
            return attempt::attempt(&self.client, &lane.url, secrets, due, self.options.timeout).await;
        }
        match Message::of(&self.store, lane.tenant, due).await {
            Ok(Some(message)) if lane.kind == EndpointKind::Email => self.mail(lane, &message, due).await,
            Ok(Some(message)) => self.post(lane, &message, due).await,
            Ok(None) => settled(due, Outcome::Delivered, None),
            // If Postgres is away, this is not stored either, and the delivery stays due.
            Err(error) => settled(due, Outcome::Refused, Some(format!("its text cannot be read: {error}"))),
        }
    }

    async fn post(&self, lane: &Lane, message: &Message, due: &Due) -> Settled {
        match self.channels.sealer.open(&lane.url) {
            Ok(url) => {
                let message = slack::post(message, &self.pepper, channel(lane));
                attempt::post(&self.client, url.expose_secret(), &message, due, self.options.timeout).await
            }
            Err(error) => settled(due, Outcome::Away, Some(error.to_string())),
        }
    }

    async fn mail(&self, lane: &Lane, message: &Message, due: &Due) -> Settled {
        let Some(mailer) = &self.channels.mailer else {
            return settled(due, Outcome::Away, Some("this installation sends no mail (email.smtp_url)".into()));
        };
        let post = Post { url: &lane.url, delivery: due.id, channel: channel(lane), pepper: &self.pepper };
        let (outcome, error) = mailer.send(message, &post, self.options.timeout).await;
        settled(due, outcome, error)
    }

    async fn tidy(&self) {
        let tidying = async {
            metrics::webhooks_given_up(self.store.tidy_deliveries(TIDY_AT_ONCE).await?);
            for _ in 0..REMOVALS {
                if self.store.remove_deliveries(TIDY_AT_ONCE).await? < TIDY_AT_ONCE {
                    break;
                }
            }
            Ok::<(), StoreError>(())
        };
        if let Err(error) = self.store.trouble().on_one_server(tidying).await {
            tracing::warn!(%error, "old deliveries of webhooks were not tidied");
        }
    }
}

fn channel(lane: &Lane) -> EndpointOf {
    EndpointOf { tenant: lane.tenant, id: lane.endpoint }
}

fn tell_disabled(lane: &Lane, because: DisabledBecause) {
    metrics::webhooks_disabled(because.as_str(), 1);
    tracing::warn!(
        webhook.id = %lane.endpoint,
        tenant.id = %lane.tenant.0,
        reason = because.as_str(),
        "a webhook is disabled"
    );
}
