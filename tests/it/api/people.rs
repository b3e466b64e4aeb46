//! `/v1/approvals` and `/v1/questions`: visibility, permissions, and the effect of a decision.

use std::time::Duration;

use longhaul_domain::{ExecutionId, RequestKind, WaitReason};
use longhaul_sdk::failure::{Failure, FailureCode};
use longhaul_store::executions::claims::Claimed;
use longhaul_store::history::journal::StepKind;
use longhaul_store::human_requests::{HumanRequest, NewHumanRequest};
use longhaul_store::tenants::api_keys::Scope;
use serde_json::{Value, json};

use crate::support::api::{Answer, Caller, TestApi};
use crate::support::leases::{Conclusion, TestWorker, step, write};

const ARGUMENTS: &str = r#"{"amount": 1e2,  "to": "A"}"#;

/// An API with a reviewer of tenant `acme` whose key differs from the submitter's.
pub(super) struct Desk {
    pub(super) api: TestApi,
    pub(super) worker: TestWorker,
    reviewer: Caller,
}

impl Desk {
    pub(super) async fn open() -> Self {
        let api = TestApi::start().await;
        let worker = TestWorker::start(&api.store).await;
        let reviewer = api.caller("acme", &[Scope::ExecutionsRead, Scope::ApprovalsDecide]).await;
        Self { api, worker, reviewer }
    }

    /// Parks an execution until its call is decided.
    pub(super) async fn wait_for(
        &self,
        kind: RequestKind,
        schema: Option<Value>,
        allow_self: bool,
    ) -> (ExecutionId, HumanRequest) {
        let id = self.api.submit().await;
        let claimed = self.worker.claim_one().await;
        let request = NewHumanRequest {
            execution_id: id,
            token: claimed.token,
            kind,
            call_key: [1; 32],
            call_id: "call_1".into(),
            round: 0,
            tool: "pay".into(),
            arguments: ARGUMENTS.into(),
            shown: "Which colour?".into(),
            redact: Vec::new(),
            schema,
            policy: Some("pay: ask".into()),
            allow_self,
            expires_in: Duration::from_secs(600),
        };
        let request = self.worker.writer.request(request).await.unwrap();
        let reason = if kind == RequestKind::Approval { WaitReason::Approval } else { WaitReason::Input };
        let park = Conclusion::Park { reason, wait: None, wake_seq: claimed.wake_seq };
        self.worker.end(&claimed, park).await.unwrap();
        (id, request)
    }

    /// Checks that the reviewer may approve the call, and none of its authors.
    async fn only_others_approve(&self, request: &HumanRequest, authors: &[&Caller]) {
        for author in authors {
            let own = decide(author, request, json!({ "decision": "approve" })).await;
            assert_eq!(own.error(), (403, "self_approval"), "{}", own.text);
        }
        assert_eq!(decide(&self.reviewer, request, json!({ "decision": "approve" })).await.status, 200);
    }

    pub(super) async fn approval(&self) -> (ExecutionId, HumanRequest) {
        self.wait_for(RequestKind::Approval, None, false).await
    }
}

pub(super) fn with_hash(request: &HumanRequest, body: Value) -> Value {
    let mut body = body;
    body["hash"] = hex::encode(request.hash).into();
    body
}

async fn decide(caller: &Caller, request: &HumanRequest, body: Value) -> Answer {
    caller.post(&format!("/v1/approvals/{}/decision", request.id), &with_hash(request, body)).await
}

async fn answer(caller: &Caller, request: &HumanRequest, body: Value) -> Answer {
    caller.post(&format!("/v1/questions/{}/answer", request.id), &body).await
}

/// With `approvals.authors`, the key that put the agent does not approve its calls.
#[tokio::test]
async fn authors_of_the_agent_count_where_set() {
    for authors_submit in [false, true] {
        let options = longhaul_api::ApiOptions { authors_submit, ..longhaul_api::ApiOptions::default() };
        let api = TestApi::start_with(options).await;
        let worker = TestWorker::start(&api.store).await;
        let reviewer = api.caller("acme", &[Scope::ExecutionsRead, Scope::ApprovalsDecide]).await;
        let author = api.caller("acme", Scope::ALL).await;
        let agent = json!({ "key": "clerk", "name": "Own clerk", "prompts": { "conversation": "You help." } });
        assert_eq!(author.put("/v1/agents/clerk", &agent).await.status, 201);
        let desk = Desk { api, worker, reviewer };
        let (_, request) = desk.approval().await;
        let own = decide(&author, &request, json!({ "decision": "approve" })).await;
        let expected = if authors_submit { 403 } else { 200 };
        assert_eq!(own.status, expected, "{}", own.text);
        if authors_submit {
            assert_eq!(decide(&desk.reviewer, &request, json!({ "decision": "approve" })).await.status, 200);
        }
    }
}

#[tokio::test]
async fn approval_shows_the_call_and_decision_wakes_it() {
    let desk = Desk::open().await;
    let (id, request) = desk.approval().await;
    let shown = desk.reviewer.get(&format!("/v1/approvals/{}", request.id)).await;
    assert!(shown.text.contains(ARGUMENTS), "{}", shown.text);
    assert_eq!((&shown.body["state"], &shown.body["policy"]), (&json!("waiting"), &json!("pay: ask")));
    assert_eq!(shown.body["hash"], hex::encode(request.hash));
    let said = json!({"decision": "approve", "reason": "fine", "decided_by": "Ada"});
    let mut looks = desk.api.redis.hear_looks().await;
    let decided = decide(&desk.reviewer, &request, said).await;
    assert_eq!((decided.status, &decided.body["state"]), (200, &json!("approved")), "{}", decided.text);
    let by = &decided.body["decided_by"];
    assert_eq!((&by["key_name"], &by["person"]), (&json!("test"), &json!("Ada")));
    assert_eq!(looks.next().await, [id]);
    assert_eq!(desk.api.woken("default").await.last(), Some(&id));
    assert_eq!(desk.worker.claim_one().await.id, id);
    let events = desk.api.acme.get(&format!("/v1/executions/{id}/events")).await;
    let decided = events.body["events"].as_array().unwrap().iter().find(|event| event["kind"] == "approval_decided");
    assert_eq!(decided.unwrap()["data"]["decision"], "approved", "{}", events.text);
}

#[tokio::test]
async fn decision_is_stored_with_the_call_to_run() {
    let desk = Desk::open().await;
    let cases = [
        (json!({"decision": "reject", "reason": "no"}), "rejected", json!(null), json!(null)),
        (json!({"decision": "edit", "arguments": {"amount": 1}}), "edited", json!(null), json!({"amount": 1})),
        (
            json!({"decision": "replace", "tool": "note", "arguments": {"text": "x"}}),
            "replaced",
            json!("note"),
            json!({"text": "x"}),
        ),
    ];
    for (body, state, tool, arguments) in cases {
        let (_, request) = desk.approval().await;
        let decided = decide(&desk.reviewer, &request, body).await.body;
        assert_eq!((&decided["state"], &decided["decided_tool"]), (&json!(state), &tool));
        assert_eq!(decided["decided_arguments"], arguments);
        desk.worker.finish(&desk.worker.claim_one().await).await.unwrap();
    }
}

#[tokio::test]
async fn second_decision_gets_409_and_the_first_decider_c48() {
    let desk = Desk::open().await;
    let (_, request) = desk.approval().await;
    decide(&desk.reviewer, &request, json!({"decision": "reject", "decided_by": "Ada"})).await;
    let second = decide(&desk.reviewer, &request, json!({"decision": "approve"})).await;
    assert_eq!(second.error(), (409, "already_decided"));
    let detail = second.body["detail"].as_str().unwrap();
    assert!(detail.contains("rejected by Ada with the key `test`"), "{detail}");
    let shown = desk.reviewer.get(&format!("/v1/approvals/{}", request.id)).await;
    assert_eq!(shown.body["state"], "rejected");
}

#[tokio::test]
async fn submitters_may_not_approve_retries_of_others() {
    let desk = Desk::open().await;
    let both = desk.api.caller("acme", Scope::ALL).await;
    let body = json!({"definition": "invoice", "input": {"text": "total 12"}});
    both.post("/v1/executions", &body).await;
    let first = desk.worker.claim_one().await;
    let failure = Failure::permanent(FailureCode::INTERNAL_ERROR, "no");
    desk.worker.end(&first, Conclusion::Fail { failure }).await.unwrap();
    let retried = desk.api.acme.post(&format!("/v1/executions/{}/retry", first.id), &json!({})).await;
    assert_eq!(retried.status, 201, "{}", retried.text);
    let path = format!("/v1/executions/{}/fork", retried.body["id"].as_str().unwrap());
    let forked = desk.api.acme.post(&path, &json!({"from_step": 1})).await;
    assert_eq!(forked.status, 201, "{}", forked.text);
    for claimed in desk.worker.claim(2).await {
        let request = ask(&desk, &claimed, false).await;
        desk.only_others_approve(&request, &[&both]).await;
    }
}

/// A key that replaces the submitter's, and the key that it replaced, have the same holder.
#[tokio::test]
async fn rotation_gives_no_second_pair_of_eyes() {
    let desk = Desk::open().await;
    let manager = desk.api.caller("acme", Scope::ALL).await;
    let scopes = ["executions:read", "executions:write", "approvals:decide"];
    let mut made = manager.post("/v1/keys", &json!({ "name": "ada", "scopes": scopes })).await;
    let mut holders = Vec::new();
    for _ in 0..3 {
        holders.push(Caller { key: made.body["key"].as_str().map(str::to_owned), ..manager.clone() });
        made = manager.post(&format!("/v1/keys/{}/rotate", made.body["id"].as_str().unwrap()), &json!({})).await;
        assert_eq!(made.status, 201, "{}", made.text);
    }
    let body = json!({ "definition": "invoice", "input": { "text": "total 12" } });
    assert_eq!(holders[1].post("/v1/executions", &body).await.status, 201);
    let request = ask(&desk, &desk.worker.claim_one().await, false).await;
    desk.only_others_approve(&request, &holders.iter().collect::<Vec<_>>()).await;
}

/// A schedule's writer does not approve what runs from it, also when another key runs it.
#[tokio::test]
async fn writer_of_a_schedule_may_not_approve_its_runs() {
    let desk = Desk::open().await;
    let writer = desk.api.caller("acme", Scope::ALL).await;
    let schedule = json!({
        "key": "nightly", "definition": "invoice", "input": { "text": "total 12" }, "cron": "0 3 1 1 *",
    });
    let written = writer.post("/v1/schedules", &schedule).await;
    assert_eq!(written.status, 201, "{}", written.text);
    let run = desk.api.acme.post("/v1/schedules/nightly/run", &json!({})).await;
    assert_eq!(run.status, 202, "{}", run.text);
    assert_eq!(writer.delete("/v1/schedules/nightly").await.status, 204, "the run keeps its author");
    let request = ask(&desk, &desk.worker.claim_one().await, false).await;
    desk.only_others_approve(&request, &[&writer]).await;
}

/// Requests an approval of a call.
async fn ask(desk: &Desk, claimed: &Claimed, allow_self: bool) -> HumanRequest {
    let request = NewHumanRequest {
        execution_id: claimed.id,
        token: claimed.token,
        kind: RequestKind::Approval,
        call_key: [1; 32],
        call_id: "call_1".into(),
        round: 0,
        tool: "pay".into(),
        arguments: b"{}".to_vec(),
        shown: "{}".into(),
        redact: Vec::new(),
        schema: None,
        policy: None,
        allow_self,
        expires_in: Duration::from_secs(600),
    };
    desk.worker.writer.request(request).await.unwrap()
}

#[tokio::test]
async fn replacement_call_invalid_for_its_tool_is_refused() {
    let desk = Desk::open().await;
    desk.api.submit().await;
    let claimed = desk.worker.claim_one().await;
    let note = json!({
        "name": "note", "description": "", "effect": "side_effect",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    });
    let prompt = step(1, StepKind::Prompt, &json!({"tools": [note], "shown": []}).to_string());
    desk.worker.record(write(&claimed, 1, vec![prompt])).await.unwrap();
    let request = ask(&desk, &claimed, false).await;
    let replace = async |tool: &str, arguments: Value| {
        let body = json!({"decision": "replace", "tool": tool, "arguments": arguments});
        decide(&desk.reviewer, &request, body).await
    };
    for (tool, arguments, path) in
        [("no_such", json!({"text": "x"}), "/tool"), ("note", json!({"text": 1}), "/arguments/text")]
    {
        let refused = replace(tool, arguments).await;
        assert_eq!((refused.error(), refused.paths()), ((422, "invalid_request"), vec![path]), "{}", refused.text);
    }
    let replaced = replace("note", json!({"text": "x"})).await;
    assert_eq!((replaced.status, &replaced.body["state"]), (200, &json!("replaced")), "{}", replaced.text);
}

#[tokio::test]
async fn self_approval_needs_the_policy_to_allow_it() {
    let desk = Desk::open().await;
    let both = desk.api.caller("acme", Scope::ALL).await;
    for (allow_self, expected) in [(false, 403), (true, 200)] {
        let body = json!({"definition": "invoice", "input": {"text": "total 12"}});
        both.post("/v1/executions", &body).await;
        let claimed = desk.worker.claim_one().await;
        let request = ask(&desk, &claimed, allow_self).await;
        let own = decide(&both, &request, json!({"decision": "approve"})).await;
        assert_eq!(own.status, expected, "{}", own.text);
        if !allow_self {
            assert_eq!(own.code(), "self_approval");
            assert_eq!(decide(&desk.reviewer, &request, json!({"decision": "approve"})).await.status, 200);
        }
    }
}

#[tokio::test]
async fn decision_with_a_stale_hash_is_refused() {
    let desk = Desk::open().await;
    let (_, request) = desk.approval().await;
    let unseen = HumanRequest { hash: [7; 32], ..request.clone() };
    assert_eq!(decide(&desk.reviewer, &unseen, json!({"decision": "approve"})).await.error(), (409, "stale_hash"));
    let path = format!("/v1/approvals/{}/decision", request.id);
    let blind = desk.reviewer.post(&path, &json!({"decision": "approve"})).await;
    assert_eq!((blind.error(), blind.paths()), ((422, "invalid_request"), vec!["/hash"]));
    assert_eq!(decide(&desk.reviewer, &request, json!({"decision": "approve"})).await.status, 200);
}

#[tokio::test]
async fn incomplete_or_excess_decision_fields_are_refused() {
    let desk = Desk::open().await;
    let schema = json!({"type": "object", "properties": {"amount": {"type": "number"}}, "additionalProperties": false});
    let (_, request) = desk.wait_for(RequestKind::Approval, Some(schema), false).await;
    let long = "x".repeat(2_001);
    let cases = [
        (json!({}), vec!["/decision"]),
        (json!({"decision": "maybe"}), vec!["/decision"]),
        (json!({"decision": "approve", "arguments": {}}), vec!["/arguments"]),
        (json!({"decision": "reject", "tool": "note"}), vec!["/tool"]),
        (json!({"decision": "edit"}), vec!["/arguments"]),
        (json!({"decision": "edit", "arguments": [1]}), vec!["/arguments"]),
        (json!({"decision": "replace"}), vec!["/arguments", "/tool"]),
        (json!({"decision": "reject", "reason": long, "decided_by": "\u{0}"}), vec!["/reason", "/decided_by"]),
        (json!({"decision": "approve", "colour": 1}), vec!["/colour"]),
        (
            json!({"decision": "edit", "arguments": {"amount": "12", "to": "B"}}),
            vec!["/arguments/amount", "/arguments/to"],
        ),
    ];
    for (body, paths) in cases {
        let refused = decide(&desk.reviewer, &request, body.clone()).await;
        assert_eq!(refused.error(), (422, "invalid_request"), "{body}: {}", refused.text);
        let mut found = refused.paths();
        found.sort_unstable();
        let mut expected = paths;
        expected.sort_unstable();
        assert_eq!(found, expected, "{body}");
    }
    let shown = desk.reviewer.get(&format!("/v1/approvals/{}", request.id)).await;
    assert_eq!(shown.body["state"], "waiting");
}

#[tokio::test]
async fn expired_or_ended_requests_cannot_be_decided() {
    let desk = Desk::open().await;
    let (id, cancelled) = desk.approval().await;
    desk.api.acme.post(&format!("/v1/executions/{id}/cancel"), &json!({})).await;
    let refused = decide(&desk.reviewer, &cancelled, json!({"decision": "approve"})).await;
    assert_eq!(refused.error(), (409, "already_decided"));
    assert!(refused.text.contains("the execution ended first"), "{}", refused.text);
    let (_, late) = desk.approval().await;
    sqlx::query("update clock set shift = '11 minutes'").execute(&desk.api.db.pool).await.unwrap();
    let refused = decide(&desk.reviewer, &late, json!({"decision": "approve"})).await;
    assert_eq!(refused.error(), (409, "already_decided"));
    assert!(refused.text.contains("nobody decided before it expired"), "{}", refused.text);
    let shown = desk.reviewer.get(&format!("/v1/approvals/{}", late.id)).await;
    assert_eq!(shown.body["state"], "expired", "before the sweep was there");
}

#[tokio::test]
async fn question_accepts_one_answer_matching_its_schema() {
    let desk = Desk::open().await;
    let schema = json!({"type": "object", "required": ["colour"], "properties": {"colour": {"enum": ["blue", "red"]}}});
    let (id, request) = desk.wait_for(RequestKind::Question, Some(schema.clone()), false).await;
    let shown = desk.api.acme.get(&format!("/v1/questions/{}", request.id)).await;
    assert_eq!((&shown.body["question"], &shown.body["schema"]), (&json!("Which colour?"), &schema));
    let wrong = answer(&desk.api.acme, &request, json!({"answer": {"colour": "green"}})).await;
    assert_eq!((wrong.error(), wrong.paths()), ((422, "invalid_request"), vec!["/answer/colour"]));
    let missing = answer(&desk.api.acme, &request, json!({"answer": {}})).await;
    assert_eq!(missing.paths(), ["/answer/colour"]);
    assert_eq!(answer(&desk.api.acme, &request, json!({})).await.paths(), ["/answer"]);
    let right = answer(&desk.api.acme, &request, json!({"answer": {"colour": "blue"}, "answered_by": "Ada"})).await;
    assert_eq!((right.status, &right.body["answer"]["colour"]), (200, &json!("blue")), "{}", right.text);
    assert_eq!(desk.worker.claim_one().await.id, id);
    let again = answer(&desk.api.acme, &request, json!({"answer": {"colour": "red"}})).await;
    assert_eq!(again.error(), (409, "already_decided"));
    // A question is not readable as an approval.
    assert_eq!(desk.api.acme.get(&format!("/v1/approvals/{}", request.id)).await.error(), (404, "not_found"));
}

#[tokio::test]
async fn lists_filter_page_and_stay_within_their_tenant() {
    let desk = Desk::open().await;
    let mut asked = Vec::new();
    for _ in 0..3 {
        asked.insert(0, desk.approval().await);
    }
    decide(&desk.reviewer, &asked[2].1, json!({"decision": "reject"})).await;
    let list = async |query: &str| -> Vec<String> {
        let page = desk.reviewer.get(&format!("/v1/approvals{query}")).await;
        assert_eq!(page.status, 200, "{}", page.text);
        page.body["approvals"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    };
    let id = |n: usize| asked[n].1.id.to_string();
    assert_eq!(list("").await, [id(0), id(1), id(2)]);
    assert_eq!(list("?state=waiting").await, [id(0), id(1)]);
    assert_eq!(list("?state=rejected").await, [id(2)]);
    assert_eq!(list(&format!("?execution={}", asked[1].0)).await, [id(1)]);
    assert_eq!(list("?agent=clerk&limit=1").await, [id(0)]);
    let first = desk.reviewer.get("/v1/approvals?limit=2").await;
    let cursor = first.body["next_cursor"].as_str().unwrap().to_owned();
    assert!(first.body["approvals"][0].get("arguments").is_none(), "a list has previews alone");
    assert_eq!(list(&format!("?limit=2&cursor={cursor}")).await, [id(2)]);
    let refused = desk.reviewer.get("/v1/approvals?state=done&execution=x&cursor=!").await;
    assert_eq!(refused.paths().len(), 3, "{}", refused.text);
    let stranger = desk.api.caller("other", Scope::ALL).await;
    assert_eq!(stranger.get("/v1/approvals").await.body["approvals"], json!([]));
    assert_eq!(stranger.get("/v1/approvals?all_tenants=true").await.body["approvals"].as_array().unwrap().len(), 3);
    for path in [format!("/v1/approvals/{}", id(0)), "/v1/approvals/no-id".to_owned()] {
        assert_eq!(stranger.get(&path).await.error(), (404, "not_found"));
    }
    let theirs = decide(&stranger, &asked[0].1, json!({"decision": "approve"})).await;
    assert_eq!(theirs.error(), (404, "not_found"));
    assert_eq!(list("?state=waiting").await, [id(0), id(1)]);
}
