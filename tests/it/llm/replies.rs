//! Requests and replies without failures.

use std::sync::Arc;

use longhaul_domain::TenantId;
use longhaul_llm::{FinishReason, Message, ModelRequest, ProviderConfig, ProviderKind, ReplyEvent, ToolChoice, Usage};
use longhaul_testkit::model::{
    Caps, Gate, ModelServer, ev_call, ev_finish, ev_gate, ev_text, reply_calls, reply_events, reply_text,
};
use serde_json::json;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{KEY, WAYS, ask, client, look_up, made, outcome, patient, spec};
use crate::support::wait::{SOON, eventually, within};

#[tokio::test]
async fn every_request_carries_key_trace_and_authorization() {
    let server = ModelServer::start().await.unwrap();
    for (kind, stream) in WAYS {
        server.push(reply_text("hello"));
        outcome(&server, kind, stream, patient()).await.unwrap();
        let request = server.requests().pop().unwrap();
        assert_eq!(request.idempotency_key.as_deref(), Some("execution-1/turn-1"));
        assert!(request.header("traceparent").unwrap().starts_with("00-0af7651916cd43dd"));
        assert_eq!(request.header("x-team"), Some("blue"));
        assert_eq!(request.streams(), stream);
        match kind {
            ProviderKind::OpenAi => assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str())),
            ProviderKind::Anthropic => assert_eq!(request.header("x-api-key"), Some(KEY)),
            ProviderKind::Scripted => unreachable!("not a way to ask a server"),
        }
        assert_eq!(request.body["model"], "some-model");
    }
    assert_eq!(server.calls()["execution-1/turn-1"], 4);
    assert_eq!(server.answered()["execution-1/turn-1"], 4);
}

#[tokio::test]
async fn conversation_with_calls_round_trips() {
    let server = ModelServer::start().await.unwrap();
    server.answer_with(|request| match request.replies() {
        0 => reply_calls([("look_up", json!({ "q": "a" })), ("look_up", json!({}))]).usage(100, 20),
        _ => reply_text(&format!("found {}", request.last_text())).without_usage(),
    });
    for (kind, stream) in WAYS {
        let client = client(&server.url(), kind, patient());
        let mut transcript = vec![Message::system("be brief"), Message::user("hi")];
        let (reply, events) = ask(&client, &spec(stream), &transcript).await;
        let reply = reply.unwrap();
        assert_eq!((reply.finish, reply.message.calls().len()), (FinishReason::ToolCalls, 2));
        assert_eq!(reply.usage, Usage { input_tokens: Some(100), output_tokens: Some(20), ..Usage::default() });
        assert_eq!(reply.model.as_deref(), Some("fake"));
        let told = events.iter().filter(|event| matches!(event, ReplyEvent::CallCompleted { .. })).count();
        assert_eq!(told, 2);

        let calls = reply.message.calls().to_vec();
        transcript.push(reply.message);
        transcript.extend(calls.into_iter().map(|call| Message::Tool {
            call_id: call.id,
            name: call.name,
            text: call.arguments,
            files: Vec::new(),
            is_error: false,
        }));
        let (reply, _) = ask(&client, &spec(stream), &transcript).await;
        let reply = reply.unwrap();
        assert!(reply.message.text().starts_with("found {"), "{reply:?}");
        assert_eq!(reply.usage, Usage::default(), "what was not counted is not zero");
    }
}

#[tokio::test]
async fn equal_transcripts_send_equal_bytes() {
    let server = ModelServer::start().await.unwrap();
    let odd = r#"{"n": 1e2, "z": -0.0, "z": 1, "s": "\ud800"}"#;
    let call = longhaul_domain::ToolCall { id: "c1".into(), name: "look_up".into(), arguments: odd.into() };
    let result = Message::Tool {
        call_id: "c1".into(),
        name: "look_up".into(),
        text: "\u{0}".into(),
        files: Vec::new(),
        is_error: true,
    };
    let transcript =
        [Message::user("hi"), Message::Assistant { text: "t".into(), calls: vec![call], native: None }, result];
    for (kind, stream) in WAYS {
        for _ in 0..2 {
            server.push(reply_text("ok"));
            ask(&client(&server.url(), kind, patient()), &spec(stream), &transcript).await.0.unwrap();
        }
        let requests = server.requests();
        let [.., first, second] = requests.as_slice() else { panic!("two requests were sent") };
        assert_eq!(first.raw, second.raw);
        let sent = String::from_utf8(first.raw.to_vec()).unwrap();
        let expected = match kind {
            ProviderKind::Anthropic => odd.to_owned(),
            ProviderKind::OpenAi | ProviderKind::Scripted => serde_json::to_string(odd).unwrap(),
        };
        assert!(sent.contains(&expected), "{sent}");
    }
}

#[tokio::test]
async fn a_stream_survives_seven_byte_chunks_with_crlf() {
    let server = ModelServer::start().await.unwrap();
    for kind in [ProviderKind::OpenAi, ProviderKind::Anthropic] {
        let arguments = json!({ "q": "Zürich 😀", "deep": { "list": [1, 2.5, null] } });
        let events = [ev_text("grüß "), ev_text("dich 😀"), ev_call("a", "look_up", &arguments)];
        server.push(reply_events(events).chunks_of(7).crlf());
        let (reply, events) = ask(&client(&server.url(), kind, patient()), &spec(true), &[Message::user("hi")]).await;
        let reply = reply.unwrap();
        assert_eq!(reply.message.text(), "grüß dich 😀");
        assert_eq!(reply.message.calls()[0].arguments, arguments.to_string());
        assert_eq!(reply.usage.output_tokens, Some(7));
        assert_eq!(events.iter().filter(|event| **event == ReplyEvent::Begun).count(), 1);
        assert_eq!(events.len(), 5);
    }
}

#[tokio::test]
async fn call_is_reported_while_the_reply_streams() {
    let server = ModelServer::start().await.unwrap();
    for kind in [ProviderKind::OpenAi, ProviderKind::Anthropic] {
        let gate = Gate::new();
        server.push(reply_events([
            ev_call("a", "look_up", &json!({ "n": 1 })),
            ev_call("b", "look_up", &json!({ "n": 2 })),
            ev_gate(&gate),
            ev_finish("tool_calls"),
        ]));
        let (heard, mut told) = mpsc::unbounded_channel();
        let client = client(&server.url(), kind, patient());
        let asking = tokio::spawn(async move {
            let (spec, messages, tools) = (spec(true), [Arc::new(Message::user("hi"))], [look_up()]);
            let request = ModelRequest {
                tenant: TenantId(Uuid::nil()),
                model: &spec,
                messages: &messages,
                files: &longhaul_llm::NO_FILES,
                tools: &tools,
                tool_choice: ToolChoice::Auto,
                idempotency_key: "k",
                traceparent: None,
                max_output_tokens: None,
                context_tokens: None,
                output_schema: None,
                cache: None,
            };
            client.complete(request, &mut |event| drop(heard.send(event))).await
        });
        let first = within("the first call is told before the gate opens", SOON, async {
            loop {
                match told.recv().await {
                    Some(ReplyEvent::CallCompleted { index, call }) => return (index, call.arguments),
                    Some(_) => {}
                    None => panic!("the reply ended without the call"),
                }
            }
        })
        .await;
        assert_eq!(first, (0, r#"{"n":1}"#.to_owned()));
        within("the server stands at the gate", SOON, gate.reached()).await;
        assert!(!asking.is_finished());
        gate.open();
        assert_eq!(asking.await.unwrap().unwrap().message.calls().len(), 2);
    }
}

#[tokio::test]
async fn dropped_call_cancels_its_request() {
    let server = ModelServer::start().await.unwrap();
    let gate = Gate::new();
    server.push(reply_events([ev_text("so"), ev_gate(&gate)]));
    let client = client(&server.url(), ProviderKind::OpenAi, patient());
    let asking = tokio::spawn(async move { ask(&client, &spec(true), &[Message::user("hi")]).await });
    within("the server stands at the gate", SOON, gate.reached()).await;
    assert_eq!(server.in_flight(), 1);
    asking.abort();
    let gone = async || if server.in_flight() == 0 { Ok(()) } else { Err("in flight") };
    eventually("the request is given up", SOON, gone).await;
    assert!(server.answered().is_empty());
}

#[tokio::test]
async fn whole_reply_to_a_stream_request_is_accepted() {
    let server = ModelServer::start().await.unwrap();
    let whole = json!({ "choices": [{ "message": { "content": "at once" }, "finish_reason": "stop" }] });
    server.push(reply_text("").body(whole.to_string()));
    assert_eq!(outcome(&server, ProviderKind::OpenAi, true, patient()).await.unwrap().message.text(), "at once");
}

#[tokio::test]
async fn the_fake_model_refuses_a_broken_transcript() {
    let server = ModelServer::start().await.unwrap();
    server.answer_with(|_| reply_text("never"));
    let unanswered = longhaul_domain::ToolCall { id: "c1".into(), name: "look_up".into(), arguments: "{}".into() };
    let transcript = [
        Message::user("hi"),
        Message::Assistant { text: String::new(), calls: vec![unanswered], native: None },
        Message::user("well?"),
    ];
    for (kind, stream) in WAYS {
        ask(&client(&server.url(), kind, patient()), &spec(stream), &transcript).await.0.unwrap_err();
        let found = server.take_violations();
        assert!(found.iter().any(|found| found.contains("no result answers")), "{found:?}");
    }
    server.set_caps(Caps { text: 1, ..Caps::default() });
    outcome(&server, ProviderKind::OpenAi, true, patient()).await.unwrap_err();
    assert_eq!(server.take_violations(), ["request 5: message 0 holds text of 2 bytes"]);
}

#[tokio::test]
async fn setting_decides_on_hints_for_the_cache() {
    let server = ModelServer::start().await.unwrap();
    server.answer_with(|_| reply_text("yes"));
    for (kind, setting, is_sent) in [
        // The server is none that is known to take the field.
        (ProviderKind::OpenAi, None, false),
        (ProviderKind::OpenAi, Some(true), true),
        (ProviderKind::OpenAi, Some(false), false),
        (ProviderKind::Anthropic, None, true),
        (ProviderKind::Anthropic, Some(false), false),
    ] {
        let config = ProviderConfig {
            base_url: Some(server.url()),
            prompt_cache: setting,
            default_model: Some("m".into()),
            ..ProviderConfig::new(kind)
        };
        ask(&made(config).unwrap(), &spec(false), &[Message::user("hi")]).await.0.unwrap();
        let request = server.requests().pop().unwrap();
        let key = request.body["prompt_cache_key"] == "conversation-1";
        let mark = request.messages()[0]["content"][0].get("cache_control").is_some();
        assert_eq!((key, mark), (is_sent && kind == ProviderKind::OpenAi, is_sent && kind == ProviderKind::Anthropic));
    }
}
