//! Durable runs: model calls of a program that knows nothing of them, paid once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::join_all;
use longhaul_testkit::model::{Gate, ev_finish, ev_gate, ev_text, reply_events, reply_status, reply_text};
use serde_json::{Value, json};

use super::{Bench, send};
use crate::support::{api::Answer, fleet::PATIENCE, wait::eventually};

fn chat(text: &str) -> Value {
    json!({ "model": "m", "messages": [{ "role": "user", "content": text }] })
}

/// A request of an attempt at the run `k`.
async fn ask(bench: &Bench, attempt: &str, text: &str, more: &[(&str, &str)]) -> Answer {
    let mut headers = vec![("longhaul-run", "k"), ("longhaul-attempt", attempt)];
    headers.extend(more);
    send(&bench.api.acme, "/v1/chat/completions", &chat(text), &headers).await
}

fn said(answer: &Answer) -> &str {
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["choices"][0]["message"]["content"].as_str().unwrap()
}

/// The model answers with the number of the request.
fn counting(bench: &Bench) {
    let count = Arc::new(AtomicUsize::new(0));
    bench.fleet.llm.answer_with(move |request| {
        reply_text(&format!("{} {}", request.last_said(), count.fetch_add(1, Ordering::SeqCst) + 1))
    });
}

#[tokio::test]
async fn next_attempt_pays_only_for_what_is_new() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    counting(&bench);
    for attempt in ["a1", "a2", "a3"] {
        assert_eq!(said(&ask(&bench, attempt, "plan", &[]).await), "plan 1");
        assert_eq!(said(&ask(&bench, attempt, "write", &[]).await), "write 2");
        // The same content again within an attempt is another call.
        assert_eq!(said(&ask(&bench, attempt, "plan", &[]).await), "plan 3");
    }
    assert_eq!(bench.asked(), 3);
    let run = bench.api.acme.get("/v1/runs/k").await;
    assert_eq!(run.status, 200, "{}", run.text);
    assert_eq!((&run.body["calls"], &run.body["usage"]["saved_calls"]), (&json!(3), &json!(6)), "{}", run.text);
}

#[tokio::test]
async fn path_names_run_and_attempt() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    counting(&bench);
    for attempt in ["x", "y"] {
        let path = format!("/runs/k/attempts/{attempt}/v1/chat/completions");
        assert_eq!(said(&send(&bench.api.acme, &path, &chat("plan"), &[]).await), "plan 1");
    }
    assert_eq!(said(&ask(&bench, "z", "plan", &[]).await), "plan 1");
    assert_eq!(bench.asked(), 1);
    let without = send(&bench.api.acme, "/v1/chat/completions", &chat("plan"), &[("longhaul-run", "k")]).await;
    assert_eq!((without.status, &without.body["error"]["param"]), (400, &json!("Longhaul-Attempt")));
}

#[tokio::test]
async fn retry_of_a_client_is_no_new_call() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    counting(&bench);
    assert_eq!(said(&ask(&bench, "a", "plan", &[]).await), "plan 1");
    assert_eq!(said(&ask(&bench, "a", "plan", &[("x-stainless-retry-count", "1")]).await), "plan 1");
    assert_eq!(said(&ask(&bench, "a", "plan", &[("x-stainless-retry-count", "0")]).await), "plan 2");
    // A step is the same call whatever is asked.
    assert_eq!(said(&ask(&bench, "b", "today is Monday", &[("longhaul-step", "s")]).await), "today is Monday 3");
    assert_eq!(said(&ask(&bench, "c", "today is Tuesday", &[("longhaul-step", "s")]).await), "today is Monday 3");
}

#[tokio::test]
async fn call_outlives_its_client() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    let gate = Gate::new();
    bench.fleet.llm.push(reply_events([ev_gate(&gate), ev_text("late"), ev_finish("stop")]));
    let asking = ask(&bench, "a", "plan", &[]);
    tokio::select! {
        _ = asking => panic!("answered"),
        () = gate.reached() => {}
    }
    // The client is gone; its next attempt, and another process beside it, join the call.
    let others = join_all(["b", "c", "a"].map(|attempt| ask(&bench, attempt, "plan", &[])));
    let opening = async {
        eventually("the other attempts have asked", PATIENCE, || async {
            let asked = "select count(distinct attempt) from run_attempts";
            let asked: i64 = sqlx::query_scalar(asked).fetch_one(&bench.fleet.db.pool).await.unwrap();
            if asked == 3 { Ok(()) } else { Err(asked.to_string()) }
        })
        .await;
        gate.open();
    };
    let (answers, ()) = tokio::join!(others, opening);
    for answer in &answers {
        assert_eq!(said(answer), "late");
    }
    assert_eq!(bench.asked(), 1);
}

#[tokio::test]
async fn failed_call_is_made_anew() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    bench.fleet.llm.push(reply_status(400, "not today"));
    assert_eq!(ask(&bench, "a", "plan", &[]).await.status, 400);
    bench.fleet.llm.push(reply_text("now"));
    assert_eq!(said(&ask(&bench, "a", "plan", &[]).await), "now");
    assert_eq!(said(&ask(&bench, "b", "plan", &[]).await), "now");
    assert_eq!(bench.asked(), 2);
}

#[tokio::test]
async fn budget_of_a_run_holds_for_calls_at_once() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    counting(&bench);
    let body = json!({ "key": "k", "budget": { "max_model_calls": 10, "on_exhausted": "fail" } });
    let made = bench.post("/v1/runs", body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let texts: Vec<String> = (0..50).map(|n| format!("q{n}")).collect();
    let answers = join_all(texts.iter().map(|text| ask(&bench, "a", text, &[]))).await;
    let answered = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!((answered, bench.asked()), (10, 10));
    assert!(answers.iter().all(|answer| answer.status == 200 || answer.text.contains("budget_exhausted")));
    // What is recorded costs nothing.
    let known = texts.iter().zip(&answers).find(|(_, answer)| answer.status == 200).unwrap();
    assert_eq!(said(&ask(&bench, "b", known.0, &[]).await), said(known.1));
}

#[tokio::test]
async fn foreign_and_ended_runs_are_refused() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    counting(&bench);
    assert_eq!(said(&ask(&bench, "a", "plan", &[]).await), "plan 1");
    // The same key of another tenant is another run.
    let other = bench.api.caller("other", &[longhaul_store::tenants::api_keys::Scope::ExecutionsWrite]).await;
    let headers = [("longhaul-run", "k"), ("longhaul-attempt", "a")];
    assert_eq!(said(&send(&other, "/v1/chat/completions", &chat("plan"), &headers).await), "plan 2");
    let ended = bench.post("/v1/runs/k/end", json!({ "status": "finished" })).await;
    assert_eq!(ended.status, 200, "{}", ended.text);
    let refused = ask(&bench, "b", "more", &[]).await;
    assert_eq!((refused.status, &refused.body["error"]["code"]), (409, &json!("run_ended")), "{}", refused.text);
    assert_eq!(refused.header("x-should-retry"), "false");
}

#[tokio::test]
async fn chained_responses_are_paid_once() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    counting(&bench);
    let mut seen = Vec::new();
    for attempt in ["a", "b"] {
        let headers = [("longhaul-run", "k"), ("longhaul-attempt", attempt)];
        let ask = async |body: Value| send(&bench.api.acme, "/v1/responses", &body, &headers).await;
        let first = ask(json!({ "model": "m", "input": "plan" })).await;
        let id = &first.body["id"];
        let second = ask(json!({ "model": "m", "input": "write", "previous_response_id": id })).await;
        assert_eq!((first.status, second.status), (200, 200), "{} {}", first.text, second.text);
        seen.push((id.clone(), second.body["id"].clone()));
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(bench.asked(), 2);
}

#[tokio::test]
async fn key_of_a_pruned_run_begins_another() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    counting(&bench);
    assert_eq!(said(&ask(&bench, "a", "plan", &[]).await), "plan 1");
    // The process knows the id of the run that is gone.
    sqlx::query("delete from runs").execute(bench.fleet.store.pool()).await.unwrap();
    assert_eq!(said(&ask(&bench, "b", "plan", &[]).await), "plan 2");
    assert_eq!(said(&ask(&bench, "c", "plan", &[]).await), "plan 2");
}
