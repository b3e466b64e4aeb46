//! The loop of one process: it takes lanes with something due, and delivers to many at a time. Lanes are shared between
//! tenants, so that slow endpoints of some delay no other tenant.

use std::{sync::Arc, time::Duration};

use longhaul_domain::TenantId;
use longhaul_fairness::{FairShare, Share};
use longhaul_store::{
    Store,
    tenants::api_keys::Pepper,
    webhooks::{DisabledBecause, HeldLanes, Lane},
};
use longhaul_telemetry::metrics;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use uuid::Uuid;

use crate::{
    delivery::{Channels, Delivery, WebhookOptions},
    lane,
};

/// Lanes of one process at a time, and how many are claimed at once to take over those of others.
const MAX_LANES: u64 = 1_024;
const TAKEN_OVER: u64 = 64;
/// Interval of the look for lanes with something due.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Interval of giving up and deleting deliveries, and their number at a time.
const TIDY_EVERY: Duration = Duration::from_secs(60);
const TIDY_AT_ONCE: i64 = 10_000;
/// Events of which deliveries are made in one look.
const TELL_AT_ONCE: i64 = 500;
/// Interval of removing the deliveries of deleted endpoints, and their number at a time.
const REMOVE_EVERY: Duration = Duration::from_secs(5);
const REMOVE_AT_ONCE: i64 = 500;
/// Pause while more are left, as a multiple of the time that the last took: PostgreSQL is busy with others meanwhile.
const REMOVE_PAUSE: u32 = 4;
/// Tenant in whose name the process tidies.
const NOBODY: TenantId = TenantId(Uuid::nil());

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
    let delivery = Arc::new(Delivery::new(store, pepper, options, channels, shutdown.clone())?);
    for because in [DisabledBecause::Failures, DisabledBecause::Gone] {
        metrics::webhooks_disabled(because.as_str(), 0);
    }
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
    if let Err(error) = delivery.on_store(lane.tenant, releasing).await {
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
    /// Makes deliveries of what has ended. Workers do so at once; a fleet without workers has this process alone.
    async fn tell(&self) {
        if let Err(error) = self.store.trouble().on_one_server(self.store.tell_due_webhooks(TELL_AT_ONCE)).await {
            tracing::debug!(%error, "what has ended is told later");
        }
    }

    async fn tidy(&self) {
        match self.on_store(NOBODY, self.store.tidy_deliveries(TIDY_AT_ONCE)).await {
            Ok(given_up) => metrics::webhooks_given_up(given_up),
            Err(error) => tracing::warn!(%error, "old deliveries of webhooks were not tidied"),
        }
    }

    /// Removes the deliveries of deleted endpoints, in portions with pauses.
    async fn remove_deleted(&self) {
        loop {
            let (removing, began) = (self.store.remove_deliveries(REMOVE_AT_ONCE), Instant::now());
            match self.on_store(NOBODY, removing).await {
                Ok(None) => return,
                Ok(Some(_)) => sleep(began.elapsed() * REMOVE_PAUSE).await,
                Err(error) => {
                    tracing::warn!(%error, "deliveries of deleted webhooks were not removed");
                    return;
                }
            }
        }
    }
}
