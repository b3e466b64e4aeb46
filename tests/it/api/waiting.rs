//! `GET /v1/executions/{id}/waiting`: for each wait reason the condition, the time, and the executions ahead.

use std::time::Duration;

use longhaul_domain::{ExecutionId, RequestKind, WaitReason};
use longhaul_sdk::failure::{FailureClass, FailureCode};
use longhaul_store::executions::budgets::{Reservation, Reserved};
use longhaul_store::executions::claims::Claimed;
use longhaul_store::human_requests::NewHumanRequest;
use longhaul_store::providers::breakers::{Asking, ModelKey};
use longhaul_store::providers::failures::{CallFailure, EndpointFailure, FailedCall, Pauses};
use longhaul_store::tenants::api_keys::Scope;
use serde_json::{Value, json};

use crate::support::api::{EVERYDAY, TestApi};
use crate::support::leases::{Conclusion, TestWorker, transient};

async fn why(api: &TestApi, id: ExecutionId) -> Value {
    let answer = api.acme.get(&format!("/v1/executions/{id}/waiting")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.body["execution_id"], id.to_string());
    answer.body
}

async fn park(worker: &TestWorker, claimed: &Claimed, reason: WaitReason, wait: Option<Duration>) {
    let park = Conclusion::Park { reason, wait, wake_seq: claimed.wake_seq };
    assert_eq!(worker.end(claimed, park).await.unwrap().wait_reason, Some(reason));
}

#[tokio::test]
async fn worker_wait_shows_place_fleet_and_estimate() {
    let api = TestApi::start().await;
    let early: Vec<ExecutionId> = vec![api.submit().await, api.submit().await, api.submit().await];
    let alone = why(&api, early[1]).await;
    assert_eq!(alone["wait_reason"], "worker");
    assert_eq!(alone["place"], json!({"ahead": 1, "is_at_least": false, "other_tenants": 0}));
    assert_eq!(alone["workers"], json!({"count": 0, "permits": 0, "free": 0}));
    assert_eq!(alone["estimate"]["seconds"], json!(null), "nothing was started yet");
    assert_eq!(alone["estimate"]["basis"], "no live worker serves it");
    assert!(alone["summary"].as_str().unwrap().starts_with("no live worker of the queue `default`"), "{alone}");

    let worker = TestWorker::start(&api.store).await;
    let claimed = worker.claim(3).await;
    let runs = why(&api, early[0]).await;
    assert_eq!((&runs["wait_reason"], &runs["worker_id"]), (&json!(null), &json!(worker.id.to_string())));
    assert_eq!((&runs["ends_when"], &runs["status"]), (&json!(null), &json!("IN_PROGRESS")));
    sqlx::query(
        "insert into events (execution_id, seq, at, kind, data)
         values ($1, 100, longhaul_now(), 'tool_servers_starting', '{\"servers\": [\"shelf\", \"crm\"]}')",
    )
    .bind(early[1].0)
    .execute(&api.db.pool)
    .await
    .unwrap();
    let starts = format!("worker {} starts its tool servers: shelf, crm", worker.id);
    assert_eq!(why(&api, early[1]).await["summary"], starts);

    let (first, second) = (api.submit().await, api.submit().await);
    let urgent = api.submit_with(json!({"priority": 9})).await;
    let waits = why(&api, second).await;
    assert_eq!(waits["place"]["ahead"], 2, "{first} and {urgent}");
    assert_eq!(waits["workers"], json!({"count": 1, "permits": 1000, "free": 997}));
    assert!(waits["estimate"]["seconds"].as_f64().is_some(), "{waits}");
    assert!(waits["summary"].as_str().unwrap().contains("997 permits free on 1 live workers"), "{waits}");

    worker.finish(&claimed[0]).await.unwrap();
    let over = why(&api, early[0]).await;
    assert_eq!((&over["status"], &over["summary"]), (&json!("FINISHED"), &json!("it is finished")));
    assert_eq!(over["estimate"]["seconds"], json!(null));
}

#[tokio::test]
async fn slot_wait_shows_limit_and_only_own_holders() {
    let api = TestApi::start().await;
    let operator = api.caller("operator", &[EVERYDAY, &[Scope::Admin]].concat()).await;
    let set = operator.put("/v1/limits/metadata.region?shared=true", &json!({"limit": 2})).await;
    assert_eq!((set.status, &set.body["shared"]), (200, &json!(true)), "{}", set.text);
    let worker = TestWorker::start(&api.store).await;
    let region = json!({"metadata": {"region": "north"}});
    let mine = api.submit_with(region.clone()).await;
    assert_eq!(worker.claim_one().await.id, mine);
    let beta = api.caller("beta", EVERYDAY).await;
    let mut body = json!({"definition": "invoice", "input": {"text": "x"}});
    body["metadata"] = region["metadata"].clone();
    let theirs = beta.post("/v1/executions", &body).await.body["id"].as_str().unwrap().to_owned();
    assert_eq!(worker.claim_one().await.id.to_string(), theirs);
    let (first, second) = (api.submit_with(region.clone()).await, api.submit_with(region).await);
    let theirs_too = beta.post("/v1/executions", &body).await.body["id"].as_str().unwrap().to_owned();
    assert!(worker.claim(5).await.is_empty());

    let waits = why(&api, second).await;
    assert_eq!(waits["wait_reason"], "concurrency_limit");
    assert_eq!(
        waits["limits"],
        json!([{
            "key": "metadata.region:north", "source": "operator", "subject": null, "limit": 2, "held": 2,
            "holders": [mine.to_string()], "held_by_others": 1, "is_waited_for": true,
        }])
    );
    assert_eq!(waits["place"], json!({"ahead": 1, "is_at_least": false, "other_tenants": 1}));
    assert_eq!(waits["estimate"]["seconds"], json!(null), "nothing has ended yet: {waits}");
    assert_eq!(why(&api, first).await["place"]["ahead"], 0);
    for foreign in [&theirs, &theirs_too] {
        assert!(!waits.to_string().contains(foreign.as_str()), "an id of another tenant: {waits}");
        let hidden = api.acme.get(&format!("/v1/executions/{foreign}/waiting")).await;
        assert_eq!(hidden.error(), (404, "not_found"));
    }
    let seen = beta.get(&format!("/v1/executions/{theirs_too}/waiting")).await;
    assert_eq!(seen.body["limits"][0]["holders"], json!([theirs]));
    let asked = operator.get(&format!("/v1/executions/{second}/waiting?all_tenants=true")).await;
    assert_eq!(asked.body["limits"][0]["holders"], json!([mine.to_string()]));
}

#[tokio::test]
async fn timed_wait_shows_its_end_and_last_failure() {
    let api = TestApi::start().await;
    let at = api.store.now().await.unwrap() + chrono::Duration::hours(1);
    let scheduled = why(&api, api.submit_with(json!({"run_at": at})).await).await;
    assert_eq!(scheduled["wait_reason"], "scheduled");
    let seconds = scheduled["estimate"]["seconds"].as_f64().unwrap();
    assert!((3_000.0..=3_600.0).contains(&seconds), "{seconds}");

    let worker = TestWorker::start(&api.store).await;
    let id = api.submit().await;
    let claimed = worker.claim_one().await;
    let delay = Duration::from_secs(90);
    let retry = Conclusion::Retry { failure: transient(), delay, wake_seq: claimed.wake_seq };
    worker.end(&claimed, retry).await.unwrap();
    let retried = why(&api, id).await;
    assert_eq!(retried["wait_reason"], "retry_backoff");
    assert_eq!(
        retried["last_failure"],
        json!({"attempt": 1, "class": "transient", "code": "model_unreachable",
            "summary": "the model could not be reached"})
    );
    assert!(retried["until"].is_string() && retried["estimate"]["seconds"].as_f64().unwrap() <= 90.0, "{retried}");

    for reason in [WaitReason::ProviderDown, WaitReason::RateLimit] {
        let id = api.submit().await;
        park(&worker, &worker.claim_one().await, reason, Some(Duration::from_secs(60))).await;
        let waits = why(&api, id).await;
        assert_eq!(waits["wait_reason"], reason.as_str());
        assert!(waits["until"].is_string() && waits["estimate"]["seconds"].is_number(), "{waits}");
    }
}

#[tokio::test]
async fn provider_wait_shows_endpoint_cause_and_place() {
    let api = TestApi::start().await;
    let worker = TestWorker::start(&api.store).await;
    let key = ModelKey { provider: "p".into(), model: "m".into(), key: "0123456789ab".into() };
    let pauses = Pauses { first: Duration::from_secs(10), longest: Duration::from_secs(120) };
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(api.submit().await);
        let claimed = worker.claim_one().await;
        let failed = CallFailure {
            asking: Asking { worker: worker.id, id: claimed.id, token: claimed.token, call: 1 },
            key: key.clone(),
            failure: EndpointFailure {
                class: FailureClass::LlmError,
                code: FailureCode::MODEL_QUOTA_EXHAUSTED,
                is_quota: true,
                stated: Some(Duration::from_secs(600)),
            },
            patience: Duration::from_secs(900),
        };
        let answer = api.store.provider_failed(&key, &[&failed], pauses).await.unwrap().remove(0).unwrap();
        let FailedCall::Wait { wake_seq, .. } = answer else { panic!("{answer:?}") };
        let wait = Some(Duration::from_secs(600));
        let park = Conclusion::Park { reason: WaitReason::ProviderDown, wait, wake_seq };
        worker.end(&claimed, park).await.unwrap();
    }
    for (ahead, &id) in ids.iter().enumerate() {
        let mut waits = why(&api, id).await;
        let endpoint = waits["endpoint"].take();
        assert_eq!(
            (&endpoint["provider"], &endpoint["model"], &endpoint["state"], &endpoint["cause"]),
            (&json!("p"), &json!("m"), &json!("open"), &json!("quota"))
        );
        assert_eq!((&endpoint["is_stated"], &endpoint["ahead"]), (&json!(true), &json!(ahead)));
        let time = |name: &str| endpoint[name].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
        let until_it_gives_up = (time("give_up_at") - time("until")).num_seconds();
        assert!(
            (280..=300).contains(&until_it_gives_up),
            "900 s after it joined, 300 s after the model is back: {endpoint}"
        );
        assert_eq!(waits["summary"], "the quota of m of p is spent");
        assert_eq!(endpoint["is_at_least"], false);
    }
    // An operator resets the provider: one waiter is released, and the other no longer waits for the quota, nor
    // until a time.
    assert_eq!(api.store.reset_provider(&key).await.unwrap().len(), 1);
    let waits = why(&api, ids[1]).await;
    let endpoint = &waits["endpoint"];
    assert_eq!((&endpoint["state"], &endpoint["until"]), (&json!("recovering"), &json!(null)), "{waits}");
    assert_eq!(waits["summary"], "m of p is well again, and those that wait for it are let go in portions");
}

#[tokio::test]
async fn estimate_follows_recent_starts_and_hold_times() {
    let api = TestApi::start().await;
    let worker = TestWorker::start(&api.store).await;
    for _ in 0..5 {
        api.submit().await;
        worker.finish(&worker.claim_one().await).await.unwrap();
    }
    // Five executions started in the last hundred seconds, and each was held for twelve.
    sqlx::query(
        "update executions e set active_time = interval '12 seconds', \
             started_at = longhaul_now() - n * interval '20 seconds'
         from (select id, row_number() over (order by id desc) as n from executions) as numbered
         where numbered.id = e.id",
    )
    .execute(&api.db.pool)
    .await
    .unwrap();
    let seconds = async |id| {
        let estimate = why(&api, id).await["estimate"].take();
        estimate["seconds"].as_f64().unwrap_or_else(|| panic!("{estimate}"))
    };
    let ids = [api.submit().await, api.submit().await, api.submit().await];
    for (ahead, id) in ids.into_iter().enumerate() {
        let (found, expected) = (seconds(id).await, (ahead + 1) as f64 * 20.0);
        assert!((expected..expected * 1.1).contains(&found), "{found} s with {ahead} before it");
    }

    let operator = api.caller("operator", &[EVERYDAY, &[Scope::Admin]].concat()).await;
    assert_eq!(operator.put("/v1/limits/metadata.region?shared=true", &json!({"limit": 2})).await.status, 200);
    let region = json!({"metadata": {"region": "north"}});
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(api.submit_with(region.clone()).await);
    }
    assert_eq!(worker.claim(10).await.len(), 5, "three without a region and two of the limit");
    for (ahead, id) in waiting[2..].iter().enumerate() {
        let (found, expected) = (seconds(*id).await, (ahead + 1) as f64 * 12.0 / 2.0);
        assert!((found - expected).abs() < 0.01, "{found} s with {ahead} before it and two that run");
    }
}

#[tokio::test]
async fn human_and_child_waits_show_requests_and_children() {
    let api = TestApi::start().await;
    let worker = TestWorker::start(&api.store).await;
    for (kind, reason) in [(RequestKind::Approval, WaitReason::Approval), (RequestKind::Question, WaitReason::Input)] {
        let id = api.submit().await;
        let claimed = worker.claim_one().await;
        let request = NewHumanRequest {
            execution_id: id,
            token: claimed.token,
            kind,
            call_key: [1; 32],
            call_id: "call_1".into(),
            round: 0,
            tool: "pay".into(),
            arguments: "{}".into(),
            shown: "{}".into(),
            schema: None,
            policy: None,
            redact: Vec::new(),
            allow_self: false,
            expires_in: Duration::from_secs(600),
        };
        let request = worker.writer.request(request).await.unwrap();
        park(&worker, &claimed, reason, None).await;
        let waits = why(&api, id).await;
        assert_eq!(
            (&waits["wait_reason"], &waits["requests"][0]["id"]),
            (&json!(reason.as_str()), &json!(request.id.to_string()))
        );
        assert_eq!(waits["requests"][0]["tool"], "pay");
        assert_eq!(waits["estimate"], json!({"seconds": null, "basis": "a person decides"}));
    }
    let id = api.submit().await;
    let parent = worker.claim_one().await;
    let children = worker.spawn(&parent, 0..2).await;
    park(&worker, &parent, WaitReason::Children, None).await;
    let one = worker.claim_one().await;
    worker.finish(&one).await.unwrap();
    let open = children.iter().find(|child| **child != one.id).unwrap();
    let waits = why(&api, id).await;
    assert_eq!((&waits["wait_reason"], &waits["open_children"]), (&json!("children"), &json!(1)));
    assert_eq!(waits["children"], json!([{"id": open.to_string(), "status": "PENDING", "wait_reason": "worker"}]));
}

#[tokio::test]
async fn budget_and_unserved_waits_show_the_missing_resource() {
    let api = TestApi::start().await;
    let worker = TestWorker::start(&api.store).await;
    let id = api.submit_with(json!({"budget": {"max_model_calls": 1}})).await;
    let lowered = api.acme.post(&format!("/v1/executions/{id}/budget"), &json!({"max_model_calls": 0})).await;
    assert_eq!(lowered.status, 200, "{}", lowered.text);
    let claimed = worker.claim_one().await;
    let ask = Reservation {
        id,
        token: claimed.token,
        step_key: [1; 32],
        price: None,
        prompt_tokens: 9,
        reply_tokens: 1,
        least_reply_tokens: 1,
        may_wait: true,
    };
    let Reserved::Waiting { wake_seq } = worker.writer.reserve(ask).await.unwrap() else { panic!() };
    let park = Conclusion::Park { reason: WaitReason::Budget, wait: None, wake_seq };
    worker.end(&claimed, park).await.unwrap();
    let waits = why(&api, id).await;
    assert_eq!((&waits["wait_reason"], &waits["budget"]["max"]["model_calls"]), (&json!("budget"), &json!(0)));

    let unserved = api.submit_with(json!({"queue": "nobody"})).await;
    sqlx::query("update clock set shift = interval '60 seconds'").execute(&api.db.pool).await.unwrap();
    let parked = api.store.park_unserved(("nobody", ""), Duration::from_secs(10), 10).await.unwrap();
    assert_eq!(parked, 1);
    let waits = why(&api, unserved).await;
    assert_eq!(waits["wait_reason"], "no_worker");
    assert_eq!(
        waits["unserved"],
        json!({"definition": "invoice", "version": 1, "queue": "nobody", "requirements": []})
    );
    assert_eq!(waits["workers"]["count"], 0);
    assert_eq!(waits["summary"], "no live worker serves invoice version 1 in the queue nobody");
}
