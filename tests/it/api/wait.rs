//! `Prefer: wait=N`: the answer is held until the execution or the wait ends.

use std::time::{Duration, Instant};

use longhaul_api::ApiOptions;
use serde_json::json;

use crate::support::api::TestApi;
use crate::support::leases::TestWorker;
use crate::support::wait::{SOON, eventually};

#[tokio::test]
async fn expired_wait_returns_the_current_state() {
    let api = TestApi::start().await;
    let body = json!({"definition": "invoice", "input": {"text": "x"}});
    let began = Instant::now();
    let answer = api.acme.post_as("/v1/executions", &body, &[("prefer", "wait=1")]).await;
    assert_eq!((answer.status, answer.header("preference-applied")), (201, "wait=1"));
    assert_eq!(answer.body["status"], "PENDING");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn wait_returns_output_when_the_execution_ends() {
    let api = TestApi::start().await;
    let caller = api.acme.clone();
    let held = tokio::spawn(async move {
        let body = json!({"definition": "invoice", "input": {"text": "x"}});
        caller.post_as("/v1/executions", &body, &[("prefer", "wait=60")]).await
    });
    let worker = TestWorker::start(&api.store).await;
    let claimed =
        eventually("the submit is claimable", SOON, async || worker.claim(1).await.pop().ok_or("nothing yet")).await;
    worker.finish(&claimed).await.unwrap();
    api.publisher.look([claimed.id]);
    let answer = held.await.unwrap();
    assert_eq!((answer.status, &answer.body["status"]), (201, &json!("FINISHED")), "{}", answer.text);
    assert_eq!(answer.body["output"], json!({"total": 12}));
}

#[tokio::test]
async fn submit_is_answered_when_no_wait_is_possible() {
    // The submit is committed: an error would make the caller send it again.
    let api = TestApi::start_with(ApiOptions { max_streams: 0, ..ApiOptions::default() }).await;
    let body = json!({"definition": "invoice", "input": {"text": "x"}});
    let answer = api.acme.post_as("/v1/executions", &body, &[("prefer", "wait=5")]).await;
    assert_eq!((answer.status, &answer.body["status"]), (201, &json!("PENDING")), "{}", answer.text);
}
