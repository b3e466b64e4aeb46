//! Approves every waiting call through the API with a key of its own.

use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, TimeDelta, Utc};
use longhaul_guards::http;
use longhaul_shared::clock::{Clock, SystemClock};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    fleet::{Fleet, HELD},
    load::ANSWER_LIMIT,
};

/// Pause between two requests for the list.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Time for which calls of [`HELD`] are left alone: longer than from one tick of their schedule to the next.
const HOLD: TimeDelta = TimeDelta::seconds(100);

pub(super) struct Approver {
    client: reqwest::Client,
    url: String,
    key: String,
}

impl Approver {
    pub(super) fn new(fleet: &Fleet) -> anyhow::Result<Self> {
        let client = http::client(&http::HttpOptions::default()).context("build the HTTP client")?;
        Ok(Self { client, url: format!("{}/v1/approvals", fleet.url), key: fleet.approver_key.clone() })
    }

    /// Approves until it is dropped; holds nothing back once the load has ended. A decision that fails or times out is
    /// repeated in the next round.
    pub(super) async fn run(self, load_end: CancellationToken) {
        loop {
            if let Ok(Some(waiting)) = timeout(ANSWER_LIMIT, self.waiting()).await {
                let held_since = SystemClock::new().now() - HOLD;
                let is_held = |approval: &Value| {
                    let since = approval["requested_at"].as_str().and_then(|at| at.parse::<DateTime<Utc>>().ok());
                    approval["agent"] == HELD && !load_end.is_cancelled() && since.is_some_and(|at| at > held_since)
                };
                for approval in waiting.into_iter().filter(|approval| !is_held(approval)) {
                    let _ = timeout(ANSWER_LIMIT, self.approve(&approval)).await;
                }
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn waiting(&self) -> Option<Vec<Value>> {
        let url = format!("{}?state=waiting&limit=200", self.url);
        let page = self.client.get(url).bearer_auth(&self.key).send().await.ok()?.json::<Value>().await.ok()?;
        page["approvals"].as_array().cloned()
    }

    async fn approve(&self, approval: &Value) -> Option<()> {
        let url = format!("{}/{}/decision", self.url, approval["id"].as_str()?);
        let decision = json!({ "decision": "approve", "hash": approval["hash"] });
        self.client.post(url).bearer_auth(&self.key).json(&decision).send().await.ok().map(|_answer| ())
    }
}
