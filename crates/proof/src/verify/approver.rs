//! Approves every waiting call through the API with a key of its own.

use std::time::Duration;

use anyhow::Context as _;
use longhaul_shared::http;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{fleet::Fleet, load::ANSWER_LIMIT};

/// Pause between two requests for the list.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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

    /// Approves until it is dropped. A decision that fails or times out is repeated in the next round.
    pub(super) async fn run(self) {
        loop {
            if let Ok(Some(waiting)) = timeout(ANSWER_LIMIT, self.waiting()).await {
                for approval in waiting {
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
