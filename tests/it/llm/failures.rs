//! Every row of the table of a model endpoint's answers (docs/reference/failures.md), over both wire formats,
//! streamed and whole.

use std::{error::Error, time::Duration};

use longhaul_llm::{FinishReason, Message, ModelError};
use longhaul_sdk::{Failure, FailureClass, FailureCode};
use longhaul_testkit::model::{
    ModelServer, Reply, ev_call, ev_cut, ev_end, ev_error, ev_finish, ev_raw, ev_text, reply_events, reply_status,
    reply_text,
};
use serde_json::json;
use tokio::net::TcpListener;

use super::{KEY, WAYS, ask, client, outcome, patient, spec};

/// Returns the failure of a reply; every way to ask must agree on class, code and wait.
async fn failure(reply: Reply) -> Failure {
    let server = ModelServer::start().await.unwrap();
    let mut failures = Vec::new();
    for (kind, stream) in WAYS {
        server.push(reply.clone());
        let error = outcome(&server, kind, stream, patient()).await.expect_err("the reply is a failure");
        let failure = error.to_failure();
        let chain = chain(&error);
        assert!(!format!("{failure:?} {chain} {error:?}").contains(KEY), "the key leaked: {failure:?} {chain}");
        failures.push(failure);
    }
    let first = failures[0].clone();
    for (failure, way) in failures.iter().zip(WAYS) {
        assert_eq!((failure.class, &failure.code), (first.class, &first.code), "{way:?}: {failure:?}");
        assert_eq!(failure.retry_after, first.retry_after, "{way:?}");
    }
    first
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}

fn kind_of(failure: &Failure) -> (FailureClass, &str) {
    (failure.class, failure.code.as_str())
}

#[tokio::test]
async fn no_connection_is_transient() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for (kind, stream) in WAYS {
        let error = ask(&client(&url, kind, patient()), &spec(stream), &[Message::user("hi")]).await.0.unwrap_err();
        assert!(matches!(error, ModelError::Unreachable { .. }), "{error:?}");
        assert_eq!(kind_of(&error.to_failure()), (FailureClass::Transient, "model_unreachable"));
        assert!(!chain(&error).contains("127.0.0.1"), "{}", chain(&error));
    }
}

#[tokio::test]
async fn a_connection_closed_before_any_answer_is_transient() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let closer = tokio::spawn(async move {
        loop {
            drop(listener.accept().await);
        }
    });
    for (kind, stream) in WAYS {
        let error = ask(&client(&url, kind, patient()), &spec(stream), &[Message::user("hi")]).await.0.unwrap_err();
        assert_eq!(kind_of(&error.to_failure()), (FailureClass::Transient, "model_unreachable"));
    }
    closer.abort();
}

#[tokio::test]
async fn rate_limit_is_transient_with_the_stated_wait() {
    for status in [408, 429] {
        let failure = failure(reply_status(status, "slow down").header("retry-after", "20")).await;
        assert_eq!(kind_of(&failure), (FailureClass::Transient, "model_rate_limited"));
        assert_eq!(failure.retry_after, Some(Duration::from_secs(20)));
        assert_eq!(failure.detail.unwrap()["message"], "slow down");
    }
    let stated = failure(reply_status(429, "x").header("retry-after-ms", "1500")).await;
    assert_eq!(stated.retry_after, Some(Duration::from_millis(1500)));
    let year = failure(reply_status(429, "x").header("retry-after", "31536000")).await;
    assert_eq!(year.retry_after, Some(Duration::from_hours(24)));
    assert_eq!(failure(reply_status(429, "x")).await.retry_after, None);
}

#[tokio::test]
async fn a_retry_date_counts_from_the_servers_own_clock() {
    let reply = reply_status(429, "x")
        .header("date", "Sun, 06 Nov 1994 08:49:37 GMT")
        .header("retry-after", "Sun, 06 Nov 1994 08:51:07 GMT");
    assert_eq!(failure(reply).await.retry_after, Some(Duration::from_secs(90)));
}

#[tokio::test]
async fn any_5xx_is_an_error_of_the_model_api() {
    for status in [500, 502, 503, 529] {
        let failure = failure(reply_status(status, "broken").header("retry-after", "5")).await;
        assert_eq!(kind_of(&failure), (FailureClass::LlmError, "model_api_error"));
        assert_eq!(failure.retry_after, Some(Duration::from_secs(5)));
    }
    let page = failure(reply_status(502, "").body("<html><h1>502 Bad Gateway</h1></html>")).await;
    assert_eq!(kind_of(&page), (FailureClass::LlmError, "model_api_error"));
    let words = "<html><h1>502 Bad Gateway</h1></html>";
    assert_eq!(page.detail, Some(json!({ "status": 502, "message": words })));
}

#[tokio::test]
async fn a_cut_reply_is_transient() {
    for events in [vec![ev_text("so"), ev_cut()], vec![ev_cut()]] {
        let failure = failure(reply_events(events)).await;
        assert_eq!(kind_of(&failure), (FailureClass::Transient, "model_stream_cut"));
    }
    // Only a stream can end this way: the length of a whole reply is known.
    let server = ModelServer::start().await.unwrap();
    for kind in [WAYS[0].0, WAYS[2].0] {
        server.push(reply_events([ev_text("so"), ev_end()]));
        let error = outcome(&server, kind, true, patient()).await.unwrap_err();
        assert!(matches!(error, ModelError::StreamCut { source: None }), "{error:?}");
    }
    assert_eq!(server.answered().len(), 1, "the server itself ended in good order");
}

#[tokio::test]
async fn error_inside_the_reply_is_a_model_api_error() {
    let failure = failure(reply_events([ev_text("so"), ev_error("overloaded_error", "Overloaded")])).await;
    assert_eq!(kind_of(&failure), (FailureClass::LlmError, "model_api_error"));
    let detail = failure.detail.unwrap();
    assert_eq!((&detail["type"], &detail["message"]), (&json!("overloaded_error"), &json!("Overloaded")));
}

#[tokio::test]
async fn a_malformed_or_empty_reply_is_an_llm_error() {
    let replies = [
        reply_events([ev_raw("data: {\"choices\": [\n\n"), ev_end()]),
        reply_text(" \n"),
        reply_text("").body("<html>login here</html>"),
        reply_text("").body("{}"),
    ];
    for reply in replies {
        let failure = failure(reply).await;
        assert_eq!(kind_of(&failure), (FailureClass::LlmError, "model_malformed_reply"));
    }
}

#[tokio::test]
async fn a_conversation_too_long_is_a_context_limit() {
    let bodies = [
        json!({ "error": { "message": "x", "type": "invalid_request_error", "code": "context_length_exceeded" } }),
        json!({ "type": "error",
            "error": { "type": "invalid_request_error", "message": "prompt is too long: 9 > 8" } }),
    ];
    for body in bodies {
        let failure = failure(reply_status(400, "").body(body.to_string())).await;
        assert_eq!(failure.class, FailureClass::ContextLimit);
    }
    let failure = failure(reply_status(413, "").body("<html>too large</html>")).await;
    assert_eq!(failure.class, FailureClass::ContextLimit);
}

#[tokio::test]
async fn exhausted_quota_differs_from_a_rate_limit() {
    let openai = json!({ "error": { "message": "x", "type": "insufficient_quota", "code": "insufficient_quota" } });
    let failure = failure(reply_status(429, "").body(openai.to_string()).header("retry-after", "60")).await;
    assert_eq!(kind_of(&failure), (FailureClass::Transient, "model_quota_exhausted"));
    assert_eq!(failure.retry_after, Some(Duration::from_secs(60)));
}

#[tokio::test]
async fn an_exhausted_credit_is_an_exhausted_quota() {
    let message = "Your credit balance is too low to access the Anthropic API.";
    let failure = failure(reply_status(400, message)).await;
    assert_eq!(kind_of(&failure), (FailureClass::Transient, "model_quota_exhausted"));
}

#[tokio::test]
async fn any_other_4xx_and_a_redirect_are_permanent() {
    for status in [400, 401, 403, 404, 422] {
        let failure = failure(reply_status(status, "no")).await;
        assert_eq!(kind_of(&failure), (FailureClass::Permanent, "model_request_refused"));
        assert_eq!(failure.detail.unwrap()["status"], status);
    }
    let failure = failure(reply_status(307, "moved").header("location", "/elsewhere")).await;
    assert_eq!(kind_of(&failure), (FailureClass::Permanent, "model_request_refused"));
}

#[tokio::test]
async fn echoed_key_is_removed_from_errors() {
    let failure = failure(reply_status(401, &format!("Incorrect API key provided: {KEY}"))).await;
    assert_eq!(failure.detail.unwrap()["message"], "Incorrect API key provided: [redacted]");
}

#[tokio::test]
async fn an_endless_error_body_is_read_in_part() {
    let failure = failure(reply_status(500, "").body("x".repeat(300_000))).await;
    assert_eq!(kind_of(&failure), (FailureClass::LlmError, "model_api_error"));
}

#[tokio::test]
async fn a_refusal_is_permanent() {
    let failure = failure(reply_events([ev_text("I cannot"), ev_finish("refusal")])).await;
    assert_eq!(kind_of(&failure), (FailureClass::Permanent, "model_refusal"));
    assert!(failure.summary.ends_with(": I cannot"), "{}", failure.summary);
}

#[tokio::test]
async fn a_stream_cut_after_complete_calls_carries_them() {
    let server = ModelServer::start().await.unwrap();
    for kind in [WAYS[0].0, WAYS[2].0] {
        let arguments = json!({ "q": "a" });
        server.push(reply_events([
            ev_text("so"),
            ev_call("a", "look_up", &arguments),
            ev_call("b", "look_up", &arguments),
            ev_cut(),
        ]));
        let error = outcome(&server, kind, true, patient()).await.unwrap_err();
        assert_eq!(error.to_failure().code, FailureCode::MODEL_STREAM_CUT);
        assert!(matches!(error.root(), ModelError::StreamCut { source: Some(_) }), "{error:?}");
        let partial = error.partial().expect("calls were complete");
        assert_eq!((&*partial.text(), partial.calls()[0].arguments.as_str()), ("so", r#"{"q":"a"}"#));
    }
}

#[tokio::test]
async fn a_reply_at_the_output_limit_is_no_failure() {
    let server = ModelServer::start().await.unwrap();
    for (kind, stream) in WAYS {
        server.push(reply_events([ev_text("as far as"), ev_finish("length")]));
        let reply = outcome(&server, kind, stream, patient()).await.unwrap();
        assert_eq!((reply.finish, &*reply.message.text()), (FinishReason::Length, "as far as"));
    }
}
