//! `POST /v1/workspace` of the sandbox, in each mode.

use reqwest::Body;
use serde_json::{Value, json};

use crate::{
    sandbox::service::{As, Mode, Service, client, shared},
    support::{fleet::PATIENCE, wait::eventually},
};

/// A request: its head in a frame, then the bytes of its files.
fn request(head: &Value, bytes: &[u8]) -> Vec<u8> {
    let head = head.to_string().into_bytes();
    [&u32::try_from(head.len()).unwrap().to_be_bytes()[..], &head, bytes].concat()
}

/// The frames at the beginning of an answer, and the rest.
fn frames(mut answer: &[u8], count: usize) -> (Vec<Value>, Vec<u8>) {
    let mut frames = Vec::new();
    for _ in 0..count {
        let (length, rest) = answer.split_at(4);
        let (body, rest) = rest.split_at(u32::from_be_bytes(length.try_into().unwrap()) as usize);
        frames.push(serde_json::from_slice(body).unwrap());
        answer = rest;
    }
    (frames, answer.to_vec())
}

async fn post(url: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
    let answer = client().post(format!("{url}/v1/workspace")).body(body).send().await.unwrap();
    (answer.status().as_u16(), answer.bytes().await.unwrap().to_vec())
}

fn file(path: &str, bytes: usize) -> Value {
    json!({"path": path, "kind": "file", "bytes": bytes, "hash": "ab", "executable": false})
}

#[tokio::test(flavor = "multi_thread")]
async fn command_sees_files_and_returns_what_changed() {
    for (mode, user) in [Mode::Namespaces, Mode::Landlock, Mode::Unconfined]
        .into_iter()
        .flat_map(|mode| [As::Self_, As::Unprivileged].map(|user| (mode, user)))
    {
        let Some(sandbox) = shared(mode, user).await else { continue };
        let entries = json!([file("a/b", 3), file("same", 2), {"path": "l", "kind": "link", "target": "a"}]);
        let head = json!({"command": "cat l/b; echo new > n; exit 4", "entries": entries});
        let (status, answer) = post(&sandbox.url, request(&head, b"onetw")).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
        let (told, bytes) = frames(&answer, 2);
        assert_eq!(told[0], json!({"stdout": "one", "stderr": "", "error": null}), "{mode:?} {user:?}");
        assert_eq!((&told[1]["exit_code"], &told[1]["error"]), (&json!(4), &Value::Null), "{mode:?}: {}", told[1]);
        let paths: Vec<&str> =
            told[1]["entries"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["a/b", "l", "n", "same"]);
        assert_eq!(bytes, b"onenew\ntw", "hashes that the caller did not send come with their bytes");
        sandbox.settles().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn body_is_read_for_known_callers_with_a_slot() {
    let settings = [("token", "a token of sixteen"), ("concurrency", "1"), ("queue_max", "0")];
    for mode in [Mode::Namespaces, Mode::Landlock] {
        let Some(sandbox) = Service::start(mode, As::Self_, &settings).await else { continue };
        let url = format!("{}/v1/workspace", sandbox.url);
        let head = |command: &str| request(&json!({"command": command, "timeout_seconds": 10}), b"");
        let ask = async |body: Body, token: &str| {
            client().post(&url).bearer_auth(token).body(body).send().await.unwrap().status().as_u16()
        };
        assert_eq!(ask(head("true").into(), "another token of it").await, 401);
        let (to, body) = tokio::sync::mpsc::channel::<Result<Vec<u8>, std::io::Error>>(1);
        let (held, url) = (client(), url.clone());
        let body = Body::wrap_stream(futures::stream::unfold(body, async |mut body| Some((body.recv().await?, body))));
        let held = held.post(url).bearer_auth("a token of sixteen").body(body).send();
        let held = tokio::spawn(held);
        eventually("the request has the slot", PATIENCE, async || {
            let running = sandbox.health().await["running"].clone();
            if running == 1 { Ok(()) } else { Err(running) }
        })
        .await;
        assert_eq!(ask(head("true").into(), "a token of sixteen").await, 503);
        to.send(Ok(head("echo ran"))).await.unwrap();
        drop(to);
        let answer = held.await.unwrap().unwrap().bytes().await.unwrap();
        assert_eq!(frames(&answer, 1).0[0]["stdout"], "ran\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_workspace_request_runs_nothing() {
    let Some(sandbox) = super::sandbox().await else { return };
    let url = &sandbox.url;
    for path in ["../x", "/tmp/x", "a/../../x", ""] {
        let head = json!({"command": "echo ran", "entries": [file(path, 1)]});
        let (status, answer) = post(url, request(&head, b"x")).await;
        let (told, _) = frames(&answer, 2);
        assert_eq!((status, &told[0]["stdout"]), (200, &json!("")), "{path}");
        assert!(told[1]["error"].as_str().unwrap().contains("no path below the workspace"), "{}", told[1]);
    }
    // A path through a link that comes before it.
    let link = json!({"path": "l", "kind": "link", "target": "/tmp"});
    let head = json!({"command": "echo ran", "entries": [link, file("l/x", 1)]});
    let (told, _) = frames(&post(url, request(&head, b"x")).await.1, 2);
    assert!(told[1]["error"].is_string() && told[0]["stdout"] == "", "{told:?}");
    let early = json!({"command": "echo ran", "entries": [file("f", 10)]});
    let (told, _) = frames(&post(url, request(&early, b"x")).await.1, 2);
    assert!(told[1]["error"].is_string() && told[0]["stdout"] == "", "{told:?}");
    for (body, code) in [
        (b"x".to_vec(), "invalid_payload"),
        (request(&json!([]), b""), "invalid_payload"),
        (request(&json!({"command": " "}), b""), "invalid_code"),
        (request(&json!({"command": "x".repeat(100_001)}), b""), "invalid_code"),
    ] {
        let (status, answer) = post(url, body).await;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!((status, answer["error"].as_str()), (400, Some(code)), "{answer}");
    }
}
