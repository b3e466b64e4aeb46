//! Erasure of one message: its copies in the transcript, in summaries, in files and in Redis go; the session goes on.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use longhaul_domain::{ExecutionId, SessionId};
use longhaul_queue::hints::TextDelta;
use longhaul_sdk::ToolEffect;
use longhaul_store::{history::body, sessions::ERASED};
use longhaul_testkit::model::{
    Captured, Gate, Reply, ev_call, ev_gate, ev_text, reply_calls, reply_events, reply_text,
};
use serde_json::{Value, json};

use super::{Service, id_of};
use crate::{
    api::files::put_file,
    support::{
        copies,
        fleet::{Fleet, FleetWorker, agent},
        wait::{SOON, eventually},
    },
    worker::kit::{TestTool, agent_with},
};

/// In the message that is erased, and in what the model says about it.
const SECRET: &str = "hunter2";

/// Columns of the database and keys of Redis that hold the secret.
async fn places(service: &Service) -> Vec<String> {
    let mut found = copies::in_database(&service.fleet.db.pool, SECRET).await;
    found.extend(copies::in_redis(&service.fleet.redis, SECRET).await);
    found
}

async fn erase(service: &Service, id: ExecutionId) {
    let answer = service.api.acme.delete(&format!("/v1/executions/{id}/content")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// Sends a message and waits for its end; returns its execution.
async fn say(service: &Service, session: &str, message: &str) -> ExecutionId {
    let id = id_of(&service.send(session, message).await);
    assert_eq!(service.fleet.ended(id).await["status"], "FINISHED");
    id
}

/// Sends one more message; fails unless it is answered by a model that was told of no secret.
async fn goes_on(service: &Service, session: &str) {
    say(service, session, "and now?").await;
    let last = service.fleet.llm.requests().pop().unwrap();
    assert!(!last.body.to_string().contains(SECRET), "{}", last.body);
    assert!(last.messages().iter().all(|message| message["content"] != ""), "{}", last.body);
    let instructions = last.messages().iter().filter(|message| message["role"] == "system").count();
    assert_eq!(instructions, 1, "{}", last.body);
}

fn id(session: &str) -> SessionId {
    session.rsplit('/').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn erased_message_leaves_transcript_and_redis() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|request| match request.last_text().as_str() {
        SECRET => reply_text("hunter2 is noted"),
        _ => reply_text("yes"),
    });
    let _worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    let first = say(&service, &session, SECRET).await;
    say(&service, &session, "two").await;
    assert_eq!(service.transcript(&session).await.len(), 5, "it is folded");
    // Text of the recorded turn and of one under way, whose key names none after a repeat.
    for turn in [1, 2] {
        service.fleet.publisher.text(TextDelta { execution: first, turn, offset: 0, text: SECRET.into() });
    }
    service.fleet.publisher.void_reply(first);
    service.fleet.publisher.flush().await;
    let before = places(&service).await;
    assert!(before.iter().any(|place| place == "session_messages.body"), "{before:?}");
    assert_eq!(before.iter().filter(|place| place.contains(":reply:")).count(), 2, "{before:?}");

    for _ in 0..2 {
        erase(&service, first).await;
        assert_eq!(places(&service).await, Vec::<String>::new());
    }
    let page = service.api.acme.get(&format!("{session}/messages")).await;
    let messages = page.body["messages"].as_array().unwrap();
    let erased: Vec<bool> = messages.iter().map(|message| message["erased"].as_bool().unwrap()).collect();
    assert_eq!(erased, [true, true, true, false, false], "{}", page.text);
    let said = |role: &str, text: &str| format!("{role}: {text}");
    let expected = [said("user", ERASED), said("user", ERASED), said("assistant", ERASED)];
    assert_eq!(service.transcript(&session).await[..3], expected);
    goes_on(&service, &session).await;
}

#[tokio::test]
async fn message_erased_before_its_fold_is_a_tombstone() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|_| reply_text("yes"));
    let _worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    let first = say(&service, &session, SECRET).await;
    erase(&service, first).await;
    assert_eq!(places(&service).await, Vec::<String>::new());
    assert_eq!(service.transcript(&session).await, [format!("user: {ERASED}")]);
    goes_on(&service, &session).await;
    assert_eq!(places(&service).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_and_erased_message_is_not_sent_empty() {
    let service = Service::start().await;
    let gate = Gate::new();
    service.fleet.llm.push(reply_events([ev_gate(&gate), ev_text("yes")]));
    service.fleet.llm.answer_with(|_| reply_text("yes"));
    let _worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    let first = id_of(&service.send(&session, "one").await);
    gate.reached().await;
    let waiting = id_of(&service.send_with(&session, json!({ "message": SECRET, "on_busy": "enqueue" })).await);
    assert_eq!(service.api.acme.post(&format!("/v1/executions/{waiting}/cancel"), &json!({})).await.status, 200);
    erase(&service, waiting).await;
    gate.open();
    service.fleet.ended(first).await;
    goes_on(&service, &session).await;
    // As the release before left it.
    let empty = body::encode(br#"{"role":"user","parts":[""]}"#);
    sqlx::query("update session_messages set body = $2, is_erased = false where execution_id = $1")
        .bind(waiting.0)
        .bind(empty)
        .execute(&service.fleet.db.pool)
        .await
        .unwrap();
    goes_on(&service, &session).await;
}

#[tokio::test]
async fn fold_after_a_concurrent_erasure_writes_no_text() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|_| reply_text("yes"));
    let worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    let first = say(&service, &session, SECRET).await;
    worker.drain().await;
    // Both wait for the session; the erasure is first in the line.
    let mut held = service.fleet.db.pool.begin().await.unwrap();
    sqlx::query("select from sessions for no key update").execute(&mut *held).await.unwrap();
    let waiting = async |count: i64| {
        eventually("they wait for the session", SOON, async || {
            let waiting: i64 = sqlx::query_scalar(
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
            )
            .fetch_one(&service.fleet.db.pool)
            .await
            .unwrap();
            if waiting == count { Ok(()) } else { Err(waiting) }
        })
        .await;
    };
    let store = service.fleet.store.clone();
    let tenant = store.ensure_tenant("acme", None).await.unwrap().id;
    let erasing = tokio::spawn(async move { store.erase_execution(tenant, first).await });
    waiting(1).await;
    let (store, folded) = (service.fleet.store.clone(), id(&session));
    let folding = tokio::spawn(async move { store.fold_session(folded).await });
    waiting(2).await;
    held.commit().await.unwrap();
    erasing.await.unwrap().unwrap();
    folding.await.unwrap().unwrap();
    assert_eq!(places(&service).await, Vec::<String>::new());
    assert_eq!(service.transcript(&session).await, [format!("user: {ERASED}")]);
}

#[tokio::test]
async fn files_of_an_erased_message_go() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|_| reply_text("yes"));
    let worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    let mut named = Vec::new();
    for (name, text) in [("kept", "a b c"), ("secret", SECRET)] {
        let file = put_file(&service.api.acme, name, "text/plain", text.as_bytes()).await;
        let part = json!({ "message": [{ "type": "file", "file_id": file }] });
        let execution = id_of(&service.send_with(&session, part).await);
        assert_eq!(service.fleet.ended(execution).await["status"], "FINISHED");
        assert_eq!(service.api.acme.delete(&format!("/v1/files/{file}")).await.status, 204);
        named.push(execution);
    }
    worker.drain().await;
    service.transcript(&session).await;
    erase(&service, named[1]).await;
    // The grace of bodies that were just stored.
    service.fleet.advance(longhaul_store::files::BODY_GRACE * 2).await;
    service.api.files.sweep().await.unwrap();
    assert_eq!(places(&service).await, Vec::<String>::new());
    let bodies = copies::in_database(&service.fleet.db.pool, "a b c").await;
    assert_eq!(bodies, ["file_bodies.body"], "another message names it");
}

/// A session whose model reads pages until the conversation is compressed, and says the secret in the summary.
struct Reading {
    service: Service,
    /// Calls that the model still makes.
    pages: Arc<AtomicUsize>,
    _worker: FleetWorker,
}

impl Reading {
    async fn start() -> Self {
        let mut own = agent_with(&["read"]);
        own.prompts.conversation = agent("a").prompts.conversation;
        own.limits.context_tokens = 3_000;
        let service = Service::of(Fleet::start().await, own).await;
        let pages = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&pages);
        service.fleet.llm.answer_with(move |request| Self::reply(&left, request));
        let read = TestTool::new("read", ToolEffect::ReadOnly, |_, _, _| Ok("x".repeat(2_000).into()));
        let worker = service.fleet.worker_with(|builder| builder.tool(read).unwrap());
        Self { service, pages, _worker: worker }
    }

    fn reply(left: &AtomicUsize, request: &Captured) -> Reply {
        if request.body.to_string().contains("You compress the middle") {
            return reply_text("The word was hunter2.");
        }
        let page = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        page.map_or_else(|_| reply_text("yes"), |left| reply_calls([("read", json!({ "value": left }))]))
    }

    /// A session with a message, the secret, and then one whose execution compresses both.
    async fn session(&self) -> (String, [ExecutionId; 2]) {
        let session = self.service.begin(json!({})).await;
        say(&self.service, &session, "one").await;
        let secret = say(&self.service, &session, SECRET).await;
        (session.clone(), [secret, self.read(&session, "read").await])
    }

    async fn read(&self, session: &str, message: &str) -> ExecutionId {
        self.pages.store(6, Ordering::SeqCst);
        let reader = say(&self.service, session, message).await;
        let kinds = self.service.fleet.steps(reader).await;
        assert!(kinds.iter().any(|(kind, _)| kind == "compression"), "{kinds:?}");
        reader
    }
}

#[tokio::test]
async fn summaries_of_an_erased_message_are_erased() {
    for is_folded in [true, false] {
        let reading = Reading::start().await;
        let service = &reading.service;
        let (session, [secret, reader]) = reading.session().await;
        if is_folded {
            service.transcript(&session).await;
        }
        assert!(places(service).await.len() > 3);
        erase(service, secret).await;
        assert_eq!(places(service).await, Vec::<String>::new(), "folded: {is_folded}");
        goes_on(service, &session).await;
        // The journal of the summary's execution can still be replayed.
        let last = "select max(seq) from steps where execution_id = $1 and kind = 'turn'";
        let last: i32 = sqlx::query_scalar(last).bind(reader.0).fetch_one(&service.fleet.db.pool).await.unwrap();
        let fork = format!("/v1/executions/{reader}/fork");
        let fork = service.api.acme.post(&fork, &json!({ "from_step": last })).await;
        assert_eq!(fork.status, 201, "{}", fork.text);
        let fork: ExecutionId = fork.body["id"].as_str().unwrap().parse().unwrap();
        assert_eq!(service.fleet.ended(fork).await["status"], "FINISHED", "folded: {is_folded}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn summary_made_during_erasure_is_erased_later() {
    let reading = Reading::start().await;
    let service = &reading.service;
    let session = service.begin(json!({})).await;
    say(service, &session, "one").await;
    let secret = say(service, &session, SECRET).await;
    let gate = Gate::new();
    service.fleet.llm.push(reply_events([ev_gate(&gate), ev_call("c", "read", &json!({}))]));
    reading.pages.store(6, Ordering::SeqCst);
    let reader = id_of(&service.send(&session, "read").await);
    gate.reached().await;
    erase(service, secret).await;
    gate.open();
    service.fleet.ended(reader).await;
    service.fleet.store.erase_void_copies().await.unwrap();
    assert_eq!(places(service).await, Vec::<String>::new());
    goes_on(service, &session).await;
    // Later summaries stay.
    let held = service.fleet.json("select to_jsonb(count(*)) from session_turns where holds_erased").await;
    assert_eq!(held, json!(0));
}

#[tokio::test]
async fn session_broken_by_the_release_before_heals() {
    let reading = Reading::start().await;
    let service = &reading.service;
    let session = service.begin(json!({})).await;
    say(service, &session, "one").await;
    let reader = reading.read(&session, SECRET).await;
    // As the release before erased it: a compression has no positions, and the transcript is as it was.
    let tombstone = body::encode_step(br#"{"erased":true}"#);
    sqlx::query("update steps set body = $2, appends = '{}', preview = null where execution_id = $1")
        .bind(reader.0)
        .bind(tombstone)
        .execute(&service.fleet.db.pool)
        .await
        .unwrap();
    let payload =
        "update execution_payloads set input = 'null', output = 'null', erased_at = now() where execution_id = $1";
    sqlx::query(payload).bind(reader.0).execute(&service.fleet.db.pool).await.unwrap();
    let transcript = service.transcript(&session).await;
    assert_eq!(transcript.last().unwrap(), &format!("user: {ERASED}"));
    say(service, &session, "and now?").await;
    let day = std::time::Duration::from_secs(24 * 3_600);
    service.fleet.advance(day * 20).await;
    say(service, &session, "later").await;
    service.fleet.advance(day * 20).await;
    let retention = longhaul_store::history::prune::Retention::new(day * 31).unwrap();
    let pruned = service.fleet.store.prune(retention).await.unwrap();
    assert_eq!((pruned.executions, pruned.sessions, pruned.set_aside), (3, 0, 0));
}

#[tokio::test]
async fn readers_of_an_erased_message_find_tombstones() {
    let reading = Reading::start().await;
    let service = &reading.service;
    let (session, [secret, reader]) = reading.session().await;
    erase(service, reader).await;
    erase(service, secret).await;
    for path in ["", "/steps?include=body", "/ledger", "/attempts", "/waiting", "/usage"] {
        let answer = service.api.acme.get(&format!("/v1/executions/{reader}{path}")).await;
        assert!(answer.status < 500, "{path}: {}", answer.text);
        assert!(!answer.text.contains(SECRET), "{path}: {}", answer.text);
    }
    let steps = service.api.acme.get(&format!("/v1/executions/{reader}/steps?include=body&limit=50")).await.body;
    let of_compression = |step: &&Value| step["kind"] == "compression";
    let compression = steps["steps"].as_array().unwrap().iter().find(of_compression).unwrap();
    assert!(compression["body"]["from"].is_u64() && compression["body"]["to"].is_u64(), "{compression}");
    assert_eq!(service.api.acme.get(&session).await.status, 200);
    assert_eq!(service.api.acme.get("/v1/sessions").await.status, 200);
    let activity = service.fleet.store.execution_activity(reader).await.unwrap();
    assert_eq!(activity.calls.len(), 0);
    assert_eq!(service.fleet.store.last_texts(&[reader]).await.unwrap().len(), 0);
    service.fleet.store.prompt_body(reader).await.unwrap().unwrap();
    goes_on(service, &session).await;
}
