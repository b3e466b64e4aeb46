//! `/v1/runs`.

use longhaul_domain::{ExecutionId, RunId};
use longhaul_store::runs::{RunAnswer, RunRequest};
use serde_json::{Value, json};

use crate::support::{
    api::{EVERYDAY, TestApi},
    leases::{TestWorker, new_execution, standing},
};

/// Begins a run and returns its id.
async fn begun(api: &TestApi, body: Value) -> RunId {
    let made = api.acme.post("/v1/runs", &body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let key = body["key"].as_str().unwrap();
    api.store.run_by_key(&api.tenant.into(), key).await.unwrap().unwrap().id
}

/// Asks for a call of the run as a process of that name.
async fn asked(api: &TestApi, run: RunId, attempt: &str, content: u8) -> RunAnswer {
    let request = RunRequest { run, attempt, content: [content; 32], step: None, is_retry: false };
    let execution = new_execution(&api.store, api.tenant).await;
    api.store.begin_run_call(&request, &execution).await.unwrap()
}

fn execution_of(answer: RunAnswer) -> ExecutionId {
    match answer {
        RunAnswer::New { execution, .. } | RunAnswer::Known { execution, .. } => execution,
        RunAnswer::Ended(_) | RunAnswer::DeadlinePassed | RunAnswer::TooMany(_) | RunAnswer::FileGone => {
            panic!("{answer:?}")
        }
    }
}

#[tokio::test]
async fn run_is_begun_once_under_its_key() {
    let api = TestApi::start().await;
    let body = json!({"key": "report-7", "budget": {"max_model_calls": 3}, "deadline_seconds": 60});
    let first = api.acme.post("/v1/runs", &body).await;
    assert_eq!((first.status, &first.body["status"]), (201, &json!("open")), "{}", first.text);
    assert_eq!(first.body["budget"]["max"]["model_calls"], 3, "{}", first.text);
    assert_eq!(first.body["usage"]["cost_usd"], 0.0, "{}", first.text);
    let again = api.acme.post("/v1/runs", &json!({"key": "report-7"})).await;
    assert_eq!((again.status, &again.body), (200, &first.body), "its budget and its deadline stay");
    let read = api.acme.get("/v1/runs/report-7").await;
    assert_eq!(read.body, first.body);
    let raised = api.acme.post("/v1/runs/report-7/budget", &json!({"max_model_calls": 9})).await;
    assert_eq!((raised.status, &raised.body["max"]["model_calls"]), (200, &json!(9)), "{}", raised.text);
    begun(&api, json!({"key": "free"})).await;
    let none = api.acme.post("/v1/runs/free/budget", &json!({"max_model_calls": 9})).await;
    assert_eq!(none.error(), (409, "no_budget"));
    let beta = api.caller("beta", EVERYDAY).await;
    assert_eq!(beta.get("/v1/runs/report-7").await.error(), (404, "not_found"));
    assert_eq!(beta.post("/v1/runs/report-7/cancel", &json!({})).await.error(), (404, "not_found"));
    assert_eq!(beta.post("/v1/runs", &body).await.status, 201, "keys belong to tenants");
    assert_eq!(api.acme.get("/v1/runs/report-7").await.body["status"], "open");
}

#[tokio::test]
async fn invalid_runs_are_refused_with_paths() {
    let api = TestApi::start().await;
    for (body, path) in [
        (json!({}), "/key"),
        (json!({"key": ""}), "/key"),
        (json!({"key": "../keys"}), "/key"),
        (json!({"key": "a b"}), "/key"),
        (json!({"key": "a..b"}), "/key"),
        (json!({"key": "k".repeat(201)}), "/key"),
        (json!({"key": "k", "budget": {}}), "/budget"),
        (json!({"key": "k", "deadline_seconds": 0}), "/deadline_seconds"),
        (json!({"key": "k", "deadline_seconds": 2_592_001}), "/deadline_seconds"),
    ] {
        let refused = api.acme.post("/v1/runs", &body).await;
        assert_eq!((refused.status, refused.paths()), (422, vec![path]), "{body}: {}", refused.text);
    }
    for odd in ["%00", "a%2Fb", "%F0%9F%9A%82", "none"] {
        assert_eq!(api.acme.get(&format!("/v1/runs/{odd}")).await.error(), (404, "not_found"), "{odd}");
    }
    begun(&api, json!({"key": "k"})).await;
    let noted = api.acme.post("/v1/runs/k/end", &json!({"status": "finished", "note": "x"})).await;
    assert_eq!((noted.status, noted.paths()), (422, vec!["/note"]));
    let cancelled = api.acme.post("/v1/runs/k/end", &json!({"status": "cancelled"})).await;
    assert_eq!((cancelled.status, cancelled.paths()), (422, vec!["/status"]));
}

#[tokio::test]
async fn runs_are_listed_page_by_page() {
    let api = TestApi::start().await;
    for key in ["a", "b", "c"] {
        begun(&api, json!({"key": key})).await;
    }
    let failed = api.acme.post("/v1/runs/b/end", &json!({"status": "failed", "note": "no source"})).await;
    assert_eq!((&failed.body["status"], &failed.body["note"]), (&json!("failed"), &json!("no source")));
    let keys = |page: &Value| -> Vec<String> {
        page["runs"].as_array().unwrap().iter().map(|run| run["key"].as_str().unwrap().to_owned()).collect()
    };
    let first = api.acme.get("/v1/runs?limit=2").await.body;
    assert_eq!(keys(&first), ["c", "b"]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = api.acme.get(&format!("/v1/runs?limit=2&cursor={cursor}")).await.body;
    assert_eq!((keys(&second), &second["next_cursor"]), (vec!["a".to_owned()], &json!(null)));
    assert_eq!(keys(&api.acme.get("/v1/runs?status=failed").await.body), ["b"]);
    assert_eq!(api.acme.get("/v1/runs?status=over").await.paths(), ["/query/status"]);
    assert_eq!(api.caller("beta", EVERYDAY).await.get("/v1/runs").await.body["runs"], json!([]));
}

#[tokio::test]
async fn calls_show_executions_and_answers_from_the_record() {
    let api = TestApi::start().await;
    let run = begun(&api, json!({"key": "k"})).await;
    let first = execution_of(asked(&api, run, "one", 1).await);
    let second = execution_of(asked(&api, run, "one", 2).await);
    assert_eq!(execution_of(asked(&api, run, "two", 1).await), first, "of another attempt");
    let page = api.acme.get("/v1/runs/k/calls?limit=1").await.body;
    let call = &page["calls"][0];
    assert_eq!(call["execution_id"], first.to_string(), "{page}");
    assert_eq!((&call["occurrence"], &call["saved"], &call["status"]), (&json!(1), &json!(1), &json!("PENDING")));
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = api.acme.get(&format!("/v1/runs/k/calls?cursor={cursor}")).await.body;
    assert_eq!((&rest["calls"][0]["execution_id"], &rest["next_cursor"]), (&json!(second.to_string()), &json!(null)));
    let shown = api.acme.get("/v1/runs/k").await.body;
    assert_eq!((&shown["calls"], &shown["attempts"]), (&json!(2), &json!(2)), "{shown}");
    assert_eq!((&shown["usage"]["saved_calls"], &shown["usage"]["open_calls"]), (&json!(1), &json!(2)), "{shown}");
    let beta = api.caller("beta", EVERYDAY).await;
    assert_eq!(beta.get("/v1/runs/k/calls").await.error(), (404, "not_found"));
}

#[tokio::test]
async fn cancelled_run_cancels_its_calls_and_reopens() {
    let api = TestApi::start().await;
    let worker = TestWorker::start(&api.store).await;
    let run = begun(&api, json!({"key": "k"})).await;
    let ended = execution_of(asked(&api, run, "one", 1).await);
    let claimed = worker.claim_one().await;
    worker.finish(&claimed).await.unwrap();
    let waiting = execution_of(asked(&api, run, "one", 2).await);
    let cancelled = api.acme.post("/v1/runs/k/cancel", &json!({})).await;
    assert_eq!((cancelled.status, &cancelled.body["status"]), (200, &json!("cancelled")), "{}", cancelled.text);
    for (id, status) in [(ended, "FINISHED"), (waiting, "FAILED")] {
        assert_eq!(standing(&api.db.pool, id).await.0, status);
    }
    assert!(matches!(asked(&api, run, "one", 3).await, RunAnswer::Ended(_)));
    assert_eq!(api.acme.post("/v1/runs/k/cancel", &json!({})).await.status, 200, "a repeat");
    let end = api.acme.post("/v1/runs/k/end", &json!({"status": "finished"})).await;
    assert_eq!(end.error(), (409, "run_is_over"));
    let reopened = api.acme.post("/v1/runs", &json!({"key": "k", "reopen": true})).await;
    assert_eq!((reopened.status, &reopened.body["status"]), (200, &json!("open")), "{}", reopened.text);
    assert_eq!(execution_of(asked(&api, run, "two", 1).await), ended, "its record stays");
    assert_ne!(execution_of(asked(&api, run, "two", 2).await), waiting, "a cancelled call answers nothing");
    assert_eq!(api.acme.post("/v1/runs/k/end", &json!({"status": "finished"})).await.status, 200);
    assert_eq!(api.acme.post("/v1/runs/k/end", &json!({"status": "finished"})).await.status, 200, "a repeat");
    let finished = api.acme.post("/v1/runs", &json!({"key": "k", "reopen": true})).await;
    assert_eq!(finished.body["status"], "finished", "not reopened");
    assert_eq!(api.acme.post("/v1/runs/k/cancel", &json!({})).await.error(), (409, "run_is_over"));
}
