//! Chat completions: agents, definitions and models, whole and as streams.

use longhaul_testkit::model::{ev_call, ev_finish, ev_text, reply_events, reply_text};
use serde_json::{Value, json};

use super::{Bench, execution_of, frames, function};

fn chat(model: &str, text: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": text }] })
}

#[tokio::test]
async fn model_is_called_once_with_the_messages() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    bench.fleet.llm.push(reply_text("Four."));
    let body = json!({
        "model": "some/model", "temperature": 0.5, "max_tokens": 50, "top_p": 0.9, "user": "u",
        "messages": [
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": "2+1?" },
            { "role": "assistant", "content": "Three." },
            { "role": "user", "content": [{ "type": "text", "text": "2+2?" }] },
        ],
    });
    let answer = bench.post("/v1/chat/completions", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.body["object"], "chat.completion");
    assert_eq!(answer.body["model"], "some/model");
    let choice = &answer.body["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("Four."), &json!("stop")));
    assert!(answer.body["usage"]["total_tokens"].as_u64().unwrap() > 0, "{}", answer.text);
    let [request] = &bench.fleet.llm.requests()[..] else { panic!() };
    let said: Vec<(&str, &str)> = request.body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| (message["role"].as_str().unwrap(), message["content"].as_str().unwrap()))
        .collect();
    let expected = [("system", "Be brief."), ("user", "2+1?"), ("assistant", "Three."), ("user", "2+2?")];
    assert_eq!(said, expected);
    assert_eq!((&request.body["model"], &request.body["temperature"]), (&json!("some/model"), &json!(0.5)));
    assert_eq!(request.body["top_p"], json!(0.9));
    // It is an execution like any other, that the caller's tenant sees.
    let id = execution_of(answer.body["id"].as_str().unwrap());
    let shown = bench.api.acme.get(&format!("/v1/executions/{id}")).await;
    assert_eq!((shown.status, &shown.body["status"]), (200, &json!("FINISHED")), "{}", shown.text);
}

#[tokio::test]
async fn calls_of_a_model_are_the_callers() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    bench.fleet.llm.push(reply_events([
        ev_text("Let me see. "),
        ev_call("c1", "weather", &json!({ "city": "Oslo" })),
        ev_call("c2", "weather", &json!({ "city": "Rome" })),
    ]));
    let mut body = chat("m", "weather?");
    body["tools"] = json!([{ "type": "function", "function": function("weather") }]);
    body["tool_choice"] = json!("required");
    let answer = bench.post("/v1/chat/completions", body.clone()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let choice = &answer.body["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0]["function"]["arguments"], json!({ "city": "Oslo" }).to_string());
    let [request] = &bench.fleet.llm.requests()[..] else { panic!() };
    assert_eq!(request.body["tool_choice"], "required");
    // The client sends the results with the conversation: a call of its own.
    bench.fleet.llm.push(reply_text("Cold and warm."));
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(choice["message"].clone());
    for (call, text) in calls.iter().zip(["2", "20"]) {
        messages.push(json!({ "role": "tool", "tool_call_id": call["id"], "content": text }));
    }
    let answer = bench.post("/v1/chat/completions", body).await;
    assert_eq!(answer.body["choices"][0]["message"]["content"], "Cold and warm.", "{}", answer.text);
    let last = bench.fleet.llm.requests().pop().unwrap();
    let roles: Vec<&str> =
        last.body["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool"]);
}

#[tokio::test]
async fn stream_and_object_say_the_same() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    for model in ["agent:helper", "m"] {
        let mut texts = Vec::new();
        for stream in [false, true] {
            bench.fleet.llm.push(reply_events([
                ev_text("One, "),
                ev_text("two, "),
                ev_text("three."),
                ev_finish("stop"),
            ]));
            let mut body = chat(model, "count");
            body["stream"] = json!(stream);
            body["stream_options"] = if stream { json!({ "include_usage": true }) } else { Value::Null };
            let answer = bench.post("/v1/chat/completions", body).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            if !stream {
                texts.push(answer.body["choices"][0]["message"]["content"].as_str().unwrap().to_owned());
                continue;
            }
            let frames = frames(&answer.text);
            assert_eq!(frames.last().unwrap().1, "[DONE]");
            let chunks = &frames[..frames.len() - 1];
            assert!(chunks.iter().all(|(_, chunk)| chunk["object"] == "chat.completion.chunk"), "{}", answer.text);
            assert!(chunks.last().unwrap().1["usage"]["prompt_tokens"].as_u64().unwrap() > 0);
            let deltas = chunks.iter().filter_map(|(_, chunk)| chunk["choices"][0]["delta"]["content"].as_str());
            texts.push(deltas.collect());
        }
        assert_eq!(texts, ["One, two, three."; 2], "{model}");
    }
}

#[tokio::test]
async fn run_of_an_agent_waits_for_a_function() {
    let bench = Bench::start().await;
    let worker = bench.worker();
    bench.fleet.llm.answer_with(|request| match request.replies() {
        0 => reply_events([ev_call("c1", "weather", &json!({ "city": "Oslo" }))]),
        _ => reply_text("It is cold."),
    });
    let mut body = chat("agent:helper", "weather in Oslo?");
    body["tools"] = json!([{ "type": "function", "function": function("weather") }]);
    let first = bench.post("/v1/chat/completions", body.clone()).await;
    assert_eq!(first.status, 200, "{}", first.text);
    let choice = &first.body["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{}", first.text);
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(call["function"]["name"], "weather");
    // Its worker dies, and days pass: the run is parked.
    worker.kill().await;
    bench.fleet.advance(std::time::Duration::from_secs(3 * 86_400)).await;
    let _worker = bench.worker();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(choice["message"].clone());
    messages.push(json!({ "role": "tool", "tool_call_id": call["id"], "content": "2 degrees" }));
    for _ in 0..2 {
        // A repeat whose answer was lost finds the same one.
        let second = bench.post("/v1/chat/completions", body.clone()).await;
        assert_eq!(second.body["choices"][0]["message"]["content"], "It is cold.", "{}", second.text);
        let id = |answer: &Value| execution_of(answer["id"].as_str().unwrap());
        assert_eq!(id(&second.body), id(&first.body));
        assert_ne!(second.body["id"], first.body["id"]);
    }
    assert_eq!(bench.asked(), 2);
}

#[tokio::test]
async fn definition_takes_and_gives_json() {
    let bench = Bench::start().await;
    let schema = json!({ "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } } });
    let definition = longhaul_sdk::DefinitionSpec {
        input_schema: schema.clone(),
        output_schema: Some(schema),
        ..longhaul_sdk::DefinitionSpec::new("double", "helper")
    };
    bench.fleet.store.put_shared_definition(&definition).await.unwrap();
    let _worker = bench.worker();
    bench.fleet.llm.push(reply_text(r#"{"n": 4}"#));
    let answer = bench.post("/v1/chat/completions", chat("definition:double", r#"{"n": 2}"#)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let text = answer.body["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), json!({ "n": 4 }));
    for wrong in ["not JSON", r#"{"n": "two"}"#] {
        let refused = bench.post("/v1/chat/completions", chat("definition:double", wrong)).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
    }
    assert_eq!(bench.asked(), 1);
}

#[tokio::test]
async fn schema_of_the_answer_holds_for_an_agent() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    bench.fleet.llm.answer_with(|request| match request.replies() {
        0 => reply_text("not JSON at all"),
        _ => reply_text(r#"{"city": "Oslo"}"#),
    });
    let mut body = chat("agent:helper", "Which city?");
    let schema = json!({ "type": "object", "required": ["city"], "properties": { "city": { "type": "string" } } });
    body["response_format"] =
        json!({ "type": "json_schema", "json_schema": { "name": "city", "schema": schema, "strict": true } });
    let answer = bench.post("/v1/chat/completions", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let text = answer.body["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text.ends_with(r#"{"city": "Oslo"}"#) || text.ends_with(r#"{"city":"Oslo"}"#), "{text}");
    assert_eq!(bench.asked(), 2);
}

#[tokio::test]
async fn repeated_result_finds_its_own_answer() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    bench.fleet.llm.answer_with(|request| match request.replies() {
        0 => reply_events([ev_call("c1", "weather", &json!({ "city": "Oslo" }))]),
        1 => reply_events([ev_call("c2", "weather", &json!({ "city": "Bergen" }))]),
        _ => reply_text("Both are cold."),
    });
    let mut body = chat("agent:helper", "weather?");
    body["tools"] = json!([{ "type": "function", "function": function("weather") }]);
    let mut answers = vec![bench.post("/v1/chat/completions", body.clone()).await];
    let mut bodies = Vec::new();
    for _ in 0..2 {
        let message = answers.last().unwrap().body["choices"][0]["message"].clone();
        let call = message["tool_calls"][0]["id"].clone();
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(message);
        messages.push(json!({ "role": "tool", "tool_call_id": call, "content": "2 degrees" }));
        answers.push(bench.post("/v1/chat/completions", body.clone()).await);
        bodies.push(body.clone());
    }
    assert_eq!(answers[2].body["choices"][0]["message"]["content"], "Both are cold.", "{}", answers[2].text);
    for (body, answer) in bodies.into_iter().zip(&answers[1..]) {
        let again = bench.post("/v1/chat/completions", body).await;
        assert_eq!(again.body, answer.body);
    }
    assert_eq!(bench.asked(), 3);
}

#[tokio::test]
async fn oversized_conversation_is_refused() {
    let bench = Bench::start().await;
    let refused = bench.post("/v1/chat/completions", chat("m", &"x".repeat(9 * 1024 * 1024))).await;
    assert_eq!(refused.status, 413, "{}", refused.text.chars().take(500).collect::<String>());
}
