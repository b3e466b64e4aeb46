//! Refreshing of what a process knows of endpoints, and the sweep's duty for them.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use longhaul_queue::model_calls::CallRoom;
use longhaul_store::{
    StoreError,
    providers::breakers::{KnownProviders, ModelKey, RELEASED_AT_ONCE},
};
use longhaul_telemetry::metrics;

use super::{Endpoint, Health, seconds};

/// Interval at which a worker refreshes what it knows of endpoints.
pub const REFRESH_EVERY: Duration = Duration::from_secs(1);
/// Maximum time that one run of the duty spends on an endpoint's releases.
const TENDING: Duration = Duration::from_millis(500);
/// Endpoints refreshed concurrently.
const AT_ONCE: usize = 16;

impl Health {
    /// Refreshes what this process knows of breakers, limits and lines. Called every [`REFRESH_EVERY`].
    ///
    /// # Errors
    /// Postgres is unavailable, or what was learned of one endpoint could not be written; the others were.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let KnownProviders { now, workers, breakers } = self.store.known_providers().await?;
        self.learn_now(now);
        self.workers.store(workers, Ordering::Relaxed);
        let known: HashMap<&ModelKey, _> = breakers.iter().map(|breaker| (&breaker.key, breaker)).collect();
        let endpoints: Vec<_> = {
            let mut endpoints = self.endpoints.lock();
            // Insert endpoints not called yet: a first call must find their breaker.
            for breaker in &breakers {
                if !endpoints.contains_key(&breaker.key) {
                    let limits = self.settings.get(&breaker.key.provider);
                    endpoints.insert(breaker.key.clone(), Arc::new(Endpoint::new(breaker.key.clone(), limits)));
                }
            }
            endpoints.values().cloned().collect()
        };
        let mut open: HashMap<&str, u32> = self.settings.keys().map(|provider| (provider.as_str(), 0)).collect();
        for endpoint in &endpoints {
            let breaker = known.get(&endpoint.key);
            if endpoint.learn(breaker.copied()) && self.calls.forget(&endpoint.name).await {
                endpoint.forget();
            }
            if breaker.is_some_and(|breaker| !breaker.is_closed) {
                *open.entry(&endpoint.key.provider).or_default() += 1;
            }
        }
        for (provider, count) in open {
            metrics::breakers_open(provider, count);
        }
        let mut refreshed = Ok(());
        let limited = endpoints.into_iter().filter(|endpoint| endpoint.learns() || endpoint.has_line());
        let mut each = stream::iter(limited.collect::<Vec<_>>())
            .map(|endpoint| async move { self.refresh_limits(&endpoint).await })
            .buffer_unordered(AT_ONCE);
        while let Some(one) = each.next().await {
            refreshed = refreshed.and(one);
        }
        refreshed
    }

    async fn refresh_limits(&self, endpoint: &Endpoint) -> Result<(), StoreError> {
        self.room(endpoint).await?;
        let Some(limits) = endpoint.to_publish() else { return Ok(()) };
        self.store.publish_limits(&endpoint.key, limits).await.inspect_err(|_| endpoint.not_published())
    }

    /// Calls that an endpoint would take soon; takes over what is learned of it. One if Redis is away.
    async fn room(&self, endpoint: &Endpoint) -> Result<u32, StoreError> {
        let now = self.now().await?;
        let room = self.calls.room(&endpoint.name, seconds(now), endpoint.limits.at_once, endpoint.has_line()).await;
        let Some(CallRoom { calls, learned, learns, served_per_second }) = room else { return Ok(1) };
        endpoint.learn_speed(served_per_second);
        if learns {
            endpoint.believe(learned, now);
        } else if endpoint.learns() {
            endpoint.forget();
        }
        Ok(calls)
    }

    /// Sweep duty for endpoints: chooses probes, releases the portions of half-open breakers, and wakes waiters of
    /// endpoints with a free slot that no ended call announced.
    ///
    /// # Errors
    /// Postgres is unavailable, or one endpoint's breaker could not be tended; the others were.
    pub async fn tend(&self) -> Result<(), StoreError> {
        let KnownProviders { breakers, .. } = self.store.known_providers().await?;
        let until = Instant::now() + TENDING;
        let mut failed = None;
        for breaker in &breakers {
            if !breaker.is_closed {
                failed = self.tend_breaker(&breaker.key, until).await.err().or(failed);
            }
            if breaker.has_line {
                let endpoint = self.endpoint(breaker.key.clone());
                endpoint.learn(Some(breaker));
                let room = endpoint.to_let_go(self.room(&endpoint).await?);
                if room > 0 {
                    self.let_go(&breaker.key, i32::try_from(room).unwrap_or(i32::MAX)).await;
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Tends one breaker, in transactions of bounded size, until its portion is released or the time is up.
    async fn tend_breaker(&self, key: &ModelKey, until: Instant) -> Result<(), StoreError> {
        loop {
            match self.store.tend_provider(key, self.config.max_wait).await {
                Ok(woken) => {
                    self.publisher.runnable(&woken);
                    if woken.len() < RELEASED_AT_ONCE as usize || Instant::now() > until {
                        return Ok(());
                    }
                }
                Err(error) => {
                    metrics::breaker_tending_failed(&key.provider);
                    tracing::warn!(
                        provider.name = key.provider, error = %error,
                        "a breaker could not be tended; the executions that wait for its endpoint go on waiting"
                    );
                    return Err(error);
                }
            }
        }
    }
}

/// Refreshes [`Health`] once per second.
pub async fn watch(health: Arc<Health>) {
    let mut tick = tokio::time::interval(REFRESH_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if let Err(error) = health.store.trouble().on_one_server(health.refresh()).await {
            tracing::warn!(error = %error, "what is known of model endpoints is old");
        }
    }
}
