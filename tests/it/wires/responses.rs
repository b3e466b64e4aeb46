//! Responses: whole, as streams that resume at every event, in the background, and in chains.

use std::time::Duration;

use longhaul_testkit::model::{Gate, ev_call, ev_finish, ev_gate, ev_text, reply_events, reply_text};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Bench, execution_of, frames, function};
use crate::support::{fleet::PATIENCE, wait::eventually};

fn ask(text: &str) -> Value {
    json!({ "model": "agent:helper", "input": text })
}

/// The text of a response.
pub(super) fn text_of(response: &Value) -> String {
    let items = response["output"].as_array().unwrap();
    let parts = items.iter().flat_map(|item| item["content"].as_array().into_iter().flatten());
    parts.filter_map(|part| part["text"].as_str()).collect()
}

#[tokio::test]
async fn response_is_answered_read_and_deleted() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    bench.fleet.llm.push(reply_text("Hello."));
    let mut body = ask("hi");
    body["metadata"] = json!({ "k": "v" });
    body["instructions"] = json!("Be polite.");
    let made = bench.post("/v1/responses", body).await;
    assert_eq!((made.status, &made.body["status"]), (200, &json!("completed")), "{}", made.text);
    assert_eq!(text_of(&made.body), "Hello.");
    assert_eq!((&made.body["metadata"]["k"], &made.body["instructions"]), (&json!("v"), &json!("Be polite.")));
    let asked = bench.fleet.llm.requests()[0].body.to_string();
    assert!(asked.contains("Be polite."), "{asked}");
    let path = format!("/v1/responses/{}", made.body["id"].as_str().unwrap());
    for _ in 0..2 {
        let read = bench.api.acme.get(&path).await;
        assert_eq!(read.body, made.body, "{}", read.text);
    }
    let items = bench.api.acme.get(&format!("{path}/input_items")).await;
    assert_eq!(items.body["data"][0]["role"], "user", "{}", items.text);
    let deleted = bench.api.acme.delete(&path).await;
    assert_eq!((deleted.status, &deleted.body["deleted"]), (200, &json!(true)), "{}", deleted.text);
    assert_eq!(bench.api.acme.get(&path).await.status, 404);
}

/// A stream of an agent whose worker dies in the middle of its first reply.
async fn killed_stream(bench: &Bench) -> (String, String) {
    let gate = Gate::new();
    let reached = gate.clone();
    bench.fleet.llm.push(reply_events([ev_text("Half of "), ev_gate(&gate), ev_text("it."), ev_finish("stop")]));
    let worker = bench.worker();
    let mut body = ask("tell me");
    body["stream"] = json!(true);
    let (api, sent) = (bench.api.acme.clone(), body);
    let streaming = tokio::spawn(async move { api.post("/v1/responses", &sent).await });
    reached.reached().await;
    let id: String = eventually("a portion is recorded", PATIENCE, || async {
        let found: Option<String> = sqlx::query_scalar("select execution_id::text from events where kind = 'text'")
            .fetch_optional(&bench.fleet.db.pool)
            .await
            .unwrap();
        found.ok_or_else(|| "none".to_owned())
    })
    .await;
    worker.kill().await;
    bench.fleet.llm.push(reply_events([ev_text("The whole "), ev_text("of it."), ev_finish("stop")]));
    let _worker = bench.worker();
    let answer = streaming.await.unwrap();
    gate.open();
    (format!("resp_{}", id.replace('-', "")), answer.text)
}

#[tokio::test]
async fn stream_survives_a_worker_and_resumes_at_every_event() {
    let bench = Bench::start().await;
    let (id, text) = killed_stream(&bench).await;
    let all = frames(&text);
    assert_eq!(all.last().unwrap().1, "[DONE]", "{text}");
    let events = &all[..all.len() - 1];
    assert_eq!(events.last().unwrap().0, "response.completed", "{text}");
    for (number, (event, data)) in events.iter().enumerate() {
        assert_eq!((&data["sequence_number"], &data["type"]), (&json!(number), &json!(event)), "{text}");
    }
    // The item of the dead attempt is incomplete, and the next begins a new one.
    let done: Vec<&Value> = events
        .iter()
        .filter(|(event, _)| event == "response.output_item.done")
        .map(|(_, data)| &data["item"])
        .collect();
    let states: Vec<&str> = done.iter().map(|item| item["status"].as_str().unwrap()).collect();
    assert_eq!(states, ["incomplete", "completed"], "{text}");
    assert_eq!(done[1]["content"][0]["text"], "The whole of it.");
    // Another process tells the same bytes after each event, long after the end.
    let beside = bench.api.beside().await;
    let caller = crate::support::api::Caller { url: beside.acme.url.clone(), ..bench.api.acme.clone() };
    for after in 0..events.len() {
        let path = format!("/v1/responses/{id}?stream=true&starting_after={after}");
        let resumed = caller.get(&path).await;
        let kept = text.find(&format!("\"sequence_number\":{after}")).unwrap();
        let rest = &text[kept + text[kept..].find("\n\n").unwrap() + 2..];
        assert_eq!(resumed.text, rest, "after {after}");
    }
}

#[tokio::test]
async fn background_response_is_queued_and_cancelled() {
    let bench = Bench::start().await;
    let mut body = ask("hi");
    body["background"] = json!(true);
    let made = bench.post("/v1/responses", body.clone()).await;
    assert_eq!((made.status, &made.body["status"]), (200, &json!("queued")), "{}", made.text);
    let path = format!("/v1/responses/{}", made.body["id"].as_str().unwrap());
    for _ in 0..2 {
        let cancelled = bench.api.acme.send(Method::POST, &format!("{path}/cancel"), None, &[]).await;
        assert_eq!((cancelled.status, &cancelled.body["status"]), (200, &json!("cancelled")), "{}", cancelled.text);
    }
    body["store"] = json!(false);
    assert_eq!(bench.post("/v1/responses", body).await.status, 400);
    let _worker = bench.worker();
    bench.fleet.llm.push(reply_text("ok"));
    let foreground = bench.post("/v1/responses", ask("hi")).await;
    let path = format!("/v1/responses/{}/cancel", foreground.body["id"].as_str().unwrap());
    assert_eq!(bench.api.acme.send(Method::POST, &path, None, &[]).await.status, 400);
}

#[tokio::test]
async fn function_of_the_request_is_awaited() {
    let bench = Bench::start().await;
    let worker = bench.worker();
    bench.fleet.llm.answer_with(|request| match request.replies() {
        0 => reply_events([ev_text("A moment."), ev_call("c1", "weather", &json!({ "city": "Oslo" }))]),
        _ => reply_text("Cold."),
    });
    let mut body = ask("weather?");
    let mut tool = function("weather");
    tool["type"] = json!("function");
    body["tools"] = json!([tool]);
    let first = bench.post("/v1/responses", body).await;
    assert_eq!((first.status, &first.body["status"]), (200, &json!("completed")), "{}", first.text);
    let call = first.body["output"].as_array().unwrap().iter().find(|item| item["type"] == "function_call").unwrap();
    let id = first.body["id"].clone();
    // Without its result the chain cannot go on.
    let early = json!({ "model": "agent:helper", "input": "well?", "previous_response_id": id });
    assert_eq!(bench.post("/v1/responses", early).await.status, 400);
    worker.kill().await;
    bench.fleet.advance(Duration::from_secs(86_400)).await;
    let _worker = bench.worker();
    let body = json!({
        "model": "agent:helper", "previous_response_id": id,
        "input": [{ "type": "function_call_output", "call_id": call["call_id"], "output": "2" }],
    });
    let second = bench.post("/v1/responses", body).await;
    assert_eq!(text_of(&second.body), "Cold.", "{}", second.text);
    assert_eq!(second.body["previous_response_id"], id);
    let (one, other) = (id.as_str().unwrap(), second.body["id"].as_str().unwrap());
    assert!(one != other && execution_of(one) == execution_of(other), "{one} {other}");
    for path in [one, other].map(|id| format!("/v1/responses/{id}")) {
        assert_eq!(bench.api.acme.get(&path).await.body["status"], "completed", "{path}");
    }
    assert_eq!(bench.asked(), 2);
}

/// Results for another response than the one that is named are refused, and that one still waits for them.
#[tokio::test]
async fn result_for_another_response_changes_nothing() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    bench.fleet.llm.answer_with(|request| match request.replies() {
        0 if request.last_said() == "weather?" => reply_events([ev_call("c1", "weather", &json!({ "city": "Oslo" }))]),
        _ => reply_text("done"),
    });
    let mut body = ask("weather?");
    let mut tool = function("weather");
    tool["type"] = json!("function");
    body["tools"] = json!([tool]);
    let waiting = bench.post("/v1/responses", body).await.body;
    let other = bench.post("/v1/responses", ask("hello")).await.body;
    let call = waiting["output"].as_array().unwrap().iter().find(|item| item["type"] == "function_call").unwrap();
    let send = async |previous: &Value| {
        let output = json!({ "type": "function_call_output", "call_id": call["call_id"], "output": "2" });
        let body = json!({ "model": "agent:helper", "previous_response_id": previous, "input": [output] });
        bench.post("/v1/responses", body).await
    };
    let refused = send(&other["id"]).await;
    assert_eq!((refused.status, &refused.body["error"]["param"]), (400, &json!("input")), "{}", refused.text);
    let decided: i64 = sqlx::query_scalar("select count(*) from human_requests where state <> 'waiting'")
        .fetch_one(&bench.fleet.db.pool)
        .await
        .unwrap();
    assert_eq!(decided, 0);
    assert_eq!(text_of(&send(&waiting["id"]).await.body), "done");
}

#[tokio::test]
async fn chains_continue_and_branch() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    bench.fleet.llm.answer_with(|request| reply_text(&format!("heard {}", request.last_said())));
    let follow = async |id: &Value, text: &str| {
        let body = json!({ "model": "agent:helper", "input": text, "previous_response_id": id });
        let answer = bench.post("/v1/responses", body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body["id"].clone()
    };
    let said = || -> Vec<String> {
        let last = bench.fleet.llm.requests().pop().unwrap();
        let all = last.body["messages"].as_array().unwrap().clone();
        let own = all.iter().filter(|message| message["role"] != "system");
        own.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let first = bench.post("/v1/responses", ask("one")).await.body["id"].clone();
    let second = follow(&first, "two").await;
    assert_eq!(said(), ["one", "heard one", "two"]);
    let third = follow(&second, "three").await;
    assert_eq!(said(), ["one", "heard one", "two", "heard two", "three"]);
    // From an earlier response a branch begins, and the first chain goes on as if there were none.
    follow(&second, "other").await;
    assert_eq!(said(), ["one", "heard one", "two", "heard two", "other"]);
    follow(&third, "four").await;
    assert_eq!(said(), ["one", "heard one", "two", "heard two", "three", "heard three", "four"]);
}

#[tokio::test]
async fn what_is_not_stored_cannot_be_read() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    bench.fleet.llm.push(reply_text("gone soon"));
    let mut body = ask("hi");
    body["store"] = json!(false);
    let made = bench.post("/v1/responses", body).await;
    assert_eq!(text_of(&made.body), "gone soon", "{}", made.text);
    let id = made.body["id"].as_str().unwrap();
    assert_eq!(bench.api.acme.get(&format!("/v1/responses/{id}")).await.status, 404);
    let follows = json!({ "model": "agent:helper", "input": "and?", "previous_response_id": id });
    let refused = bench.post("/v1/responses", follows).await;
    assert_eq!(refused.body["error"]["code"], "previous_response_not_found", "{}", refused.text);
    let execution = execution_of(id);
    eventually("its texts are erased", PATIENCE, || async {
        let erased: bool =
            sqlx::query_scalar("select erased_at is not null from execution_payloads where execution_id = $1")
                .bind(execution.0)
                .fetch_one(&bench.fleet.db.pool)
                .await
                .unwrap();
        if erased { Ok(()) } else { Err("not erased".to_owned()) }
    })
    .await;
}

#[tokio::test]
async fn compaction_stands_for_a_conversation() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    bench.fleet.llm.push(reply_text("They greeted."));
    let body = json!({ "model": "agent:helper", "input": [
        { "role": "user", "content": "hi" }, { "role": "assistant", "content": "hello" },
    ] });
    let compacted = bench.post("/v1/responses/compact", body).await;
    assert_eq!(
        (compacted.status, &compacted.body["object"]),
        (200, &json!("response.compaction")),
        "{}",
        compacted.text
    );
    let mut input = compacted.body["output"].as_array().unwrap().clone();
    input.push(json!({ "role": "user", "content": "go on" }));
    bench.fleet.llm.push(reply_text("Going on."));
    let answer = bench.post("/v1/responses", json!({ "model": "agent:helper", "input": input })).await;
    assert_eq!(text_of(&answer.body), "Going on.", "{}", answer.text);
    let asked = bench.fleet.llm.requests().pop().unwrap().body.to_string();
    assert!(asked.contains("They greeted."), "{asked}");
}
