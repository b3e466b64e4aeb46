//! Endpoints that are slow or many, and those beside them.

use longhaul_store::webhooks::{EndpointOf, HeldLanes, LaneState, Outcome, Settled};
use uuid::Uuid;

use super::*;
use crate::support::api::EVERYDAY;

/// Endpoint of `acme`.
fn own(api: &TestApi, webhook: &str) -> EndpointOf {
    EndpointOf { tenant: api.tenant, id: webhook.rsplit('/').next().unwrap().parse().unwrap() }
}

/// Stores deliveries that are due, all at one time.
async fn fill(api: &TestApi, endpoint: Uuid, count: i64) {
    let fill = "insert into webhook_deliveries (id, endpoint_id, type, occurred_at, next_at, expires_at)
        select longhaul_uuid(), $1, 'webhook.test', t.now, t.now, t.now + interval '72 hours'
        from (select longhaul_now() as now) t, generate_series(1, $2)";
    sqlx::query(fill).bind(endpoint).bind(count).execute(&api.db.pool).await.unwrap();
}

#[tokio::test]
async fn slow_answer_holds_up_no_other_delivery() {
    let (api, receiver) = (api().await, Receiver::start().await);
    let (webhook, _) = create(&api, &receiver.url, json!({})).await;
    let _delivery = api.deliver(OPTIONS);
    end_one(&api).await;
    until_all(&api, &webhook, "delivered").await;
    receiver.answers(Answer::Hangs);
    let slow = end_one(&api).await;
    receiver.until(2).await;
    receiver.answers(Answer::Status(200));
    for _ in 0..3 * OPTIONS.at_once {
        end_one(&api).await;
    }
    eventually("all others are delivered", PATIENCE, async || {
        let waiting = deliveries(&api, &webhook).await.into_iter().filter(|one| one["state"] != "delivered");
        let waiting: Vec<_> = waiting.map(|one| one["execution_id"].clone()).collect();
        if waiting == [json!(slow.to_string())] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
}

#[tokio::test]
async fn attempts_of_an_endpoint_are_bounded() {
    let (api, receiver) = (api().await, Receiver::start().await);
    let (webhook, _) = create(&api, &receiver.url, json!({})).await;
    let delivery = api.deliver(WebhookOptions { at_once: 4, ..OPTIONS });
    end_one(&api).await;
    until_all(&api, &webhook, "delivered").await;
    drop(delivery);
    fill(&api, own(&api, &webhook).id, 20).await;
    receiver.answers(Answer::Hangs);
    let until = "update webhook_endpoints set lane_until = null";
    sqlx::query(until).execute(&api.db.pool).await.unwrap();
    let _delivery = api.deliver(WebhookOptions { at_once: 4, timeout: Duration::from_secs(1), ..OPTIONS });
    // All four fail before one more is tried, and they are one failure.
    eventually("the endpoint has failed", PATIENCE, async || {
        let shown = show(&api, &webhook).await;
        if shown["failing_since"].is_string() { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    assert_eq!(receiver.received().len(), 1 + 4);
    let failures: i32 =
        sqlx::query_scalar("select failures from webhook_endpoints").fetch_one(&api.db.pool).await.unwrap();
    assert_eq!(failures, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_with_all_attempts_delays_no_other() {
    let (api, slow, healthy) = (api().await, Receiver::start().await, Receiver::start().await);
    let neighbour = api.caller("neighbour", EVERYDAY).await;
    let created = neighbour.post("/v1/webhooks", &json!({"url": healthy.url})).await;
    assert_eq!(created.status, 201, "{}", created.text);
    let mut webhooks = Vec::new();
    for _ in 0..20 {
        webhooks.push(create(&api, &slow.url, json!({})).await.0);
    }
    let _delivery = api.deliver(OPTIONS);
    end_one(&api).await;
    slow.until(20).await;
    for webhook in &webhooks {
        until_all(&api, webhook, "delivered").await;
    }
    slow.answers(Answer::Hangs);
    for webhook in &webhooks {
        fill(&api, own(&api, webhook).id, OPTIONS.at_once as i64).await;
    }
    // As many as one process attempts at a time.
    slow.until(20 + 512).await;
    let path = format!("/v1/webhooks/{}/test", created.body["id"].as_str().unwrap());
    assert_eq!(neighbour.post(&path, &json!({})).await.status, 200);
    healthy.until(1).await;
    assert_eq!(slow.received().len(), 20 + 512, "the neighbour waited for none of them");
}

#[tokio::test]
async fn lanes_go_to_the_tenant_with_the_fewest() {
    let api = api().await;
    let neighbour = api.caller("neighbour", EVERYDAY).await;
    for _ in 0..6 {
        let (webhook, _) = create(&api, "http://127.0.0.1:9/", json!({})).await;
        fill(&api, own(&api, &webhook).id, 1).await;
    }
    let created = neighbour.post("/v1/webhooks", &json!({"url": "http://127.0.0.1:9/"})).await;
    let endpoint = created.body["id"].as_str().unwrap().parse().unwrap();
    fill(&api, endpoint, 1).await;
    let hold = Duration::from_secs(60);
    let held = HeldLanes { of: vec![(api.tenant, 2)], most: None };
    let first = api.store.claim_lanes(1, &held, hold).await.unwrap();
    assert_eq!(first.iter().map(|lane| lane.endpoint).collect::<Vec<_>>(), [endpoint]);
    let full = HeldLanes { most: Some(4), ..held.clone() };
    assert_eq!(api.store.claim_lanes(9, &full, hold).await.unwrap().len(), 2, "two more make four");
    assert_eq!(api.store.claim_lanes(9, &held, hold).await.unwrap().len(), 4, "the rest");
}

#[tokio::test]
async fn deleted_lane_stores_nothing() {
    let api = api().await;
    let (webhook, _) = create(&api, "http://127.0.0.1:9/", json!({})).await;
    end_one(&api).await;
    end_one(&api).await;
    let lane = api.store.claim_lanes(1, &HeldLanes::default(), Duration::from_secs(60)).await.unwrap().remove(0);
    let due = api.store.due_deliveries(&lane, &[], 9).await.unwrap();
    assert_eq!(due.len(), 2);
    let under_way = [due[0].id];
    assert_eq!(api.store.due_deliveries(&lane, &under_way, 9).await.unwrap(), due[1..]);
    assert!(api.store.delete_webhook(own(&api, &webhook)).await.unwrap());
    let settled = Settled { delivery: due[0].id, outcome: Outcome::Delivered, status: None, error: None };
    let limits = (Duration::from_secs(3_600), Duration::from_secs(60));
    let state = api.store.settle_deliveries(&lane, &[settled], limits).await.unwrap();
    assert_eq!(state, LaneState::Lost, "nothing is stored for a deleted endpoint");
}
