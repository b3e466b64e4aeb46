//! What webhooks are told of, and what they are not.

use longhaul_api::ApiOptions;
use longhaul_testkit::model::{reply_calls, reply_text};
use serde_json::json;

use super::*;
use crate::support::fleet::{Fleet, agent};

#[tokio::test]
async fn end_is_told_with_type_id_and_time() {
    let (api, receiver) = (api().await, Receiver::start().await);
    let (webhook, _) = create(&api, &receiver.url, json!({})).await;
    let _delivery = api.deliver(OPTIONS);
    let id = end_one(&api).await;
    let received = receiver.until(1).await;
    let told = until_all(&api, &webhook, "delivered").await;
    let expected = json!({
        "type": "execution.failed", "timestamp": received[0].body["timestamp"],
        "data": {"execution_id": id.to_string()},
    });
    assert_eq!(received[0].body, expected);
    assert_eq!(received[0].id(), told[0]["id"].as_str().unwrap());
    assert_eq!((&told[0]["attempts"], &told[0]["last_status"]), (&json!(1), &json!(200)));
    let shown = show(&api, &webhook).await;
    assert_eq!((&shown["waiting"], &shown["failing_since"], &shown["secret"]), (&json!(0), &json!(null), &json!(null)));
}

#[tokio::test]
async fn finish_and_questions_are_told_and_children_are_not() {
    let fleet = Fleet::start().await;
    let options = ApiOptions { private_webhooks: true, ..ApiOptions::default() };
    let api = TestApi::over(&fleet, options).await;
    let receiver = Receiver::start().await;
    create(&api, &receiver.url, json!({})).await;
    let mut asking = agent("a");
    asking.tools = vec![serde_json::from_value(json!("ask_caller")).unwrap()];
    fleet.store.put_shared_agent(&asking).await.unwrap();
    fleet.llm.answer_with(|request| {
        if request.messages().iter().any(|message| message["role"] == "tool") {
            reply_text("done")
        } else {
            reply_calls([("ask_caller", json!({"question": "Which?"}))])
        }
    });
    let _delivery = api.deliver(OPTIONS);
    let _worker = fleet.worker();
    let submitted = api.acme.post("/v1/executions", &json!({"agent": "a", "input": {"prompt": "hi"}})).await;
    let id = submitted.body["id"].as_str().unwrap_or_else(|| panic!("{}", submitted.text)).to_owned();
    let asked = receiver.until(1).await[0].body.clone();
    assert_eq!((&asked["type"], &asked["data"]["execution_id"]), (&json!("question.asked"), &json!(id)));
    let question = asked["data"]["request_id"].as_str().unwrap();
    let answered = api.acme.post(&format!("/v1/questions/{question}/answer"), &json!({"answer": "this"})).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    let received = receiver.until(2).await;
    assert_eq!(
        (&received[1].body["type"], received[1].execution().to_string()),
        (&json!("execution.finished"), id.clone())
    );
    // A child of it is another matter: its parent is told. In one transaction, or the worker claims it between the two.
    let mut transaction = api.db.pool.begin().await.unwrap();
    sqlx::query(
        "update executions set parent_id = $1, root_id = $1, depth = 1, spawn_key = '\\x00', finished_at = null,
            status = 'IN_PROGRESS', wait_reason = 'worker' where id = $2",
    )
    .bind(uuid::Uuid::new_v4())
    .bind(id.parse::<uuid::Uuid>().unwrap())
    .execute(&mut *transaction)
    .await
    .unwrap();
    sqlx::query("update executions set finished_at = now(), status = 'FINISHED', wait_reason = null where id = $1")
        .bind(id.parse::<uuid::Uuid>().unwrap())
        .execute(&mut *transaction)
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    let stored: i64 =
        sqlx::query_scalar("select count(*) from webhook_deliveries").fetch_one(&api.db.pool).await.unwrap();
    assert_eq!(stored, 2);
}

#[tokio::test]
async fn quarantine_is_told() {
    let (api, receiver) = (api().await, Receiver::start().await);
    create(&api, &receiver.url, json!({"types": ["execution.quarantined"]})).await;
    let _delivery = api.deliver(OPTIONS);
    let id = end_one(&api).await;
    sqlx::query(
        "insert into quarantine (execution_id, tenant_id, definition_key, definition_version_id, agent_key,
             agent_version_id, queue, quarantined_at, deadline_at, is_child, deaths, phase)
         select id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue, now(),
             deadline_at, false, '[]', 'call' from executions where id = $1",
    )
    .bind(id.0)
    .execute(&api.db.pool)
    .await
    .unwrap();
    let received = receiver.until(1).await;
    assert_eq!((received[0].execution(), &received[0].body["type"]), (id, &json!("execution.quarantined")));
}

#[tokio::test]
async fn only_chosen_types_of_the_own_tenant_are_told() {
    let (api, receiver) = (api().await, Receiver::start().await);
    let (chosen, _) = create(&api, &receiver.url, json!({"types": ["execution.failed"]})).await;
    let (other, _) = create(&api, &receiver.url, json!({"types": ["execution.finished", "approval.requested"]})).await;
    let (off, _) = create(&api, &receiver.url, json!({"enabled": false})).await;
    let stranger = api.caller("rival", crate::support::api::EVERYDAY).await;
    let theirs = stranger.post("/v1/webhooks", &json!({"url": receiver.url})).await;
    assert_eq!(theirs.status, 201, "{}", theirs.text);
    let id = end_one(&api).await;
    let told = deliveries(&api, &chosen).await;
    assert_eq!((told.len(), &told[0]["execution_id"]), (1, &json!(id.to_string())));
    assert!(deliveries(&api, &other).await.is_empty() && deliveries(&api, &off).await.is_empty());
    let path = format!("/v1/webhooks/{}", theirs.body["id"].as_str().unwrap());
    assert_eq!(stranger.get(&format!("{path}/deliveries")).await.body["deliveries"], json!([]));
    // Neither sees what is the other's.
    for (method, rest) in [("GET", ""), ("GET", "/deliveries"), ("POST", "/test"), ("POST", "/rotate"), ("DELETE", "")]
    {
        let method = method.parse().unwrap();
        assert_eq!(api.acme.send(method, &format!("{path}{rest}"), None, &[]).await.error(), (404, "not_found"));
    }
    assert_eq!(stranger.get(&path).await.status, 200);
}

#[tokio::test]
async fn deleted_webhook_loses_its_deliveries_in_portions() {
    let (api, receiver) = (api().await, Receiver::start().await);
    let (unused, _) = create(&api, &receiver.url, json!({})).await;
    assert_eq!(api.acme.delete(&unused).await.status, 204);
    let (webhook, _) = create(&api, &receiver.url, json!({})).await;
    let (kept, _) = create(&api, &receiver.url, json!({})).await;
    for _ in 0..5 {
        end_one(&api).await;
    }
    assert_eq!(api.acme.delete(&webhook).await.status, 204);
    assert_eq!(api.acme.get(&webhook).await.error(), (404, "not_found"));
    let mut removed = Vec::new();
    for _ in 0..5 {
        removed.push(api.store.remove_deliveries(2).await.unwrap());
    }
    assert_eq!(removed, [Some(0), Some(2), Some(2), Some(1), None], "one without deliveries stops nothing");
    assert_eq!(deliveries(&api, &kept).await.len(), 5, "those of another endpoint stay");
    let left: (i64, i64) =
        sqlx::query_as("select (select count(*) from webhook_deliveries), (select count(*) from removed_webhooks)")
            .fetch_one(&api.db.pool)
            .await
            .unwrap();
    assert_eq!(left, (5, 0));
}
