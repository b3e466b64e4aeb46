//! `POST /v1/executions/{id}/cancel`.

use longhaul_domain::ExecutionId;
use serde_json::json;

use crate::support::api::{Answer, TestApi};
use crate::support::leases::{Conclusion, TestWorker, transient};

async fn cancel(api: &TestApi, id: ExecutionId) -> Answer {
    api.acme.post(&format!("/v1/executions/{id}/cancel"), &json!({})).await
}

#[tokio::test]
async fn cancel_without_a_worker_ends_at_once() {
    let api = TestApi::start().await;
    let at = api.store.now().await.unwrap() + chrono::Duration::hours(1);
    let (pending, scheduled) = (api.submit().await, api.submit_with(json!({"run_at": at})).await);
    let parked = api.submit_with(json!({"priority": 9})).await;
    let worker = TestWorker::start(&api.store).await;
    let claimed = worker.claim_one().await;
    assert_eq!(claimed.id, parked);
    let delay = std::time::Duration::from_secs(10);
    let retry = Conclusion::Retry { failure: transient(), delay, wake_seq: claimed.wake_seq };
    worker.end(&claimed, retry).await.unwrap();
    let mut looks = api.redis.hear_looks().await;
    for id in [pending, scheduled, parked] {
        let answer = cancel(&api, id).await;
        assert_eq!((answer.status, &answer.body["status"]), (200, &json!("FAILED")), "{}", answer.text);
        assert_eq!(answer.body["wait_reason"], json!(null));
        assert_eq!(answer.body["failure"]["code"], "cancelled");
        assert_eq!(answer.body["failure"]["class"], "permanent");
        // A caller that repeats the request gets the same answer.
        let again = cancel(&api, id).await;
        assert_eq!((again.status, &again.body), (200, &answer.body), "{}", again.text);
    }
    api.publisher.flush().await;
    let mut ended = [pending, scheduled, parked];
    ended.sort_unstable();
    assert_eq!(looks.so_far().await, ended);
    let left: i64 = sqlx::query_scalar("select count(*) from parked").fetch_one(&api.db.pool).await.unwrap();
    assert_eq!((left, worker.claim(10).await.len()), (0, 0));
}

#[tokio::test]
async fn cancel_of_a_held_execution_flags_it_once() {
    let api = TestApi::start().await;
    let id = api.submit().await;
    let worker = TestWorker::start(&api.store).await;
    let claimed = worker.claim_one().await;
    let (first, second) = (cancel(&api, id).await, cancel(&api, id).await);
    assert_eq!((first.status, second.status), (202, 202), "{}", second.text);
    assert_eq!(first.body["cancel_requested_at"], second.body["cancel_requested_at"]);
    let events = api.acme.get(&format!("/v1/executions/{id}/events")).await;
    let kinds: Vec<_> = events.body["events"].as_array().unwrap().iter().map(|event| event["kind"].clone()).collect();
    assert_eq!(kinds, ["submitted", "claimed", "cancel_requested"]);
    worker.end(&claimed, Conclusion::Cancel).await.unwrap();
    let over = api.acme.get(&format!("/v1/executions/{id}")).await;
    assert_eq!(over.body["failure"]["code"], "cancelled");
    let again = cancel(&api, id).await;
    assert_eq!((again.status, &again.body), (200, &over.body), "{}", again.text);
    let events = api.acme.get(&format!("/v1/executions/{id}/events")).await;
    assert_eq!(events.body["last"], 4, "asking again is no event");
}

#[tokio::test]
async fn cancel_after_a_finish_is_refused() {
    let api = TestApi::start().await;
    let id = api.submit().await;
    let worker = TestWorker::start(&api.store).await;
    worker.finish(&worker.claim_one().await).await.unwrap();
    let answer = cancel(&api, id).await;
    assert_eq!(answer.error(), (409, "execution_is_terminal"));
    assert!(answer.body["detail"].as_str().unwrap().contains("FINISHED"));
}

#[tokio::test]
async fn cancel_after_a_failure_is_refused() {
    let api = TestApi::start().await;
    let id = api.submit().await;
    let worker = TestWorker::start(&api.store).await;
    let failure = longhaul_sdk::Failure::permanent(longhaul_sdk::FailureCode::PANIC, "it panicked");
    worker.end(&worker.claim_one().await, Conclusion::Fail { failure }).await.unwrap();
    let answer = cancel(&api, id).await;
    assert_eq!(answer.error(), (409, "execution_is_terminal"));
    assert!(answer.body["detail"].as_str().unwrap().contains("FAILED"));
}
