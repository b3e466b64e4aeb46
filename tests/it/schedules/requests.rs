//! The routes of schedules.

use chrono::TimeDelta;
use longhaul_api::ApiOptions;
use longhaul_store::{
    StoreError,
    schedules::{KeyedRun, ManualRun},
    tenants::{
        api_keys::Scope,
        kept_answers::{Claimed, KeptAnswer, KeyedRequest},
    },
};
use longhaul_testkit::model::reply_text;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Service, now};
use crate::support::api::{EVERYDAY, TestApi};

fn schedule(more: Value) -> Value {
    let mut body = json!({"key": "s", "agent": "clerk", "input": {"prompt": "hi"}, "cron": "30 6 * * MON-FRI"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn schedule_is_shown_as_sent() {
    let api = TestApi::start().await;
    let sent = schedule(
        json!({"time_zone": "Europe/Berlin", "monthly_budget": {"max_tokens": 1_000}, "metadata": {"team": "x"}}),
    );
    let created = api.acme.post("/v1/schedules", &sent).await;
    assert_eq!(created.status, 201, "{}", created.text);
    let shown = api.acme.get("/v1/schedules/s").await.body;
    assert_eq!(shown, created.body);
    for (name, value) in sent.as_object().unwrap() {
        assert_eq!(&shown["spec"][name], value, "{name}");
    }
    let defaults = json!({"overlap": "skip", "catch_up": "one", "pause_after": 5, "priority": 5, "queue": "default"});
    for (name, value) in defaults.as_object().unwrap() {
        assert_eq!(&shown["spec"][name], value, "{name}");
    }
    assert_eq!((&shown["status"], &shown["month"]["spent"]["tokens"]), (&json!("active"), &json!(0)));
    let page = api.acme.get("/v1/schedules").await.body;
    assert_eq!((page["schedules"].as_array().unwrap().len(), &page["next_after"]), (1, &json!(null)));
}

#[tokio::test]
async fn invalid_schedules_are_refused_by_path() {
    let api = TestApi::start().await;
    let past = now_minus_a_day(&api).await;
    let cases = [
        (json!({"cron": "61 * * * *"}), vec!["/cron"]),
        (json!({"cron": "0 0 31 2 *"}), vec!["/cron"]),
        (json!({"cron": null}), vec!["/cron"]),
        (json!({"interval_seconds": 60}), vec!["/cron"]),
        (json!({"cron": null, "interval_seconds": 59}), vec!["/interval_seconds"]),
        (json!({"time_zone": "Europe/Atlantis"}), vec!["/time_zone"]),
        (json!({"cron": null, "interval_seconds": 60, "time_zone": "UTC"}), vec!["/time_zone"]),
        (json!({"cron": null, "at": past}), vec!["/at"]),
        (json!({"ends_at": past}), vec!["/ends_at"]),
        (json!({"agent": null}), vec!["/definition"]),
        (json!({"key": "No", "priority": 10, "pause_after": 1001}), vec!["/key", "/pause_after", "/priority"]),
        (json!({"overlap": "allow"}), vec!["/overlap"]),
        (json!({"budget": {}}), vec!["/budget"]),
        (json!({"monthly_budget": {}}), vec!["/monthly_budget"]),
        (json!({"unknown": 1}), vec!["/unknown"]),
    ];
    for (more, paths) in cases {
        let answer = api.acme.post("/v1/schedules", &schedule(more.clone())).await;
        let found: Vec<&str> =
            answer.body["errors"].as_array().unwrap().iter().map(|error| error["path"].as_str().unwrap()).collect();
        assert_eq!((answer.error(), found), ((422, "invalid_request"), paths), "{more}: {}", answer.text);
    }
    let invalid = [
        (json!({"agent": "nobody"}), "unknown_agent"),
        (json!({"agent": null, "definition": "nothing"}), "unknown_definition"),
        (json!({"version": 9}), "unknown_version"),
        (json!({"input": {"text": "no prompt"}}), "invalid_input"),
        (json!({"input": {"prompt": "\0"}}), "input_contains_nul"),
        (
            json!({"input": {"messages": [{"role": "user",
                "content": [{"type": "file", "file_id": format!("file_{}", "0".repeat(32))}]}]}}),
            "invalid_input",
        ),
    ];
    for (more, code) in invalid {
        let answer = api.acme.post("/v1/schedules", &schedule(more)).await;
        assert_eq!(answer.error(), (422, code), "{}", answer.text);
    }
    assert!(api.acme.get("/v1/schedules").await.body["schedules"].as_array().unwrap().is_empty());
}

async fn now_minus_a_day(api: &TestApi) -> String {
    (api.store.now().await.unwrap() - TimeDelta::days(1)).to_rfc3339()
}

#[tokio::test]
async fn same_idempotency_key_creates_one_schedule() {
    let api = TestApi::start().await;
    let send = async |body: Value| {
        let key = &[("idempotency-key", "k")];
        api.acme.send(Method::POST, "/v1/schedules", Some(body.to_string()), key).await
    };
    assert_eq!(send(schedule(json!({}))).await.status, 201);
    let again = send(schedule(json!({}))).await;
    assert_eq!((again.status, &again.body["key"]), (200, &json!("s")));
    assert_eq!(send(schedule(json!({"key": "t"}))).await.error(), (409, "idempotency_key_reused"));
    assert_eq!(api.acme.post("/v1/schedules", &schedule(json!({}))).await.error(), (409, "schedule_exists"));
}

#[tokio::test]
async fn repeated_create_is_answered_after_its_tick() {
    let service = Service::start().await;
    let once = now(&service.fleet).await + TimeDelta::hours(1);
    let body = schedule(json!({"agent": "a", "cron": null, "at": once}));
    let send = async |body: &Value| {
        let key = &[("idempotency-key", "k")];
        service.api.acme.send(Method::POST, "/v1/schedules", Some(body.to_string()), key).await
    };
    assert_eq!(send(&body).await.status, 201);
    service.fleet.advance(super::minutes(120)).await;
    let again = send(&body).await;
    assert_eq!((again.status, &again.body["key"]), (200, &json!("s")), "{}", again.text);
    let other = schedule(json!({"agent": "a", "cron": null, "at": once, "priority": 1}));
    assert_eq!(send(&other).await.error(), (409, "idempotency_key_reused"));
}

#[tokio::test]
async fn tenant_has_at_most_its_number_of_schedules() {
    let api = TestApi::start_with(ApiOptions { max_schedules: 2, ..ApiOptions::default() }).await;
    for key in ["a", "b"] {
        assert_eq!(api.acme.post("/v1/schedules", &schedule(json!({"key": key}))).await.status, 201);
    }
    let third = api.acme.post("/v1/schedules", &schedule(json!({"key": "c"}))).await;
    assert_eq!(third.error(), (409, "too_many_schedules"));
    assert_eq!(api.acme.send(Method::DELETE, "/v1/schedules/a", None, &[]).await.status, 204);
    assert_eq!(api.acme.post("/v1/schedules", &schedule(json!({"key": "c"}))).await.status, 201);
}

#[tokio::test]
async fn other_tenants_see_nothing_of_a_schedule() {
    let api = TestApi::start().await;
    api.acme.post("/v1/schedules", &schedule(json!({}))).await;
    let other = api.caller("globex", EVERYDAY).await;
    assert!(other.get("/v1/schedules").await.body["schedules"].as_array().unwrap().is_empty());
    for (method, path, body) in [
        (Method::GET, "", None),
        (Method::PUT, "", Some(schedule(json!({})).to_string())),
        (Method::DELETE, "", None),
        (Method::POST, "/pause", None),
        (Method::POST, "/resume", None),
        (Method::POST, "/run", None),
        (Method::GET, "/firings", None),
    ] {
        let answer = other.send(method.clone(), &format!("/v1/schedules/s{path}"), body, &[]).await;
        assert_eq!(answer.error(), (404, "not_found"), "{method} {path}");
    }
    // The same key is free for it.
    assert_eq!(other.post("/v1/schedules", &schedule(json!({}))).await.status, 201);
    assert_eq!(api.acme.get("/v1/schedules/s").await.body["status"], "active");
}

#[tokio::test]
async fn replaced_timing_moves_the_next_tick() {
    let service = Service::start().await;
    let created = service.create(json!({"interval_seconds": 3600})).await.body;
    service.fleet.advance(super::minutes(10)).await;
    let put = async |body: Value| {
        let answer = service.api.acme.send(Method::PUT, "/v1/schedules/s", Some(body.to_string()), &[]).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body
    };
    let kept = json!({"key": "s", "agent": "a", "input": {"prompt": "other"}, "interval_seconds": 3600});
    let replaced = put(kept).await;
    assert_eq!(replaced["next_tick_at"], created["next_tick_at"]);
    assert_eq!(replaced["spec"]["input"]["prompt"], "other");
    let moved = put(json!({"key": "s", "agent": "a", "input": {"prompt": "x"}, "interval_seconds": 7200})).await;
    let next: chrono::DateTime<chrono::Utc> = moved["next_tick_at"].as_str().unwrap().parse().unwrap();
    let ahead = next - now(&service.fleet).await;
    assert!(ahead <= TimeDelta::seconds(7201) && ahead > TimeDelta::seconds(7100), "{ahead}");
    let other = json!({"key": "t", "agent": "a", "input": {"prompt": "x"}, "interval_seconds": 7200});
    let answer = service.api.acme.send(Method::PUT, "/v1/schedules/s", Some(other.to_string()), &[]).await;
    assert_eq!(answer.error(), (422, "invalid_request"));
}

#[tokio::test]
async fn paused_schedule_fires_nothing_until_resumed() {
    let service = Service::start().await;
    service.create(json!({"interval_seconds": 60})).await;
    let _worker = service.fleet.worker();
    let paused = service.post("/pause").await.body;
    assert_eq!((&paused["status"], &paused["pause_reason"]), (&json!("paused"), &json!("requested")));
    service.fleet.advance(super::minutes(10)).await;
    let resumed = service.post("/resume").await.body;
    assert_eq!(resumed["status"], "active");
    service.to_next_tick().await;
    let firings = service.until(1, "over").await;
    assert_eq!(firings[0]["tick"], firings[0]["first_tick"], "ticks of the pause are not caught up");
}

#[tokio::test]
async fn run_now_follows_the_overlap_policy() {
    let service = Service::start().await;
    service.create(json!({"interval_seconds": 3600})).await;
    let gate = service.hold();
    let _worker = service.fleet.worker();
    let run = async |key: &'static str| {
        let path = "/v1/schedules/s/run";
        service.api.acme.send(Method::POST, path, None, &[("idempotency-key", key)]).await
    };
    let first = run("one").await;
    assert_eq!((first.status, &first.body["is_queued"]), (202, &json!(false)), "{}", first.text);
    let again = run("one").await;
    assert_eq!((again.status, &again.text, again.header("idempotent-replayed")), (202, &first.text, "true"));
    let (one, other) = tokio::join!(run("two"), run("two"));
    assert_eq!((one.error(), other.error()), ((409, "run_refused"), (409, "run_refused")));
    gate.open();
    let firings = service.until(1, "over").await;
    assert_eq!((&firings[0]["kind"], &firings[0]["execution_id"]), (&json!("manual"), &first.body["execution_id"]));
    service.fleet.llm.answer_with(|_| reply_text("done"));
    assert_eq!(run("two").await.error(), (409, "run_refused"), "the answer of a key stays");
    assert_eq!(run("three").await.status, 202);
    service.until(2, "over").await;
}

/// A process may die between the run and its answer: both are one transaction.
#[tokio::test]
async fn run_and_its_answer_are_stored_together() {
    let service = Service::start().await;
    service.create(json!({"interval_seconds": 3600, "overlap": "queue"})).await;
    let (store, tenant) = (&service.api.store, service.api.tenant);
    let schedule = store.get_schedule(&tenant.into(), "s").await.unwrap().unwrap();
    let plan = store.plan_scheduled_run(&schedule, "acme").await.unwrap();
    let request = |key: &str| {
        store.claim_request(KeyedRequest {
            tenant,
            place: b"run".to_vec(),
            key: key.to_owned(),
            request_hash: b"same".to_vec(),
        })
    };
    for key in ["starts", "waits"] {
        let Claimed::Now(claim) = request(key).await.unwrap() else { panic!("{key}: not the first") };
        let answer = |run: &ManualRun| KeptAnswer {
            status: 202,
            body: Some(format!("{run:?}").into_bytes()),
            ..KeptAnswer::default()
        };
        let keyed = KeyedRun { claim: &claim, answer: &answer };
        let run = store.run_schedule_now(&schedule, &plan, Some(keyed)).await.unwrap();
        let Claimed::Answered(kept) = request(key).await.unwrap() else { panic!("{key}: no answer") };
        assert_eq!(kept.body, Some(format!("{run:?}").into_bytes()), "{key}");
        // Another process has taken the claim over: this one starts nothing more.
        let late = store.run_schedule_now(&schedule, &plan, Some(keyed)).await;
        assert!(matches!(late, Err(StoreError::Conflict(_))), "{late:?}");
    }
    assert_eq!(service.firings("s").await.len(), 2);
}

#[tokio::test]
async fn run_now_needs_the_right_to_the_agent() {
    let service = Service::start().await;
    let admin = service.api.caller("acme", &[Scope::Admin, Scope::ExecutionsWrite, Scope::ExecutionsRead]).await;
    let body = json!({"key": "s", "agent": "a", "input": {"prompt": "hi"}, "interval_seconds": 3600});
    assert_eq!(admin.post("/v1/schedules", &body).await.status, 201);
    let deny = json!({"id": "deny", "effect": "deny", "scope": "role:user", "resource": "a"});
    let put = admin.put("/v1/platform", &json!({"policy_rules": [deny]})).await;
    assert_eq!(put.status, 200, "{}", put.text);
    assert_eq!(service.post("/run").await.error(), (403, "agent_not_allowed"));
    let run = admin.post("/v1/schedules/s/run", &json!({})).await;
    assert_eq!(run.status, 202, "{}", run.text);
}

#[tokio::test]
async fn deleted_schedule_leaves_its_run_alone() {
    let service = Service::start().await;
    service.create(json!({"interval_seconds": 60})).await;
    let gate = service.hold();
    let _worker = service.fleet.worker();
    service.to_next_tick().await;
    let firings = service.until(1, "running").await;
    assert_eq!(service.api.acme.send(Method::DELETE, "/v1/schedules/s", None, &[]).await.status, 204);
    assert_eq!(service.api.acme.get("/v1/schedules/s").await.error(), (404, "not_found"));
    gate.open();
    let ended = service.fleet.ended(firings[0]["execution_id"].as_str().unwrap().parse().unwrap()).await;
    assert_eq!(ended["status"], "FINISHED");
}
