//! Probes the health of the platform's providers at their `healthcheck_url`.
//!
//! Invariants: one process of the fleet probes a provider per interval; each probe has a timeout and the number of
//! concurrent probes is bounded; the loop outlives outages of Postgres and of providers. Results appear in
//! `/v1/platform` and in the metrics. They decide nothing: a run calls its provider whatever the last probe said.

use std::time::Duration;

use futures::{StreamExt, stream};
use longhaul_guards::http::{HttpOptions, client};
use longhaul_store::{Store, contract::platform::Probe};
use longhaul_telemetry::metrics;
use reqwest::Client;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::routes::contract::options::HealthOptions;

/// Interval between two looks for providers that are due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of concurrent probes.
const AT_A_TIME: usize = 8;

/// See the module. Dropping it stops the probes.
#[derive(Debug)]
pub(crate) struct PlatformHealth {
    _task: AbortOnDropHandle<()>,
}

impl PlatformHealth {
    pub(crate) fn spawn(store: &Store, options: Option<HealthOptions>, shutdown: &CancellationToken) -> Option<Self> {
        let options = options?;
        let http = HttpOptions { connect_timeout: options.timeout, ..HttpOptions::default() };
        let client = client(&http)
            .inspect_err(|error| tracing::error!(error = %error, "providers cannot be asked whether they are well"))
            .ok()?;
        let task = ask_for_ever(store.clone(), client, options, shutdown.clone());
        Some(Self { _task: AbortOnDropHandle::new(tokio::spawn(task)) })
    }
}

async fn ask_for_ever(store: Store, client: Client, options: HealthOptions, shutdown: CancellationToken) {
    let mut ticks = interval(LOOK_EVERY.min(options.every));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.cancelled() => return,
        }
        // A failure is retried at the next tick.
        let Ok(due) = store.trouble().on_one_server(store.take_probes(options.every)).await else { continue };
        stream::iter(due).for_each_concurrent(AT_A_TIME, |probe| ask(&store, &client, options.timeout, probe)).await;
        if let Ok(counts) = store.trouble().on_one_server(store.count_health()).await {
            metrics::platform_providers(counts);
        }
    }
}

async fn ask(store: &Store, client: &Client, limit: Duration, probe: Probe) {
    let (is_up, detail) = match client.get(&probe.url).timeout(limit).send().await {
        Ok(answer) => (answer.status().is_success(), format!("HTTP {}", answer.status().as_u16())),
        Err(error) if error.is_timeout() => (false, format!("no answer within {limit:?}")),
        Err(_) => (false, "cannot be reached".to_owned()),
    };
    if let Err(error) = store.trouble().on_one_server(store.put_health(&probe.slug, is_up, &detail)).await {
        tracing::warn!(error = %error, provider = probe.slug, "a provider's health was not stored");
    }
}
