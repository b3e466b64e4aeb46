//! Receivers that are away, hang, refuse or are gone, and processes that die meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

#[tokio::test]
async fn receiver_away_for_a_day_misses_nothing() {
    let (api, receiver) = (api().await, Receiver::start().await);
    let (webhook, _) = create(&api, &receiver.url, json!({})).await;
    receiver.answers(Answer::Status(500));
    let mut ended = BTreeSet::new();
    let mut delivery = api.deliver(OPTIONS);
    for hour in 0..24 {
        ended.insert(end_one(&api).await);
        receiver.answers(if hour % 2 == 0 { Answer::Status(503) } else { Answer::Hangs });
        shift(&api, 3_600.0).await;
        // In the middle of an attempt, if the one of the hour before hangs.
        drop(delivery);
        let before = receiver.received().len();
        // The lane of a process that died is free after its time.
        sqlx::query("update webhook_endpoints set lane_until = null").execute(&api.db.pool).await.unwrap();
        delivery = api.deliver(OPTIONS);
        receiver.until(before + 1).await;
    }
    drop(delivery);
    sqlx::query("update webhook_endpoints set lane_until = null").execute(&api.db.pool).await.unwrap();
    let _delivery = api.deliver(OPTIONS);
    receiver.answers(Answer::Status(204));
    shift(&api, 600.0).await;
    until_all(&api, &webhook, "delivered").await;
    let mut bodies: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for one in receiver.received() {
        bodies.entry(one.id().to_owned()).or_default().insert(one.text);
    }
    let told: BTreeSet<ExecutionId> = receiver.received().iter().map(Received::execution).collect();
    assert_eq!(told, ended);
    // One id and one body for each.
    assert_eq!(bodies.len(), ended.len());
    assert!(bodies.values().all(|texts| texts.len() == 1));
    assert_eq!(show(&api, &webhook).await["failing_since"], json!(null));
}

#[tokio::test]
async fn hundred_hanging_endpoints_leave_room_for_another() {
    let api =
        TestApi::start_with(ApiOptions { private_webhooks: true, max_webhooks: 200, ..ApiOptions::default() }).await;
    let (dead, healthy) = (Receiver::start().await, Receiver::start().await);
    dead.answers(Answer::Hangs);
    let (webhook, _) = create(&api, &healthy.url, json!({})).await;
    let _delivery = api.deliver(OPTIONS);
    end_one(&api).await;
    until_all(&api, &webhook, "delivered").await;
    for _ in 0..100 {
        create(&api, &dead.url, json!({})).await;
    }
    end_one(&api).await;
    healthy.until(2).await;
    dead.until(100).await;
    end_one(&api).await;
    healthy.until(3).await;
    let settled: i64 = sqlx::query_scalar("select count(*) from webhook_endpoints where failing_since is not null")
        .fetch_one(&api.db.pool)
        .await
        .unwrap();
    assert_eq!(settled, 0, "it was told while all of the others hung");
    assert_eq!(dead.received().len(), 100, "each has one attempt");
}

#[tokio::test]
async fn refused_delivery_does_not_stop_the_others() {
    let (api, receiver) = (api().await, Receiver::start().await);
    let (webhook, _) = create(&api, &receiver.url, json!({})).await;
    let _delivery = api.deliver(OPTIONS);
    receiver.answers(Answer::Status(422));
    end_one(&api).await;
    eventually("the first is refused", PATIENCE, async || {
        let first = deliveries(&api, &webhook).await.remove(0);
        if first["attempts"] == 1 { Ok(()) } else { Err(first.to_string()) }
    })
    .await;
    receiver.answers(Answer::Status(200));
    end_one(&api).await;
    receiver.until(2).await;
    shift(&api, 10.0).await;
    let told = until_all(&api, &webhook, "delivered").await;
    assert_eq!(told.iter().map(|one| one["attempts"].as_i64().unwrap()).collect::<Vec<_>>(), [2, 1]);
}

#[tokio::test]
async fn delivery_given_up_after_72_hours_is_redelivered() {
    let (api, receiver) = (api().await, Receiver::start().await);
    let (webhook, _) = create(&api, &receiver.url, json!({})).await;
    receiver.answers(Answer::Status(500));
    let before = api.store.now().await.unwrap();
    let id = end_one(&api).await;
    shift(&api, 3.0 * DAY + 60.0).await;
    let given_up = api.store.tidy_deliveries(100).await.unwrap();
    assert_eq!(given_up, 1);
    let failed = deliveries(&api, &webhook).await.remove(0);
    assert_eq!((&failed["state"], &failed["execution_id"]), (&json!("failed"), &json!(id.to_string())));
    receiver.answers(Answer::Status(200));
    let _delivery = api.deliver(OPTIONS);
    let again = format!("{webhook}/redeliver");
    assert_eq!(api.acme.post(&again, &json!({"failed_since": before})).await.body["redelivered"], 1);
    let received = receiver.until(1).await;
    assert_eq!(received[0].id(), failed["id"].as_str().unwrap());
    until_all(&api, &webhook, "delivered").await;
    // By its id, also if it was delivered.
    let one = api.acme.post(&again, &json!({"delivery_id": failed["id"]})).await;
    assert_eq!(one.body["redelivered"], 1, "{}", one.text);
    receiver.until(2).await;
    until_all(&api, &webhook, "delivered").await;
    let unknown = api.acme.post(&again, &json!({"delivery_id": uuid::Uuid::new_v4()})).await;
    assert_eq!(unknown.error(), (404, "not_found"));
    assert_eq!(api.acme.post(&again, &json!({})).await.error(), (422, "invalid_request"));
}

#[tokio::test]
async fn old_deliveries_are_deleted() {
    let (api, receiver) = (api().await, Receiver::start().await);
    let (webhook, _) = create(&api, &receiver.url, json!({})).await;
    let delivery = api.deliver(OPTIONS);
    end_one(&api).await;
    until_all(&api, &webhook, "delivered").await;
    drop(delivery);
    shift(&api, 13.0 * DAY).await;
    api.store.tidy_deliveries(100).await.unwrap();
    assert_eq!(deliveries(&api, &webhook).await.len(), 1);
    shift(&api, 2.0 * DAY).await;
    api.store.tidy_deliveries(100).await.unwrap();
    assert!(deliveries(&api, &webhook).await.is_empty());
}

#[tokio::test]
async fn endpoint_that_fails_for_five_days_is_disabled() {
    let (api, receiver) = (api().await, Receiver::start().await);
    let (webhook, _) = create(&api, &receiver.url, json!({})).await;
    receiver.answers(Answer::Status(500));
    let _delivery = api.deliver(OPTIONS);
    for day in [1.0, 5.0] {
        end_one(&api).await;
        receiver.until(receiver.received().len() + 1).await;
        eventually("it fails", PATIENCE, async || {
            let shown = show(&api, &webhook).await;
            if shown["failing_since"].is_string() { Ok(()) } else { Err(shown.to_string()) }
        })
        .await;
        assert_eq!(show(&api, &webhook).await["enabled"], true);
        shift(&api, day * DAY).await;
    }
    eventually("it is disabled", PATIENCE, async || {
        let shown = show(&api, &webhook).await;
        if shown["disabled_because"] == "failures" { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    assert_eq!(api.acme.post(&format!("{webhook}/test"), &json!({})).await.error(), (409, "webhook_disabled"));
    let since = json!({"failed_since": api.store.now().await.unwrap()});
    let again = api.acme.post(&format!("{webhook}/redeliver"), &since).await;
    assert_eq!(again.error(), (409, "webhook_disabled"));
    receiver.answers(Answer::Status(200));
    let enabled = api.acme.put(&webhook, &json!({"url": receiver.url})).await;
    assert_eq!((&enabled.body["enabled"], &enabled.body["failing_since"]), (&json!(true), &json!(null)));
    let before = receiver.received().len();
    assert_eq!(api.acme.post(&format!("{webhook}/test"), &json!({})).await.status, 200);
    receiver.until(before + 1).await;
}

#[tokio::test]
async fn endpoint_that_is_gone_is_disabled_at_once() {
    let (api, receiver) = (api().await, Receiver::start().await);
    let (webhook, _) = create(&api, &receiver.url, json!({})).await;
    receiver.answers(Answer::Status(410));
    let _delivery = api.deliver(OPTIONS);
    end_one(&api).await;
    eventually("it is disabled", PATIENCE, async || {
        let shown = show(&api, &webhook).await;
        if shown["disabled_because"] == "gone" { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    end_one(&api).await;
    assert_eq!(deliveries(&api, &webhook).await.len(), 1, "nothing is stored for it any more");
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let (api, receiver) = (api().await, Receiver::start().await);
    receiver.answers(Answer::Status(302));
    let (webhook, _) = create(&api, &receiver.url, json!({})).await;
    let _delivery = api.deliver(OPTIONS);
    end_one(&api).await;
    eventually("it failed", PATIENCE, async || {
        let one = deliveries(&api, &webhook).await.remove(0);
        if one["last_error"] == "it answered 302 Found" { Ok(()) } else { Err(one.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn name_of_a_private_address_is_not_reached() {
    let (api, receiver) = (TestApi::start().await, Receiver::start().await);
    let url = receiver.url.replace("127.0.0.1", "localhost");
    let (webhook, _) = create(&api, &url, json!({})).await;
    let _delivery = api.deliver(WebhookOptions { allow_private: false, ..OPTIONS });
    end_one(&api).await;
    let error = eventually("it failed", PATIENCE, async || {
        let one = deliveries(&api, &webhook).await.remove(0);
        one["last_error"].as_str().map(str::to_owned).ok_or(one.to_string())
    })
    .await;
    assert!(error.contains("is not on the public internet"), "{error}");
    assert!(receiver.received().is_empty());
}
