//! Responses over a web socket: one after the other, in chains that live as long as the socket, and its ends.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use longhaul_api::ApiOptions;
use longhaul_store::tenants::api_keys::Scope;
use longhaul_testkit::model::{Gate, ev_finish, ev_gate, ev_text, reply_events, reply_text};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{self, Message, client::IntoClientRequest, protocol::frame::coding::CloseCode},
};

use super::{Bench, execution_of, frames, responses::text_of};
use crate::support::{
    api::{Caller, EVERYDAY, TestApi},
    fleet::PATIENCE,
    wait::{eventually, within},
};

/// A client of one socket.
struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

async fn try_open(caller: &Caller, path: &str) -> Result<Socket, tungstenite::Error> {
    let mut request = format!("{}{path}", caller.url.replace("http://", "ws://")).into_client_request().unwrap();
    if let Some(key) = &caller.key {
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    }
    connect_async(request).await.map(|(socket, _)| Socket(socket))
}

async fn open(caller: &Caller) -> Socket {
    try_open(caller, "/v1/responses").await.unwrap()
}

impl Socket {
    async fn send(&mut self, body: &Value) {
        self.0.send(Message::text(body.to_string())).await.unwrap();
    }

    /// The next message; a close frame as `{"closed": code}`.
    async fn next(&mut self) -> Value {
        loop {
            let message = within("a message", PATIENCE, self.0.next()).await.expect("an open socket").unwrap();
            match message {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Close(frame) => return json!({ "closed": frame.map(|frame| u16::from(frame.code)) }),
                Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_) => {}
            }
        }
    }

    /// The rest of a response: its events through the last one.
    async fn rest(&mut self) -> Vec<Value> {
        let mut events: Vec<Value> = Vec::new();
        loop {
            let event = self.next().await;
            let kind = event["type"].as_str().unwrap_or_else(|| panic!("{event} after {events:?}"));
            assert_ne!(kind, "error", "{event}");
            assert_eq!(event["sequence_number"], events.len(), "{event}");
            let is_last = ["response.completed", "response.failed", "response.incomplete"].contains(&kind);
            events.push(event);
            if is_last {
                return events;
            }
        }
    }

    /// Asks, and returns the response that the last event holds.
    async fn ask(&mut self, body: &Value) -> Value {
        self.send(body).await;
        self.rest().await.pop().unwrap()["response"].clone()
    }

    /// Sends what is refused. Returns the status and the code of the error frame.
    async fn refusal(&mut self, body: &Value) -> (u64, String) {
        self.send(body).await;
        self.error().await
    }

    async fn error(&mut self) -> (u64, String) {
        let frame = self.next().await;
        assert_eq!(frame["type"], "error", "{frame}");
        assert!(frame["error"]["message"].is_string() && frame["error"]["type"].is_string(), "{frame}");
        (frame["status"].as_u64().unwrap(), frame["error"]["code"].as_str().unwrap_or_default().to_owned())
    }

    async fn is_closed_with(&mut self, code: CloseCode) {
        assert_eq!(self.next().await, json!({ "closed": u16::from(code) }));
    }
}

fn create(text: &str) -> Value {
    json!({ "type": "response.create", "model": "agent:helper", "input": text })
}

fn unstored(text: &str, previous: Option<&Value>) -> Value {
    let mut body = create(text);
    body["store"] = json!(false);
    if let Some(id) = previous {
        body["previous_response_id"] = id.clone();
    }
    body
}

fn not_found() -> (u64, String) {
    (400, "previous_response_not_found".to_owned())
}

async fn echoing() -> Bench {
    let bench = Bench::start().await;
    bench.fleet.llm.answer_with(|request| reply_text(&format!("heard {}", request.last_said())));
    bench
}

#[tokio::test]
async fn socket_answers_one_request_after_the_other() {
    let bench = echoing().await;
    let _worker = bench.worker();
    let mut socket = open(&bench.api.acme).await;
    socket.send(&create("one")).await;
    let events = socket.rest().await;
    assert_eq!(events[0]["type"], "response.created");
    let first = &events.last().unwrap()["response"];
    assert_eq!((text_of(first).as_str(), &first["status"]), ("heard one", &json!("completed")), "{first}");
    // The events and the response are those that are read over HTTP.
    let path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
    assert_eq!(&bench.api.acme.get(&path).await.body, first);
    let streamed = bench.api.acme.get(&format!("{path}?stream=true")).await;
    let frames: Vec<Value> = frames(&streamed.text).into_iter().map(|(_, data)| data).collect();
    assert_eq!(frames[..frames.len() - 1], events[..]);
    for text in ["two", "three"] {
        assert_eq!(text_of(&socket.ask(&unstored(text, None)).await), format!("heard {text}"));
    }
}

#[tokio::test]
async fn chain_that_is_not_stored_lives_with_its_socket() {
    let bench = echoing().await;
    let _worker = bench.worker();
    let mut socket = open(&bench.api.acme).await;
    let first = socket.ask(&unstored("one", None)).await;
    let second = socket.ask(&unstored("two", Some(&first["id"]))).await;
    let said = bench.fleet.llm.requests().pop().unwrap().body.to_string();
    assert!(said.contains("heard one") && said.contains("two"), "{said}");
    let id = &second["id"];
    // Neither HTTP nor another socket, also of the same key, knows it.
    let path = format!("/v1/responses/{}", id.as_str().unwrap());
    assert_eq!(bench.api.acme.get(&path).await.status, 404);
    let beta = bench.api.caller("beta", EVERYDAY).await;
    for caller in [&bench.api.acme, &beta] {
        let mut other = open(caller).await;
        assert_eq!(other.refusal(&unstored("mine?", Some(id))).await, not_found());
        assert_eq!(text_of(&other.ask(&unstored("clean", None)).await), "heard clean");
    }
    assert_eq!(socket.refusal(&unstored("what?", Some(&json!("resp_unknown")))).await, not_found());
    let third = socket.ask(&unstored("three", Some(id))).await;
    assert_eq!(text_of(&third), "heard three");
    let executions: Vec<_> =
        [&first, &second, &third].iter().map(|of| execution_of(of["id"].as_str().unwrap()).0).collect();
    let erased = async || -> i64 {
        let sql = "select count(*) from execution_payloads where erased_at is not null and execution_id = any ($1)";
        sqlx::query_scalar(sql).bind(&executions).fetch_one(&bench.fleet.db.pool).await.unwrap()
    };
    assert_eq!(erased().await, 0);
    drop(socket);
    eventually("the texts of the socket are erased", PATIENCE, async || match erased().await {
        3 => Ok(()),
        other => Err(other),
    })
    .await;
}

#[tokio::test]
async fn response_of_another_tenant_is_not_continued() {
    let bench = echoing().await;
    let _worker = bench.worker();
    let stored = open(&bench.api.acme).await.ask(&create("secret")).await;
    let beta = bench.api.caller("beta", EVERYDAY).await;
    let mut body = create("and?");
    body["previous_response_id"] = stored["id"].clone();
    assert_eq!(open(&beta).await.refusal(&body).await, not_found());
    // Of the same tenant, any socket continues what is stored.
    assert_eq!(text_of(&open(&bench.api.acme).await.ask(&body).await), "heard and?");
}

#[tokio::test]
async fn refused_messages_leave_the_socket_open() {
    let bench = echoing().await;
    let _worker = bench.worker();
    let mut socket = open(&bench.api.acme).await;
    let mut background = create("x");
    background["background"] = json!(true);
    let mut unknown = create("x");
    unknown["model"] = json!("agent:nothing");
    let refused = [
        (json!({ "type": "response.cancel" }), 400),
        (json!({ "type": "response.create", "input": "x" }), 400),
        (json!([1]), 400),
        (json!("x".repeat(1_000_000)), 400),
        (background, 400),
        (unknown, 404),
    ];
    for (body, status) in refused {
        assert_eq!(socket.refusal(&body).await.0, status);
    }
    socket.0.send(Message::text("{")).await.unwrap();
    assert_eq!(socket.error().await.0, 400);
    socket.0.send(Message::Binary(create("x").to_string().into_bytes().into())).await.unwrap();
    assert_eq!(socket.error().await.0, 400);
    assert_eq!(text_of(&socket.ask(&create("well")).await), "heard well");
    assert_eq!(bench.asked(), 1);
}

#[tokio::test]
async fn oversized_message_closes_the_socket() {
    let bench = Bench::start().await;
    let mut socket = open(&bench.api.acme).await;
    let sending = socket.0.send(Message::text("x".repeat(20 * 1_024 * 1_024 + 1)));
    // The server may hang up before the client has sent all.
    let _ = within("the message", PATIENCE, sending).await;
    assert_eq!(socket.error().await, (413, "payload_too_large".to_owned()));
    socket.is_closed_with(CloseCode::Size).await;
}

#[tokio::test]
async fn second_request_is_refused_while_one_is_answered() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    let gate = Gate::new();
    bench.fleet.llm.push(reply_events([ev_text("Half of "), ev_gate(&gate), ev_text("it."), ev_finish("stop")]));
    let mut socket = open(&bench.api.acme).await;
    socket.send(&create("one")).await;
    let mut sequence = Vec::new();
    while sequence.last() != Some(&json!("response.output_text.delta")) {
        sequence.push(socket.next().await["type"].clone());
    }
    assert_eq!(socket.refusal(&create("two")).await, (409, "response_in_progress".to_owned()));
    gate.open();
    let done = loop {
        let event = socket.next().await;
        if event["type"] == "response.completed" {
            break event;
        }
    };
    assert_eq!(text_of(&done["response"]), "Half of it.");
    bench.fleet.llm.push(reply_text("Now."));
    assert_eq!(text_of(&socket.ask(&create("two")).await), "Now.");
}

#[tokio::test]
async fn socket_outlives_a_worker_and_its_run_a_socket() {
    let bench = Bench::start().await;
    let gate = Gate::new();
    let reached = gate.clone();
    bench.fleet.llm.push(reply_events([ev_text("Half of "), ev_gate(&gate), ev_text("it."), ev_finish("stop")]));
    let worker = bench.worker();
    let mut socket = open(&bench.api.acme).await;
    socket.send(&create("tell me")).await;
    let created = socket.next().await;
    let path = format!("/v1/responses/{}", created["response"]["id"].as_str().unwrap());
    reached.reached().await;
    worker.kill().await;
    bench.fleet.llm.push(reply_events([ev_text("The whole "), ev_text("of it."), ev_finish("stop")]));
    let worker = bench.worker();
    let done = loop {
        let event = socket.next().await;
        if event["type"] == "response.completed" {
            break event;
        }
    };
    gate.open();
    assert!(text_of(&done["response"]).ends_with("The whole of it."), "{done}");
    assert_eq!(bench.api.acme.get(&path).await.body, done["response"]);
    // A socket that breaks while its run is under way.
    worker.kill().await;
    socket.send(&create("later")).await;
    let created = socket.next().await;
    drop(socket);
    bench.fleet.llm.push(reply_text("All the same."));
    let _worker = bench.worker();
    let path = format!("/v1/responses/{}", created["response"]["id"].as_str().unwrap());
    let read = bench.api.acme.get(&format!("{path}?stream=true")).await;
    assert!(read.text.contains("response.completed") && read.text.contains("All the same."), "{}", read.text);
}

#[tokio::test]
async fn revoked_key_ends_its_socket() {
    let bench = echoing().await;
    let _worker = bench.worker();
    let keeper = bench.api.caller("acme", &[EVERYDAY, &[Scope::KeysWrite]].concat()).await;
    let made = keeper.post("/v1/keys", &json!({ "name": "short", "scopes": ["executions:write"] })).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let short = Caller { key: made.body["key"].as_str().map(str::to_owned), ..bench.api.nobody() };
    let mut socket = open(&short).await;
    assert_eq!(text_of(&socket.ask(&create("one")).await), "heard one");
    let revoked = keeper.delete(&format!("/v1/keys/{}", made.body["id"].as_str().unwrap())).await;
    assert!(revoked.status < 300, "{}", revoked.text);
    assert_eq!(socket.refusal(&create("two")).await, (401, "invalid_api_key".to_owned()));
    socket.is_closed_with(CloseCode::Policy).await;
    assert_eq!(bench.asked(), 1);
}

#[tokio::test]
async fn request_without_a_key_or_an_upgrade_is_refused() {
    let bench = Bench::start().await;
    let status = async |caller: &Caller| match try_open(caller, "/v1/responses").await {
        Err(tungstenite::Error::Http(response)) => response.status().as_u16(),
        other => panic!("{:?}", other.map(|_| "a socket")),
    };
    assert_eq!(status(&bench.api.nobody()).await, 401);
    let reader = bench.api.caller("acme", &[Scope::ExecutionsRead]).await;
    assert_eq!(status(&reader).await, 403);
    let plain = bench.api.acme.get("/v1/responses").await;
    assert_eq!((plain.status, &plain.body["error"]["code"]), (400, &json!("websocket_expected")), "{}", plain.text);
}

#[tokio::test]
async fn sockets_have_shares_of_the_streams() {
    let bench = Bench::start().await;
    let options = ApiOptions { max_streams: 2, ..ApiOptions::default() };
    let api = TestApi::over(&bench.fleet, options).await;
    let (mut first, _second) = (open(&api.acme).await, open(&api.acme).await);
    let Err(tungstenite::Error::Http(refused)) = try_open(&api.acme, "/v1/responses").await else {
        panic!("a third one")
    };
    assert_eq!(refused.status(), 503);
    // Another tenant gets its share, from the oldest socket of the first.
    let beta = api.caller("beta", EVERYDAY).await;
    let _worker = bench.worker();
    bench.fleet.llm.push(reply_text("Hello."));
    let mut socket = open(&beta).await;
    first.is_closed_with(CloseCode::Again).await;
    // Its response takes the place of the socket, and gives it back.
    assert_eq!(text_of(&socket.ask(&create("hi")).await), "Hello.");
}

#[tokio::test]
async fn connections_of_sockets_count_and_are_given_back() {
    let bench = Bench::start().await;
    let options = ApiOptions { max_connections: 1, ..ApiOptions::default() };
    let api = TestApi::over(&bench.fleet, options).await;
    let mut socket = open(&api.acme).await;
    let caller = api.acme.clone();
    let waiting = tokio::spawn(async move { caller.get("/v1/models").await.status });
    assert_eq!(socket.refusal(&json!({ "type": "x" })).await.0, 400);
    assert!(!waiting.is_finished(), "a connection beyond the limit");
    socket.0.close(None).await.unwrap();
    assert_eq!(within("the next connection", PATIENCE, waiting).await.unwrap(), 200);
}

#[tokio::test]
async fn late_reader_gets_the_same_events() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    let text = "many words ".repeat(20_000);
    bench.fleet.llm.answer_with(move |_| reply_text(&text));
    let mut deaf = open(&bench.api.acme).await;
    // The answer repeats its text several times: more than a connection may buffer.
    deaf.send(&create("one")).await;
    let other = bench.api.acme.clone();
    let answer = other.post("/v1/responses", &json!({ "model": "agent:helper", "input": "two" })).await;
    assert_eq!(answer.body["status"], "completed", "{}", &answer.text[..200]);
    let created = deaf.next().await;
    let path = format!("/v1/responses/{}", created["response"]["id"].as_str().unwrap());
    eventually("the run of the deaf client ends", PATIENCE, async || {
        let read = other.send(Method::GET, &path, None, &[]).await;
        if read.body["status"] == "completed" { Ok(()) } else { Err(read.body["status"].clone()) }
    })
    .await;
    // What it did not read is still told.
    let last = loop {
        let event = deaf.next().await;
        if event["type"] == "response.completed" {
            break event;
        }
    };
    assert_eq!(last["response"], other.get(&path).await.body);
}

#[tokio::test]
async fn shutdown_closes_sockets() {
    let bench = Bench::start().await;
    let api = TestApi::over(&bench.fleet, ApiOptions::default()).await;
    let (mut idle, mut busy) = (open(&api.acme).await, open(&api.acme).await);
    busy.send(&create("no worker runs this")).await;
    assert_eq!(busy.next().await["type"], "response.created");
    drop(api);
    idle.is_closed_with(CloseCode::Away).await;
    while busy.next().await["type"] != "error" {}
    busy.is_closed_with(CloseCode::Away).await;
    tokio::time::timeout(Duration::from_secs(20), busy.0.next()).await.expect("the connection ends");
}
