//! Providers that are overloaded or throttle for minutes, without saying for how long.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use longhaul_testkit::model::{reply_status, reply_text};
use serde_json::json;

use crate::{
    support::fleet::{Fleet, agent},
    worker::kit::definition,
};

/// Longest pause that is assumed, with its jitter.
const PAUSE: Duration = Duration::from_secs(38);

/// Runs one execution whose provider refuses with these statuses in turn for five minutes.
async fn finishes_after(statuses: &'static [u16]) {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    let began = fleet.store.now().await.unwrap();
    let (store, asked) = (fleet.store.clone(), AtomicUsize::new(0));
    fleet.llm.answer_later(move |_| {
        let (store, status) = (store.clone(), statuses[asked.fetch_add(1, Ordering::SeqCst) % statuses.len()]);
        async move {
            let passed = store.now().await.unwrap() - began;
            if passed.num_seconds() < 300 { reply_status(status, "overloaded") } else { reply_text("{}") }
        }
    });
    let worker = fleet.worker();
    let id = fleet.submit("d", json!({})).await;
    let row = loop {
        let row = fleet
            .until(id, "it ends or waits", |row| !row["finished_at"].is_null() || row["wait_reason"] == "rate_limit")
            .await;
        if !row["finished_at"].is_null() {
            break row;
        }
        fleet.advance(PAUSE).await;
        fleet
            .until(id, "it goes on", |now| now["wait_until"] != row["wait_until"] || !now["finished_at"].is_null())
            .await;
    };
    assert_eq!((&row["status"], &row["retries"]), (&json!("FINISHED"), &json!(0)), "{row}");
    worker.drain().await;
}

#[tokio::test]
async fn overload_of_minutes_ends_no_run() {
    finishes_after(&[529, 503]).await;
}

#[tokio::test]
async fn throttle_without_a_time_spends_no_retry() {
    finishes_after(&[429]).await;
}
