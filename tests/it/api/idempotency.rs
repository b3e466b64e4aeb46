//! `Idempotency-Key` at every `POST` of the OpenAPI document: sent twice at once and again, each acts once.

use longhaul_domain::{ExecutionId, RequestKind, Role};
use longhaul_sdk::failure::{Failure, FailureCode};
use longhaul_store::history::journal::StepKind;
use longhaul_store::tenants::{accounts::SignedIn, api_keys::Scope};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use super::{
    people::{Desk, with_hash},
    quarantine::quarantined,
};
use crate::support::{
    api::{Answer, Caller, TestApi},
    copies,
    leases::{Conclusion, step, write},
    wait::{SOON, eventually},
};

/// Operations without keys: searches, and a stream that is not resumed.
const WITHOUT: [&str; 6] = [
    "/v1/indexes/{name}/search",
    "/v1/internal/agent-executions/stream",
    "/v1/memory/search",
    "/v1/messages/count_tokens",
    "/v1/responses/compact",
    "/v1/responses/input_tokens",
];
/// Operations that wait for a worker: sessions/chat.rs, contract/doors.rs, contract/kit.rs and wires/refusals.rs. And
/// one that stops a run of those.
const ELSEWHERE: [&str; 16] = [
    "/api/chat/{agent_id}",
    "/v1/agent-executions",
    "/v1/agui/{agent}",
    "/v1/chat/completions",
    "/v1/internal/agent-executions",
    "/v1/messages",
    "/v1/responses",
    "/v1/responses/{id}/cancel",
    // Their repetition is the lease's (tests/it/remote).
    "/v1/workers",
    "/v1/workers/{id}/heartbeat",
    "/v1/workers/{id}/claim",
    "/v1/workers/{id}/writes",
    "/v1/workers/{id}/ends",
    "/v1/workers/{id}/executions/{execution}/requests",
    "/v1/workers/{id}/executions/{execution}/children",
    "/v1/workers/{id}/executions/{execution}/children/wait",
];

/// Operations that are the same for the same bytes, under any key.
const NATURAL: [&str; 2] = ["/v1/files", "/v1/indexes/{name}/documents"];

/// An API with something for each operation to act on.
struct Service {
    desk: Desk,
    /// Holds every scope; not the submitter.
    caller: Caller,
}

impl Service {
    async fn start() -> Self {
        let desk = Desk::open().await;
        let caller = desk.api.caller("acme", Scope::ALL).await;
        Self { desk, caller }
    }

    fn api(&self) -> &TestApi {
        &self.desk.api
    }

    async fn created(&self, path: &str, body: Value) -> String {
        let answer = self.api().acme.post(path, &body).await;
        assert_eq!(answer.status, 201, "{path}: {}", answer.text);
        ["id", "key"].iter().find_map(|name| answer.body[*name].as_str()).unwrap().to_owned()
    }

    async fn failed(&self) -> ExecutionId {
        let id = self.api().submit().await;
        let claimed = self.desk.worker.claim_one().await;
        let steps = vec![step(1, StepKind::Prompt, "p"), step(2, StepKind::Turn, "t")];
        self.desk.worker.record(write(&claimed, 1, steps)).await.unwrap();
        let failure = Failure::permanent(FailureCode::TOOL_FAILED, "no");
        self.desk.worker.end(&claimed, Conclusion::Fail { failure }).await.unwrap();
        id
    }

    async fn project(&self) -> String {
        let plan = json!({ "tasks": [{ "key": "t", "prompt": "go" }] });
        let body = json!({ "goal": "a report", "agent": "clerk", "plan": plan, "budget": { "max_tokens": 1_000 } });
        self.created("/v1/projects", body).await
    }

    async fn schedule(&self, more: Value) -> String {
        let mut body = json!({ "key": "s", "agent": "clerk", "input": { "prompt": "hi" }, "interval_seconds": 3_600 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.created("/v1/schedules", body).await
    }

    async fn run(&self) -> String {
        self.created("/v1/runs", json!({ "key": "r", "budget": { "max_tokens": 1_000 } })).await
    }

    async fn session(&self) -> String {
        self.created("/v1/sessions", json!({ "agent": "clerk", "budget": { "max_tokens": 1_000 } })).await
    }

    async fn webhook(&self) -> String {
        self.created("/v1/webhooks", json!({ "url": "https://example.org/" })).await
    }

    async fn account(&self) -> String {
        let roles = &[Role::Viewer];
        let person = SignedIn { tenant: self.api().tenant, issuer: "i", subject: "s", name: "Ada", email: None, roles };
        self.api().store.sign_in(&person).await.unwrap();
        let listed = self.caller.get("/v1/accounts").await;
        listed.body["accounts"][0]["id"].as_str().unwrap().to_owned()
    }

    /// A request that the operation can act on: path and body.
    async fn example(&self, operation: &str) -> (String, Value) {
        let at = |id: &dyn std::fmt::Display| {
            let (before, rest) = operation.split_once('{').unwrap();
            format!("{before}{id}{}", rest.split_once('}').unwrap().1)
        };
        let here = |body: Value| (operation.to_owned(), body);
        let invoice = json!({ "definition": "invoice", "input": { "text": "total 12" } });
        match operation {
            "/v1/executions" => here(invoice),
            "/v1/executions/batch" => here(json!({ "executions": [invoice, invoice] })),
            "/v1/executions/{id}/retry" => (at(&self.failed().await), json!({})),
            "/v1/executions/{id}/fork" => (at(&self.failed().await), json!({ "from_step": 2 })),
            "/v1/executions/{id}/cancel" => (at(&self.api().submit().await), json!({})),
            "/v1/executions/{id}/signals" => (at(&self.api().submit().await), json!({ "name": "paid" })),
            "/v1/executions/{id}/budget" => {
                let id = self.api().submit_with(json!({ "budget": { "max_tokens": 10 } })).await;
                (at(&id), json!({ "max_tokens": 20 }))
            }
            "/v1/executions/{id}/tool-results" => (
                at(&self.api().submit().await),
                json!({ "results": [{ "call_id": "c", "hash": "0".repeat(64), "output": "x" }] }),
            ),
            "/v1/approvals/{id}/decision" => {
                let (_, request) = self.desk.approval().await;
                (at(&request.id), with_hash(&request, json!({ "decision": "approve" })))
            }
            "/v1/questions/{id}/answer" => {
                let (_, request) = self.desk.wait_for(RequestKind::Question, None, true).await;
                (at(&request.id), json!({ "answer": "blue" }))
            }
            "/v1/files" => (format!("{operation}?name=a.txt"), json!("some text")),
            "/v1/sessions" => here(json!({ "agent": "clerk" })),
            "/v1/sessions/{id}/messages" => (at(&self.session().await), json!({ "message": "hello" })),
            "/v1/sessions/{id}/budget" => (at(&self.session().await), json!({ "max_tokens": 2_000 })),
            "/v1/sessions/{id}/interrupt" | "/v1/sessions/{id}/end" => (at(&self.session().await), json!({})),
            "/v1/runs" => here(json!({ "key": "r" })),
            "/v1/runs/{key}/budget" => (at(&self.run().await), json!({ "max_tokens": 2_000 })),
            "/v1/runs/{key}/end" => (at(&self.run().await), json!({ "status": "finished" })),
            "/v1/runs/{key}/cancel" => (at(&self.run().await), json!({})),
            "/v1/schedules" => {
                here(json!({ "key": "s", "agent": "clerk", "input": { "prompt": "hi" }, "interval_seconds": 60 }))
            }
            "/v1/schedules/{key}/pause" | "/v1/schedules/{key}/resume" | "/v1/schedules/{key}/run" => {
                (at(&self.schedule(json!({})).await), json!({}))
            }
            "/v1/projects" => here(json!({ "goal": "a report", "agent": "clerk" })),
            "/v1/projects/{id}/budget" => (at(&self.project().await), json!({ "max_tokens": 2_000 })),
            "/v1/projects/{id}/tasks/{key}/retry" => {
                (format!("/v1/projects/{}/tasks/t/retry", self.project().await), json!({}))
            }
            "/v1/projects/{id}/approve"
            | "/v1/projects/{id}/pause"
            | "/v1/projects/{id}/resume"
            | "/v1/projects/{id}/continue"
            | "/v1/projects/{id}/cancel" => (at(&self.project().await), json!({})),
            "/v1/indexes/{name}/documents" => {
                (at(&"handbook"), json!({ "documents": [{ "id": "a", "text": "All of it." }] }))
            }
            "/v1/accounts/{id}/disable" | "/v1/accounts/{id}/enable" => (at(&self.account().await), json!({})),
            "/v1/keys" => here(json!({ "name": "new", "scopes": ["executions:read"] })),
            "/v1/keys/{id}/rotate" => {
                let made = self.caller.post("/v1/keys", &json!({ "name": "old", "roles": ["viewer"] })).await;
                (at(&made.body["id"].as_str().unwrap()), json!({}))
            }
            "/v1/webhooks" => here(json!({ "url": "https://example.org/" })),
            "/v1/webhooks/{id}/rotate" | "/v1/webhooks/{id}/test" => (at(&self.webhook().await), json!({})),
            "/v1/webhooks/{id}/redeliver" => {
                (at(&self.webhook().await), json!({ "failed_since": "2026-01-01T00:00:00Z" }))
            }
            "/v1/workers/{id}/drain" => (at(&self.desk.worker.id), json!({})),
            "/v1/providers/health/reset" => {
                let down = "insert into provider_breakers (provider, model, key, state, cause, since, open_until)
                     values ('p', 'm', 'k', 'open', 'outage', now(), now() + interval '1 hour')";
                sqlx::query(down).execute(&self.api().db.pool).await.unwrap();
                here(json!({ "provider": "p" }))
            }
            "/v1/quarantine/{id}/release" => (at(&quarantined(self.api()).await), json!({})),
            unknown => panic!("no example for {unknown}"),
        }
    }
}

async fn send(caller: &Caller, operation: &str, path: &str, body: &Value, key: &str) -> Answer {
    if operation == "/v1/files" {
        let request = caller.request(Method::POST, path).header("content-type", "text/plain").body("some text");
        return Answer::read(request.header("idempotency-key", key).send().await.unwrap()).await;
    }
    caller.post_as(path, body, &[("idempotency-key", key)]).await
}

/// The part of an answer that tells its effect: without secrets, and numbers that time alters.
fn effect(answer: &Answer) -> Value {
    let ids = ["id", "file_id", "execution_id", "key", "replaced_by", "released_as", "state", "status", "code"];
    let Some(members) = answer.body.as_object() else { return json!(null) };
    let is_key = |name: &str| name == "key" && members["key"].as_str().is_none_or(|key| key.starts_with("lh_"));
    let told = members.iter().filter(|(name, _)| ids.contains(&name.as_str()) && !is_key(name));
    told.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn operations() -> Vec<String> {
    let document = longhaul_api::openapi();
    let paths = document["paths"].as_object().unwrap();
    paths.iter().filter(|(_, methods)| methods["post"].is_object()).map(|(path, _)| path.clone()).collect()
}

#[tokio::test]
async fn every_post_takes_a_key_but_the_listed() {
    let document = longhaul_api::openapi();
    for path in operations() {
        let parameters = document["paths"][&path]["post"]["parameters"].as_array().cloned().unwrap_or_default();
        let takes_key = parameters.iter().any(|one| one["name"] == "Idempotency-Key" && one["in"] == "header");
        assert_eq!(takes_key, !WITHOUT.contains(&path.as_str()), "{path}");
    }
}

/// Sends each request twice at once, and again: one acts, and all are told its effect.
#[tokio::test]
async fn requests_sent_three_times_act_once() {
    for operation in operations() {
        if WITHOUT.contains(&operation.as_str()) || ELSEWHERE.contains(&operation.as_str()) {
            continue;
        }
        let service = Service::start().await;
        let (path, body) = service.example(&operation).await;
        let caller = &service.caller;
        let one = || send(caller, &operation, &path, &body, "k");
        let (first, second) = tokio::join!(one(), one());
        let third = one().await;
        let answers = [&first, &second, &third];
        let told: Vec<String> = answers.iter().map(|answer| format!("{} {}", answer.status, answer.text)).collect();
        assert!(first.status < 300 || first.status == 409, "{operation}: {told:?}");
        assert_eq!(effect(&first), effect(&second), "{operation}: {told:?}");
        assert_eq!(effect(&first), effect(&third), "{operation}: {told:?}");
        let secrets = answers.iter().filter(|answer| answer.text.contains("lh_") || answer.text.contains("whsec_"));
        assert!(secrets.count() <= 1, "{operation}: {told:?}");
        if NATURAL.contains(&operation.as_str()) {
            continue;
        }
        let other = send(caller, &operation, &path, &json!({ "another": true }), "k").await;
        assert!((400..500).contains(&other.status), "{operation}: {}", other.text);
    }
}

const KEY: &[(&str, &str)] = &[("idempotency-key", "k")];

fn is_replayed(answer: &Answer) -> bool {
    answer.header("idempotent-replayed") == "true"
}

async fn kept(api: &TestApi, column: &str) -> Vec<Option<String>> {
    let rows =
        sqlx::query_scalar(AssertSqlSafe(format!("select {column}::text from kept_answers order by created_at")));
    rows.fetch_all(&api.db.pool).await.unwrap()
}

#[tokio::test]
async fn key_of_a_path_belongs_to_one_request() {
    let service = Service::start().await;
    let admin = &service.caller;
    let first = admin.post_as("/v1/keys", &json!({ "name": "one", "roles": ["viewer"] }), KEY).await;
    assert_eq!((first.status, is_replayed(&first)), (201, false));
    let other = admin.post_as("/v1/keys", &json!({ "name": "two", "roles": ["viewer"] }), KEY).await;
    assert_eq!(other.error(), (409, "idempotency_key_reused"), "{}", other.text);
    let elsewhere = admin.post_as("/v1/webhooks", &json!({ "url": "https://example.org/" }), KEY).await;
    assert_eq!((elsewhere.status, is_replayed(&elsewhere)), (201, false), "another path");
    let stranger = service.api().caller("beta", Scope::ALL).await;
    let theirs = stranger.post_as("/v1/keys", &json!({ "name": "one", "roles": ["viewer"] }), KEY).await;
    assert_eq!((theirs.status, is_replayed(&theirs)), (201, false), "another tenant");
    for wrong in ["", "\u{e9}", &"k".repeat(256)] {
        let body = json!({ "name": "x", "roles": ["viewer"] });
        let answer = admin.post_as("/v1/keys", &body, &[("idempotency-key", wrong)]).await;
        assert_eq!(answer.paths(), ["/header/Idempotency-Key"], "{wrong:?}");
    }
}

#[tokio::test]
async fn secrets_of_kept_answers_are_withheld() {
    let service = Service::start().await;
    let admin = &service.caller;
    let key = json!({ "name": "one", "roles": ["viewer"] });
    let webhook = json!({ "url": "https://example.org/" });
    for (path, body, member) in [("/v1/keys", &key, "key"), ("/v1/webhooks", &webhook, "secret")] {
        let first = admin.post_as(path, body, KEY).await;
        let secret = first.body[member].as_str().unwrap();
        let again = admin.post_as(path, body, KEY).await;
        assert_eq!((&again.body["id"], &again.body[member]), (&first.body["id"], &json!(null)));
        assert!(again.body["withheld"].as_str().unwrap().contains("rotate"), "{}", again.text);
        let rotate = format!("{path}/{}/rotate", first.body["id"].as_str().unwrap());
        let rotated = admin.post_as(&rotate, &json!({}), KEY).await;
        let next = rotated.body[member].as_str().unwrap_or_else(|| panic!("{}", rotated.text));
        let again = admin.post_as(&rotate, &json!({}), KEY).await;
        assert_eq!((&again.body["id"], &again.body[member]), (&rotated.body["id"], &json!(null)));
        for secret in [secret, next] {
            let copies = copies::in_database(&service.api().db.pool, &secret[12..]).await;
            assert_eq!(copies, Vec::<String>::new(), "{path}");
        }
    }
}

#[tokio::test]
async fn repeat_needs_the_scopes_of_the_request() {
    let service = Service::start().await;
    let path = format!("/v1/executions/{}/cancel", service.api().submit().await);
    let first = service.caller.post_as(&path, &json!({}), KEY).await;
    let reader = service.api().caller("acme", &[Scope::ExecutionsRead]).await;
    assert_eq!(reader.post_as(&path, &json!({}), KEY).await.error(), (403, "missing_scope"));
    let again = service.api().acme.post_as(&path, &json!({}), KEY).await;
    assert_eq!((again.status, &again.text, is_replayed(&again)), (first.status, &first.text, true));
    assert_eq!(service.api().nobody().post_as(&path, &json!({}), KEY).await.error(), (401, "unauthenticated"));
}

#[tokio::test]
async fn undecided_answers_are_not_kept() {
    let service = Service::start().await;
    let path = "/v1/schedules/s/run";
    let reader = service.api().caller("acme", &[Scope::ExecutionsRead]).await;
    assert_eq!(reader.post_as(path, &json!({}), KEY).await.error(), (403, "missing_scope"));
    assert_eq!(service.caller.post_as(path, &json!({}), KEY).await.error(), (404, "not_found"));
    let budget =
        format!("/v1/executions/{}/budget", service.api().submit_with(json!({ "budget": { "max_tokens": 9 } })).await);
    assert_eq!(service.caller.post_as(&budget, &json!({ "max": 1 }), KEY).await.status, 422);
    assert_eq!(
        service.caller.send(Method::POST, &budget, Some("{".into()), KEY).await.error(),
        (400, "malformed_json")
    );
    let long = json!({ "max": "x".repeat(2 * 1024 * 1024) });
    assert_eq!(service.caller.post_as(&budget, &long, KEY).await.error(), (413, "payload_too_large"));
    assert_eq!(kept(service.api(), "status").await, Vec::<Option<String>>::new());
    service.schedule(json!({})).await;
    let run = service.caller.post_as(path, &json!({}), KEY).await;
    assert_eq!((run.status, is_replayed(&run)), (202, false), "{}", run.text);
}

#[tokio::test]
async fn queued_run_under_one_key_is_one_run() {
    let service = Service::start().await;
    service.schedule(json!({ "overlap": "queue" })).await;
    let run = async |key: &'static str| {
        service.caller.send(Method::POST, "/v1/schedules/s/run", None, &[("idempotency-key", key)]).await
    };
    let first = run("one").await;
    assert_eq!((first.status, &first.body["is_queued"]), (202, &json!(false)), "{}", first.text);
    let queued = futures::future::join_all((0..6).map(|_| run("two"))).await;
    for one in queued {
        assert_eq!((one.status, &one.body["is_queued"]), (202, &json!(true)), "{}", one.text);
    }
    assert_eq!(run("two").await.body["is_queued"], json!(true));
    let firings: i64 =
        sqlx::query_scalar("select count(*) from schedule_firings").fetch_one(&service.api().db.pool).await.unwrap();
    assert_eq!(firings, 2, "one runs, one waits");
}

/// A process that dies between its act and its answer leaves its claim.
#[tokio::test]
async fn claim_of_a_dead_process_is_taken_over() {
    let service = Service::start().await;
    let id = service.api().submit().await;
    let path = format!("/v1/executions/{id}/cancel");
    let first = service.caller.post_as(&path, &json!({}), KEY).await;
    let pool = &service.api().db.pool;
    sqlx::query("update kept_answers set status = null, body = null").execute(pool).await.unwrap();
    let body = json!({});
    let repeat = service.caller.post_as(&path, &body, KEY);
    let later = async {
        let before = kept(service.api(), "claim").await;
        sqlx::query("update clock set shift = shift + 61 * interval '1 second'").execute(pool).await.unwrap();
        before
    };
    let (repeat, before) = tokio::join!(repeat, later);
    assert_eq!((repeat.status, &repeat.body["id"], is_replayed(&repeat)), (200, &first.body["id"], false));
    assert_ne!(kept(service.api(), "claim").await, before);
}

/// The act goes on when its caller leaves, and the repeat is told what it did.
#[tokio::test]
async fn caller_that_leaves_finds_its_answer() {
    let service = Service::start().await;
    let id = service.api().submit().await;
    let path = format!("/v1/executions/{id}/cancel");
    let mut transaction = service.api().db.pool.begin().await.unwrap();
    sqlx::query("select from executions where id = $1 for update").bind(id.0).execute(&mut *transaction).await.unwrap();
    let request = service.caller.request(Method::POST, &path).header("idempotency-key", "k");
    let leaving = tokio::spawn(request.send());
    eventually("the request is under way", SOON, async || {
        let rows = kept(service.api(), "claim").await;
        if rows.len() == 1 { Ok(()) } else { Err(rows.len()) }
    })
    .await;
    leaving.abort();
    transaction.rollback().await.unwrap();
    let again = service.caller.send(Method::POST, &path, None, KEY).await;
    assert_eq!((again.status, &again.body["status"], is_replayed(&again)), (200, &json!("FAILED"), true));
}

#[tokio::test]
async fn erasure_reaches_kept_answers() {
    let service = Service::start().await;
    let (api, caller) = (service.api(), &service.caller);
    let erased = async |path: &str, erase: &str| {
        let first = caller.post_as(path, &json!({}), KEY).await;
        assert!(first.status < 300, "{path}: {}", first.text);
        // No worker is there that would cancel what a project started.
        let open: Vec<uuid::Uuid> = sqlx::query_scalar("select id from executions where finished_at is null")
            .fetch_all(&api.db.pool)
            .await
            .unwrap();
        for id in open {
            assert!(caller.post(&format!("/v1/executions/{id}/cancel"), &json!({})).await.status < 300);
        }
        sqlx::query("update projects set status = 'cancelled', finished_at = longhaul_now(), running = 0")
            .execute(&api.db.pool)
            .await
            .unwrap();
        let gone = caller.delete(erase).await;
        assert!(gone.status < 300, "{erase}: {}", gone.text);
        let again = caller.request(Method::POST, path).header("idempotency-key", "k");
        let again = again.header("content-type", "application/json").body("{}").send().await.unwrap();
        let again = Answer::read(again).await;
        assert_eq!((again.status, again.body), (first.status, json!({ "erased": true })), "{path}");
    };
    let id = api.submit().await;
    erased(&format!("/v1/executions/{id}/cancel"), &format!("/v1/executions/{id}/content")).await;
    let session = service.session().await;
    erased(&format!("/v1/sessions/{session}/end"), &format!("/v1/sessions/{session}")).await;
    service.schedule(json!({})).await;
    erased("/v1/schedules/s/pause", "/v1/schedules/s").await;
    let project = service.project().await;
    erased(&format!("/v1/projects/{project}/cancel"), &format!("/v1/projects/{project}")).await;
    assert_eq!(kept(api, "body").await, [None, None, None, None]);
}

#[tokio::test]
async fn batch_under_a_key_is_stored_once() {
    let api = TestApi::start().await;
    let item = json!({ "definition": "invoice", "input": { "text": "total 12" } });
    let own = json!({ "definition": "invoice", "input": { "text": "total 12" }, "idempotency_key": "own" });
    let body = json!({ "executions": [item, own, item] });
    let first = api.acme.post_as("/v1/executions/batch", &body, KEY).await;
    let again = api.acme.post_as("/v1/executions/batch", &body, KEY).await;
    let ids = |answer: &Answer| {
        let results = answer.body["results"].as_array().unwrap().clone();
        results.into_iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((ids(&first), api.count().await), (ids(&again), 3));
}
