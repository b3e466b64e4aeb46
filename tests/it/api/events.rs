//! `GET /v1/executions/{id}/events`: the stream and the page.

use std::time::Duration;

use longhaul_api::ApiOptions;
use longhaul_domain::ExecutionId;
use longhaul_store::history::journal::StepKind::Turn;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::api::{Answer, TestApi};
use crate::support::leases::{TestWorker, step, write};
use crate::support::wait::{SOON, within};

/// A stream, read frame by frame.
struct Stream {
    response: reqwest::Response,
    buffer: String,
}

/// One frame: its id, its event, its data.
type Frame = (String, String, Value);

impl Stream {
    async fn open(api: &TestApi, id: ExecutionId, headers: &[(&str, &str)]) -> Self {
        let mut request = api.acme.request(Method::GET, &format!("/v1/executions/{id}/events"));
        request = request.header("accept", "text/event-stream");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, buffer: String::new() }
    }

    /// Returns the next frame, or `None` at the stream's end.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some((frame, rest)) = self.buffer.split_once("\n\n") {
                let field = |name: &str| {
                    let value = frame.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                    value.unwrap_or_default().trim().to_owned()
                };
                let read = (field("id"), field("event"), serde_json::from_str(&field("data")).unwrap_or(Value::Null));
                self.buffer = rest.to_owned();
                return Some(read);
            }
            let chunk = within("the next chunk of a stream", SOON, self.response.chunk()).await.unwrap()?;
            self.buffer.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    async fn rest(mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }
}

fn names(frames: &[Frame]) -> Vec<(&str, &str)> {
    frames.iter().map(|(id, event, _)| (id.as_str(), event.as_str())).collect()
}

/// Runs an execution: claimed, one turn, finished; events 1 to 4.
async fn run(api: &TestApi) -> ExecutionId {
    let id = api.submit().await;
    let worker = TestWorker::start(&api.store).await;
    let claimed = worker.claim_one().await;
    worker.record(write(&claimed, 1, vec![step(1, Turn, "hello")])).await.unwrap();
    worker.finish(&claimed).await.unwrap();
    id
}

#[tokio::test]
async fn stream_delivers_events_live_until_the_execution_ends() {
    let api = TestApi::start().await;
    api.redis.followed_by(1).await;
    let id = api.submit().await;
    let mut stream = Stream::open(&api, id, &[]).await;
    let (seq, kind, data) = stream.next().await.unwrap();
    assert_eq!((seq.as_str(), kind.as_str(), &data["kind"]), ("1", "submitted", &json!("submitted")));
    let worker = TestWorker::start(&api.store).await;
    let claimed = worker.claim_one().await;
    api.publisher.look([id]);
    let (seq, kind, data) = stream.next().await.unwrap();
    assert_eq!((seq.as_str(), kind.as_str(), &data["data"]["attempt"]), ("2", "claimed", &json!(1)));
    // Without a hint the stream shows the event within a second.
    worker.record(write(&claimed, 1, vec![step(1, Turn, "hello")])).await.unwrap();
    assert_eq!(stream.next().await.unwrap().1, "turn");
    worker.finish(&claimed).await.unwrap();
    // A look of a later release: read everything.
    let heard: usize = api.redis.command(&["PUBLISH", &api.redis.key("look"), "2: something changed"]).await;
    assert_eq!(heard, 1);
    assert_eq!(names(&stream.rest().await), [("4", "finished")]);
}

#[tokio::test]
async fn stream_resumes_after_the_last_event_id() {
    let api = TestApi::start().await;
    let id = run(&api).await;
    let all = Stream::open(&api, id, &[]).await.rest().await;
    assert_eq!(names(&all), [("1", "submitted"), ("2", "claimed"), ("3", "turn"), ("4", "finished")]);
    let after = Stream::open(&api, id, &[("last-event-id", "2")]).await.rest().await;
    assert_eq!(after, all[2..]);
    // No event is left; 204 tells a browser to stop reconnecting.
    let request = api.acme.request(Method::GET, &format!("/v1/executions/{id}/events"));
    let over = request.header("accept", "text/event-stream").header("last-event-id", "4").send().await.unwrap();
    assert_eq!(over.status(), 204);
    let path = format!("/v1/executions/{id}/events");
    let bad = api.acme.send(Method::GET, &path, None, &[("last-event-id", "abc")]).await;
    assert_eq!((bad.error(), bad.paths()), ((422, "invalid_request"), vec!["/header/Last-Event-ID"]));
}

#[tokio::test]
async fn cursor_of_deleted_events_gets_a_resync() {
    let api = TestApi::start().await;
    let id = run(&api).await;
    sqlx::query("delete from events where seq <= 3").execute(&api.db.pool).await.unwrap();
    for after in ["1", "9"] {
        let frames = Stream::open(&api, id, &[("last-event-id", after)]).await.rest().await;
        assert_eq!(names(&frames), [("4", "resync")], "{after}");
        assert_eq!(frames[0].2, json!({"last": 4}));
    }
    let page = api.acme.get(&format!("/v1/executions/{id}/events?after=1")).await;
    assert_eq!((&page.body["resync"], &page.body["last"]), (&json!(true), &json!(4)));
}

#[tokio::test]
async fn page_of_events_returns_its_position() {
    let api = TestApi::start().await;
    let id = run(&api).await;
    let read = async |query: &str| api.acme.get(&format!("/v1/executions/{id}/events{query}")).await.body;
    let seqs = |page: &Value| -> Vec<i64> {
        page["events"].as_array().unwrap().iter().map(|event| event["seq"].as_i64().unwrap()).collect()
    };
    let all = read("").await;
    assert_eq!((seqs(&all), &all["last"], &all["is_over"]), (vec![1, 2, 3, 4], &json!(4), &json!(true)));
    assert_eq!(all["resync"], false);
    assert_eq!(seqs(&read("?after=1&limit=2").await), [2, 3]);
    let refused = api.acme.get(&format!("/v1/executions/{id}/events?limit=1001&afetr=1")).await;
    assert_eq!(refused.paths(), ["/query/limit", "/query/afetr"]);
}

#[tokio::test]
async fn streams_are_limited_until_one_closes() {
    let api = TestApi::start_with(ApiOptions { max_streams: 1, ..ApiOptions::default() }).await;
    let id = api.submit().await;
    let mut first = Stream::open(&api, id, &[]).await;
    first.next().await.unwrap();
    let path = format!("/v1/executions/{id}/events");
    let ask = async || api.acme.request(Method::GET, &path).header("accept", "text/event-stream").send().await.unwrap();
    let refused = Answer::read(ask().await).await;
    assert_eq!((refused.error(), refused.header("retry-after")), ((503, "too_many_streams"), "1"));
    drop(first);
    crate::support::wait::eventually("room for a stream", Duration::from_secs(20), async || {
        let answer = ask().await;
        if answer.status() == 200 { Ok(()) } else { Err(answer.status()) }
    })
    .await;
}

#[tokio::test]
async fn full_streams_are_shared_between_tenants() {
    let api = TestApi::start_with(ApiOptions { max_streams: 4, ..ApiOptions::default() }).await;
    let id = api.submit().await;
    let mut streams = Vec::new();
    for _ in 0..4 {
        let mut stream = Stream::open(&api, id, &[]).await;
        stream.next().await.unwrap();
        streams.push(stream);
    }
    let beta = api.caller("beta", crate::support::api::EVERYDAY).await;
    let own = beta.post("/v1/executions", &json!({"definition": "invoice", "input": {"text": "x"}})).await;
    let path = format!("/v1/executions/{}/events", own.body["id"].as_str().unwrap());
    let follow = async || beta.request(Method::GET, &path).header("accept", "text/event-stream").send().await.unwrap();
    let (first, second, third) = (follow().await, follow().await, follow().await);
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    assert_eq!(Answer::read(third).await.error(), (503, "too_many_streams"));
    // The two oldest streams of the other tenant were closed although its execution has not ended.
    for stream in &mut streams[..2] {
        assert!(stream.next().await.is_none());
    }
}
