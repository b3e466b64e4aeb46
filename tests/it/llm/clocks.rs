//! Each of the four timeouts of a model call, expiring and not.

use std::time::Duration;

use longhaul_llm::{Clocks, ModelError, ProviderKind};
use longhaul_sdk::{FailureClass, FailureCode};
use longhaul_testkit::model::{
    ModelServer, ev_finish, ev_raw, ev_stall, ev_text, reply_events, reply_silent, reply_text,
};
use serde_json::json;

use super::{WAYS, outcome, patient};
use crate::support::wait::{SOON, eventually};

const SHORT: Duration = Duration::from_millis(200);

/// Asserts that the error names the clock and is transient, and that the connection is closed.
async fn assert_ran_out(server: &ModelServer, error: ModelError, clock: &str) {
    let failure = error.to_failure();
    assert_eq!((failure.class, &failure.code), (FailureClass::Transient, &FailureCode::MODEL_TIMEOUT), "{error:?}");
    assert_eq!(failure.detail, Some(json!({ "clock": clock, "after_ms": 200 })));
    let gone = async || match server.in_flight() {
        0 => Ok(()),
        open => Err(format!("{open} requests in flight")),
    };
    eventually("the request is given up", SOON, gone).await;
}

#[tokio::test]
async fn unaccepted_connection_runs_out_the_connect_clock() {
    // A listener with a full accept queue is the only way to leave a connection unanswered on loopback.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(SHORT, tokio::net::TcpStream::connect(address)).await {
        queued.push(stream);
    }
    let clocks = Clocks { connect: SHORT, ..patient() };
    let client = super::client(&format!("http://{address}"), ProviderKind::OpenAi, clocks);
    let message = [longhaul_llm::Message::user("hi")];
    let error = super::ask(&client, &super::spec(true), &message).await.0.unwrap_err();
    assert!(matches!(error, ModelError::ConnectTimeout { .. }), "{error:?}");
    assert_eq!(error.to_failure().detail, Some(json!({ "clock": "connect", "after_ms": 200 })));
    drop((listener, queued));
}

#[tokio::test]
async fn silence_runs_out_the_first_token_clock() {
    let server = ModelServer::start().await.unwrap();
    let clocks = Clocks { first_token: SHORT, ..patient() };
    for kind in [ProviderKind::OpenAi, ProviderKind::Anthropic] {
        server.push(reply_silent());
        let error = outcome(&server, kind, true, clocks).await.unwrap_err();
        assert_ran_out(&server, error, "first_token").await;
        // Neither the start of a stream nor a keep-alive is a token.
        server.push(reply_events([ev_raw(": still here\n\n"), ev_stall()]));
        let error = outcome(&server, kind, true, clocks).await.unwrap_err();
        assert_ran_out(&server, error, "first_token").await;
    }
}

#[tokio::test]
async fn stall_after_first_token_runs_out_gap_clock() {
    let server = ModelServer::start().await.unwrap();
    let clocks = Clocks { gap: SHORT, ..patient() };
    for kind in [ProviderKind::OpenAi, ProviderKind::Anthropic] {
        server.push(reply_events([ev_text("so"), ev_stall()]));
        let error = outcome(&server, kind, true, clocks).await.unwrap_err();
        assert_ran_out(&server, error, "gap").await;
    }
}

#[tokio::test]
async fn a_trickle_runs_out_the_total_clock() {
    let server = ModelServer::start().await.unwrap();
    let clocks = Clocks { total: SHORT, ..patient() };
    for (kind, stream) in WAYS {
        server.push(reply_text(&"word ".repeat(100)).chunks_of(3).trickle(Duration::from_millis(20)));
        let error = outcome(&server, kind, stream, clocks).await.unwrap_err();
        assert_ran_out(&server, error, "total").await;
    }
}

#[tokio::test]
async fn whole_reply_ignores_the_first_token_clock() {
    let server = ModelServer::start().await.unwrap();
    let clocks = Clocks { first_token: Duration::from_millis(50), ..patient() };
    for kind in [ProviderKind::OpenAi, ProviderKind::Anthropic] {
        server.push(reply_text("late").delay(SHORT));
        assert_eq!(outcome(&server, kind, false, clocks).await.unwrap().message.text(), "late");
        server.push(reply_silent());
        let error = outcome(&server, kind, false, Clocks { total: SHORT, ..clocks }).await.unwrap_err();
        assert_ran_out(&server, error, "total").await;
    }
}

#[tokio::test]
async fn a_trickle_within_the_gap_is_healthy() {
    let server = ModelServer::start().await.unwrap();
    let clocks = Clocks { first_token: Duration::from_secs(5), gap: Duration::from_secs(5), ..patient() };
    for (kind, stream) in WAYS {
        server.push(reply_text("slow but sure").chunks_of(50).trickle(Duration::from_millis(5)));
        assert_eq!(outcome(&server, kind, stream, clocks).await.unwrap().message.text(), "slow but sure");
    }
}

#[tokio::test]
async fn complete_reply_does_not_wait_for_its_end_mark() {
    let server = ModelServer::start().await.unwrap();
    let clocks = Clocks { gap: Duration::from_secs(1), ..patient() };
    let finish = r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    server.push(reply_events([ev_text("all"), ev_raw(&format!("{finish}\n\n")), ev_stall(), ev_finish("stop")]));
    let reply = outcome(&server, ProviderKind::OpenAi, true, clocks).await.unwrap();
    assert_eq!(reply.message.text(), "all");
}
