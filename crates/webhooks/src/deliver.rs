//! The delivery of one process: it takes lanes with something due, and delivers to many at a time. Lanes and attempts are
//! shared between tenants, so that slow endpoints of some delay no other tenant.

use std::{sync::Arc, time::Duration};

use longhaul_fairness::{FairShare, Share};
use longhaul_shared::{domain::TenantId, guarded_client::GuardedClient, sealing::Sealer, telemetry::metrics};
use longhaul_store::{
    Store,
    tenants::api_keys::Pepper,
    webhooks::{DisabledBecause, Due, EndpointKind, EndpointOf, HeldLanes, Lane, Outcome, Settled},
};
use secrecy::ExposeSecret;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    attempt::{self, settled},
    email::{Mailer, Post},
    lane,
    message::Message,
    slack,
};

/// Lanes of one process at a time, and how many are claimed at once to take over those of others.
const MAX_LANES: u64 = 1_024;
const TAKEN_OVER: u64 = 64;
/// Attempts of one process at a time, and further ones for tenants that have none under way.
const MAX_ATTEMPTS: u64 = 512;
const KEPT_ATTEMPTS: u64 = 51;
/// Interval of the look for lanes with something due.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Interval of giving up and deleting deliveries, and their number at a time.
const TIDY_EVERY: Duration = Duration::from_secs(60);
const TIDY_AT_ONCE: i64 = 10_000;
/// Events of which deliveries are made in one look.
const TELL_AT_ONCE: i64 = 500;
/// Interval of removing the deliveries of deleted endpoints, their number at a time, and the pause while more are left.
const REMOVE_EVERY: Duration = Duration::from_secs(5);
const REMOVE_AT_ONCE: i64 = 2_000;
const REMOVE_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy)]
pub struct WebhookOptions {
    /// True if endpoints may have private addresses.
    pub allow_private: bool,
    /// Limit of one attempt.
    pub timeout: Duration,
    /// Time without a success after which an endpoint is disabled.
    pub patience: Duration,
    /// Attempts of one endpoint at a time, once one was delivered.
    pub at_once: usize,
}

/// Keys and connections of channels. By default nothing can be sent to one.
#[derive(Debug, Clone, Default)]
pub struct Channels {
    /// Opens the URLs of Slack channels.
    pub sealer: Sealer,
    /// `None`: no mail is sent.
    pub mailer: Option<Mailer>,
}

pub(crate) struct Delivery {
    pub(crate) store: Store,
    pub(crate) pepper: Pepper,
    client: GuardedClient,
    pub(crate) options: WebhookOptions,
    channels: Channels,
    /// Places for attempts.
    pub(crate) attempts: FairShare<TenantId>,
    pub(crate) shutdown: CancellationToken,
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
    let delivery = Arc::new(Delivery {
        store,
        pepper,
        client,
        options,
        channels,
        attempts: FairShare::new(MAX_ATTEMPTS).keeping(KEPT_ATTEMPTS),
        shutdown: shutdown.clone(),
    });
    let tidying = AbortOnDropHandle::new(tokio::spawn(tidy(Arc::clone(&delivery))));
    let places = FairShare::new(MAX_LANES);
    let mut lanes = JoinSet::new();
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            () = shutdown.cancelled() => break,
        }
        while lanes.try_join_next().is_some() {}
        delivery.tell().await;
        let (room, held) = wanted(&places);
        let claiming = delivery.store.claim_lanes(room, &held, lane::hold(delivery.options.timeout));
        let claimed = delivery.store.trouble().on_one_server(claiming).await;
        // Readiness reports the outage; what is due stays due.
        for lane in claimed.unwrap_or_default() {
            lanes.spawn(run_lane(Arc::clone(&delivery), places.take_over(lane.tenant), lane));
        }
    }
    drop(tidying);
    lanes.join_all().await;
    Ok(())
}

/// Number of lanes to claim, and those that are held. When all are held, a tenant may take over some of the largest
/// holder's.
fn wanted(places: &FairShare<TenantId>) -> (u64, HeldLanes) {
    let (free, of) = (places.free(), places.holders());
    let largest = of.iter().map(|(_, lanes)| *lanes).max().unwrap_or(0);
    match free {
        0 => (TAKEN_OVER, HeldLanes { of, most: Some(largest.saturating_sub(1)) }),
        free => (free, HeldLanes { of, most: None }),
    }
}

async fn run_lane(delivery: Arc<Delivery>, place: Option<Share<TenantId>>, lane: Lane) {
    // What was not stored is delivered again once the lane is held no more.
    if let Some(place) = place
        && let Err(error) = lane::serve(&delivery, &lane, &place).await
    {
        tracing::warn!(%error, webhook.id = %lane.endpoint, "deliveries were not stored");
    }
    let releasing = delivery.store.release_lane(&lane);
    if let Err(error) = delivery.store.trouble().on_one_server(releasing).await {
        tracing::warn!(%error, webhook.id = %lane.endpoint, "a lane is held until its time is over");
    }
}

/// Gives up, deletes and removes deliveries, beside those that are delivered.
async fn tidy(delivery: Arc<Delivery>) {
    let (mut tidies, mut removals) = (interval(TIDY_EVERY), interval(REMOVE_EVERY));
    tidies.set_missed_tick_behavior(MissedTickBehavior::Delay);
    removals.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tidies.tick() => delivery.tidy().await,
            _ = removals.tick() => delivery.remove_deleted().await,
        }
    }
}

impl Delivery {
    pub(crate) async fn attempt(&self, lane: &Lane, secrets: &[Vec<u8>], due: &Due) -> Settled {
        if lane.kind == EndpointKind::Standard {
            return attempt::attempt(&self.client, &lane.url, secrets, due, self.options.timeout).await;
        }
        match Message::of(&self.store, lane.tenant, due).await {
            Ok(Some(message)) if lane.kind == EndpointKind::Email => self.mail(lane, &message, due).await,
            Ok(Some(message)) => self.post(lane, &message, due).await,
            Ok(None) => settled(due, Outcome::Delivered, None),
            // If Postgres is away, this is not stored either, and the delivery stays due.
            Err(error) => settled(due, Outcome::Refused, Some(format!("its text cannot be read: {}", error.summary()))),
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

    /// Makes deliveries of what has ended. Workers do so at once; a fleet without workers has this process alone.
    async fn tell(&self) {
        if let Err(error) = self.store.trouble().on_one_server(self.store.tell_due_webhooks(TELL_AT_ONCE)).await {
            tracing::debug!(%error, "what has ended is told later");
        }
    }

    async fn tidy(&self) {
        match self.store.trouble().on_one_server(self.store.tidy_deliveries(TIDY_AT_ONCE)).await {
            Ok(given_up) => metrics::webhooks_given_up(given_up),
            Err(error) => tracing::warn!(%error, "old deliveries of webhooks were not tidied"),
        }
    }

    /// Removes the deliveries of deleted endpoints, in portions with pauses.
    async fn remove_deleted(&self) {
        loop {
            let removing = self.store.remove_deliveries(REMOVE_AT_ONCE);
            match self.store.trouble().on_one_server(removing).await {
                Ok(0) => return,
                Ok(_) => sleep(REMOVE_PAUSE).await,
                Err(error) => {
                    tracing::warn!(%error, "deliveries of deleted webhooks were not removed");
                    return;
                }
            }
        }
    }
}

fn channel(lane: &Lane) -> EndpointOf {
    EndpointOf { tenant: lane.tenant, id: lane.endpoint }
}
