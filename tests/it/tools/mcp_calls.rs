//! Calls of MCP servers' tools: results, requests, and every way to fail.

use std::sync::{Arc, atomic::Ordering};

use longhaul_domain::CallErrorKind;
use longhaul_sdk::{FailureClass, FailureCode};
use longhaul_testkit::mcp::HttpMcp;
use longhaul_tools::Toolbox;
use serde_json::{Value, json};

use super::{EVERYWHERE, TOKEN, call, http, message, sources, stdio};
use crate::support::{
    hello::Hello,
    mcp::STDIO_SERVER,
    wait::{SOON, eventually, within},
};

/// With HTTP/2, calls of many executions would share one connection and wait for each other.
#[tokio::test]
async fn tool_servers_are_not_offered_http_2() {
    let (hello, sources) = (Hello::listen().await, sources());
    let agent = http(&hello.url, json!({}));
    let opening = Toolbox::open(&agent, &sources, EVERYWHERE);
    let offers = async {
        tokio::select! {
            offers = hello.offers_http2() => offers,
            _ = async { let _ = opening.await; std::future::pending::<()>().await } => unreachable!(),
        }
    };
    assert!(!within("the hello", SOON, offers).await);
}

#[tokio::test]
async fn results_of_every_kind_become_capped_text() {
    let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
    for agent in [http(&server.url(), json!({})), stdio(json!({}))] {
        let toolbox = Toolbox::open(&agent, &sources, EVERYWHERE).await.unwrap();
        assert_eq!(call(&toolbox, "echo", json!({"text": "grüße"})).await.text, "grüße");
        let picture = call(&toolbox, "picture", json!({})).await;
        assert_eq!(picture.text, "look:");
        let [file] = picture.files.as_slice() else { panic!("{:?}", picture.files) };
        assert_eq!((file.name.as_str(), file.media_type.as_str(), file.bytes.len()), ("image-1.png", "image/png", 5));
        let big = call(&toolbox, "big", json!({"bytes": 3_000_000})).await;
        assert!(big.text.len() <= 2_000 && big.text.ends_with("of 3000000 bytes left out]"), "{}", big.text.len());
        assert!(!big.is_error());
    }
}

#[tokio::test]
async fn idempotency_key_is_sent_with_the_call() {
    let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
    let toolbox = Toolbox::open(&http(&server.url(), json!({})), &sources, EVERYWHERE).await.unwrap();
    for _ in 0..2 {
        assert_eq!(call(&toolbox, "key", json!({})).await.text, "key-1");
    }
    toolbox.call("mcp__s__key", "", "key-2", Arc::default()).await;
    let calls: Vec<_> = server.observed.calls.lock().clone().into_iter().collect();
    assert_eq!(calls, [("key-1".into(), 2), ("key-2".into(), 1)]);
}

#[tokio::test]
async fn idempotency_key_is_sent_as_a_configured_argument() {
    let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
    let agent = http(&server.url(), json!({"idempotency_arguments": {"echo": "text"}}));
    let toolbox = Toolbox::open(&agent, &sources, EVERYWHERE).await.unwrap();
    assert_eq!(call(&toolbox, "echo", json!({})).await.text, "key-1");
    // The model neither sees the argument nor can set it.
    let echo = toolbox.specs().iter().find(|spec| spec.name == "mcp__s__echo").unwrap();
    assert_eq!((&echo.parameters["properties"], &echo.parameters["required"]), (&json!({}), &json!([])));
    assert_eq!(call(&toolbox, "echo", json!({"text": "made up"})).await.text, "key-1");
}

#[tokio::test]
async fn tool_and_server_errors_are_told_to_the_model() {
    let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
    for agent in [http(&server.url(), json!({})), stdio(json!({}))] {
        let toolbox = Toolbox::open(&agent, &sources, EVERYWHERE).await.unwrap();
        for (tool, expected) in
            [("fail", "the shelf is empty"), ("refuse", "the server answered error -32602: no such shelf")]
        {
            let outcome = call(&toolbox, tool, json!({})).await;
            assert_eq!((outcome.error, outcome.ends_run.as_ref()), (Some(CallErrorKind::Runtime), None));
            assert_eq!(message(&outcome), expected);
        }
    }
}

#[tokio::test]
async fn call_with_invalid_arguments_never_reaches_the_server() {
    let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
    let toolbox = Toolbox::open(&http(&server.url(), json!({})), &sources, EVERYWHERE).await.unwrap();
    let outcome = call(&toolbox, "echo", json!({"text": 7})).await;
    assert_eq!(outcome.error, Some(CallErrorKind::Structural));
    assert!(outcome.text.contains("\"path\":\"/text\""), "{}", outcome.text);
    assert!(server.observed.calls.lock().is_empty());
}

#[tokio::test]
async fn timed_out_call_is_cancelled_at_the_server() {
    let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
    let toolbox =
        Toolbox::open(&http(&server.url(), json!({"timeout_seconds": 1})), &sources, EVERYWHERE).await.unwrap();
    let outcome = call(&toolbox, "gated", json!({})).await;
    assert_eq!(outcome.error, Some(CallErrorKind::Timeout));
    assert!(message(&outcome).contains("within 1 s"), "{}", outcome.text);
    cancelled(&server, 1).await;
    assert_eq!(call(&toolbox, "echo", json!({"text": "still here"})).await.text, "still here");
    assert_eq!(server.sessions.load(Ordering::SeqCst), 2, "it is asked over a new connection");
}

#[tokio::test]
async fn stopped_attempt_cancels_its_call_at_the_server() {
    let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
    let toolbox = Toolbox::open(&http(&server.url(), json!({})), &sources, EVERYWHERE).await.unwrap();
    let attempt = tokio::spawn(async move { call(&toolbox, "gated", json!({})).await });
    waiting(&server, 1).await;
    attempt.abort();
    cancelled(&server, 1).await;
}

#[tokio::test]
async fn calls_of_one_server_run_concurrently() {
    let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
    let toolbox = Toolbox::open(&http(&server.url(), json!({})), &sources, EVERYWHERE).await.unwrap();
    let held = tokio::spawn({
        let toolbox = toolbox.clone();
        async move { call(&toolbox, "gated", json!({})).await }
    });
    waiting(&server, 1).await;
    assert_eq!(call(&toolbox, "echo", json!({"text": "meanwhile"})).await.text, "meanwhile");
    server.observed.gate.add_permits(1);
    assert_eq!(held.await.unwrap().text, "let through");
}

#[tokio::test]
async fn child_environment_is_limited_and_secrets_are_redacted() {
    let agent = stdio(json!({"env": {"PLAIN": "p", "SECRET": "x-env://TOKEN"}}));
    let toolbox = Toolbox::open(&agent, &sources(), EVERYWHERE).await.unwrap();
    let outcome = call(&toolbox, "env", json!({})).await;
    let given: Value = serde_json::from_str(&outcome.text).unwrap();
    assert_eq!(given, json!({"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "PLAIN": "p", "SECRET": "x-[redacted]"}));
    assert_eq!(call(&toolbox, "echo", json!({ "text": TOKEN })).await.text, "[redacted]");
}

#[tokio::test]
async fn headers_reach_the_server_with_their_secrets() {
    let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
    let agent = http(&server.url(), json!({"headers": {"x-secret": "Bearer env://TOKEN"}}));
    let toolbox = Toolbox::open(&agent, &sources, EVERYWHERE).await.unwrap();
    assert_eq!(call(&toolbox, "echo", json!({"text": "ok"})).await.text, "ok");
    let seen = server.secrets.lock().clone();
    assert!(!seen.is_empty() && seen.iter().all(|value| *value == format!("Bearer {TOKEN}")), "{seen:?}");
    assert!(!format!("{toolbox:?}{sources:?}").contains(TOKEN));
}

#[tokio::test]
async fn idempotent_call_is_retried_after_a_server_crash() {
    let (dir, sources) = (tempfile::tempdir().unwrap(), sources());
    let marker = dir.path().join("marker");
    let toolbox =
        Toolbox::open(&stdio(json!({"effects": {"crash_once": "idempotent"}})), &sources, EVERYWHERE).await.unwrap();
    let outcome = call(&toolbox, "crash_once", json!({ "marker": marker })).await;
    assert_eq!((outcome.text.as_str(), outcome.error), ("answered for key-1", None));
    assert_eq!(std::fs::read_to_string(marker).unwrap(), "key-1");
}

/// A retried run would call with another key, and an idempotent tool would take effect twice.
#[tokio::test]
async fn idempotent_call_to_a_lost_server_is_outcome_unknown() {
    let (dir, sources) = (tempfile::tempdir().unwrap(), sources());
    let marker = dir.path().join("marker");
    let once = format!("test ! -e {} && exec {STDIO_SERVER}", marker.display());
    let agent = stdio(json!({"effects": {"crash_once": "idempotent"}, "command": ["/bin/sh", "-c", once]}));
    let toolbox = Toolbox::open(&agent, &sources, EVERYWHERE).await.unwrap();
    let outcome = call(&toolbox, "crash_once", json!({ "marker": marker })).await;
    assert_eq!((outcome.error, outcome.ends_run.as_ref()), (Some(CallErrorKind::OutcomeUnknown), None));
    assert!(message(&outcome).contains("it may have taken effect"), "{}", outcome.text);
    assert_eq!(std::fs::read_to_string(marker).unwrap(), "key-1");
}

#[tokio::test]
async fn side_effect_is_not_retried_after_a_crash() {
    let (dir, sources) = (tempfile::tempdir().unwrap(), sources());
    let marker = dir.path().join("marker");
    let toolbox = Toolbox::open(&stdio(json!({})), &sources, EVERYWHERE).await.unwrap();
    let outcome = call(&toolbox, "crash_once", json!({ "marker": marker })).await;
    assert_eq!((outcome.error, outcome.ends_run.as_ref()), (Some(CallErrorKind::OutcomeUnknown), None));
    assert!(message(&outcome).contains("it may have taken effect"), "{}", outcome.text);
    let next = call(&toolbox, "echo", json!({"text": "a new process"})).await;
    assert_eq!(next.text, "a new process");
}

#[tokio::test]
async fn unreachable_server_ends_the_run_as_transient() {
    let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
    let agent = http(&server.url(), json!({}));
    let pinned = Toolbox::open(&agent, &sources, EVERYWHERE).await.unwrap().specs().to_vec();
    sources.mcp.close().await;
    drop(server);
    let toolbox = Toolbox::pinned(&agent, pinned, &sources, EVERYWHERE).unwrap();
    let failure = call(&toolbox, "echo", json!({"text": "x"})).await.ends_run.unwrap();
    assert_eq!((failure.class, failure.code), (FailureClass::Transient, FailureCode::TOOL_UNREACHABLE));
}

#[tokio::test]
async fn restarted_server_is_reconnected() {
    let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
    let agent = http(&server.url(), json!({"effects": {"echo": "read_only"}}));
    let toolbox = Toolbox::open(&agent, &sources, EVERYWHERE).await.unwrap();
    let _server = restarted(server, None).await;
    assert_eq!(call(&toolbox, "echo", json!({"text": "back"})).await.text, "back");
}

/// The answers of the reference server, of its SDK's examples, and of a proxy in front of either.
#[tokio::test]
async fn status_400_for_lost_session_starts_a_new_one() {
    for unknown in [
        (
            "application/json",
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"No valid session ID provided"},"id":null}"#,
        ),
        ("application/json", r#"{"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#),
        ("text/plain", "no such session"),
    ] {
        let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
        let agent = http(&server.url(), json!({}));
        let toolbox = Toolbox::open(&agent, &sources, EVERYWHERE).await.unwrap();
        let server = restarted(server, Some(unknown)).await;
        let again = within("the tools are listed", SOON, Toolbox::open(&agent, &sources, EVERYWHERE)).await;
        assert_eq!(again.unwrap().specs(), toolbox.specs(), "{unknown:?}");

        let server = restarted(server, Some(unknown)).await;
        let outcome = within("the call", SOON, call(&toolbox, "echo", json!({"text": "back"}))).await;
        assert_eq!((outcome.text.as_str(), outcome.error), ("back", None), "{unknown:?}");
        assert_eq!(server.observed.calls.lock()["key-1"], 1);
    }
}

#[tokio::test]
async fn timed_out_tool_list_uses_a_new_connection() {
    let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
    let agent = http(&server.url(), json!({"timeout_seconds": 1}));
    server.observed.silent.store(true, Ordering::SeqCst);
    let failure = Toolbox::open(&agent, &sources, EVERYWHERE).await.unwrap_err();
    assert!(failure.summary.ends_with("it did not list its tools in time"), "{}", failure.summary);
    server.observed.silent.store(false, Ordering::SeqCst);
    Toolbox::open(&agent, &sources, EVERYWHERE).await.unwrap();
    assert_eq!(server.sessions.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn connection_errors_contain_no_type_names() {
    let (server, sources) = (HttpMcp::start().await.unwrap(), sources());
    let agent = http(&server.url(), json!({}));
    let toolbox = Toolbox::open(&agent, &sources, EVERYWHERE).await.unwrap();
    let url = server.url();
    drop(server);
    gone(&url).await;
    // No request was sent, so the call cannot have taken effect.
    let failure = call(&toolbox, "echo", json!({"text": "x"})).await.ends_run.unwrap();
    assert_eq!(failure.code, FailureCode::TOOL_UNREACHABLE);
    let opened = Toolbox::open(&agent, &sources, EVERYWHERE).await.unwrap_err();
    for summary in [failure.summary, opened.summary] {
        assert!(summary.contains("cannot connect: "), "{summary}");
        assert!(!summary.contains("::") && !summary.contains("Transport"), "{summary}");
    }
}

async fn gone(url: &str) {
    let address = url.trim_start_matches("http://").trim_end_matches("/mcp");
    let refused = async || match tokio::net::TcpStream::connect(address).await {
        Err(_) => Ok(()),
        Ok(_) => Err("it accepts connections"),
    };
    eventually("the server is gone", SOON, refused).await;
}

async fn restarted(server: HttpMcp, unknown_session: Option<(&'static str, &'static str)>) -> HttpMcp {
    let address = server.address;
    drop(server);
    let listener =
        eventually("the port is free again", SOON, async || tokio::net::TcpListener::bind(address).await).await;
    HttpMcp::start_forgetful(listener, unknown_session).unwrap()
}

async fn waiting(server: &HttpMcp, calls: usize) {
    reached("calls at the gate", || server.observed.waiting.load(Ordering::SeqCst), calls).await;
}

async fn cancelled(server: &HttpMcp, calls: usize) {
    reached("cancelled calls", || server.observed.cancelled.load(Ordering::SeqCst), calls).await;
}

async fn reached(what: &str, seen: impl Fn() -> usize, wanted: usize) {
    eventually(what, SOON, async || if seen() == wanted { Ok(()) } else { Err(format!("{} of {wanted}", seen())) })
        .await;
}
