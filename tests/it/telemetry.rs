//! Spans reach a collector over OTLP, and a trace continues in the process that resumes the work.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, routing::post};
use longhaul_telemetry as telemetry;
use longhaul_telemetry::{
    LogFormat, TelemetryOptions, metrics,
    trace::{current_traceparent, set_parent},
};
use tracing::{dispatcher::with_default, info_span};

use crate::support::api::TestApi;

pub(crate) type Exports = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A collector that stores its exports as (content type, body).
pub(crate) async fn collector() -> (String, Exports) {
    let exports = Exports::default();
    let keep = async |State(exports): State<Exports>, headers: HeaderMap, body: Bytes| {
        let content_type = headers["content-type"].to_str().unwrap().to_owned();
        exports.lock().unwrap().push((content_type, body.to_vec()));
    };
    let router = Router::new().route("/v1/traces", post(keep)).with_state(Arc::clone(&exports));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (format!("http://{address}"), exports)
}

pub(crate) fn config(endpoint: Option<String>) -> TelemetryOptions {
    TelemetryOptions { log_format: LogFormat::Json, log_filter: "off".to_owned(), otlp_endpoint: endpoint }
}

fn holds(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_covers_submit_and_attempt() {
    let (endpoint, exports) = collector().await;
    let (api, api_guard) = telemetry::build(&config(Some(endpoint.clone())), "longhaul-api").unwrap();
    let stored = with_default(&api, || info_span!("submit").in_scope(current_traceparent)).unwrap();
    let (worker, worker_guard) = telemetry::build(&config(Some(endpoint)), "longhaul-worker").unwrap();
    with_default(&worker, || {
        let attempt = info_span!("attempt");
        assert!(set_parent(&attempt, &stored));
        attempt.in_scope(|| info_span!("turn").in_scope(|| ()));
    });
    // Dropping a guard flushes its spans; the log filter "off" does not drop traces.
    tokio::task::spawn_blocking(move || drop((api_guard, worker_guard))).await.unwrap();

    let exports = exports.lock().unwrap().clone();
    let trace = hex::decode(stored.split('-').nth(1).unwrap()).unwrap();
    for (service, names) in [("longhaul-api", vec!["submit"]), ("longhaul-worker", vec!["attempt", "turn"])] {
        let (content_type, body) =
            exports.iter().find(|(_, body)| holds(body, service.as_bytes())).expect("an export of each service");
        assert_eq!(content_type, "application/x-protobuf");
        for name in names {
            assert!(holds(body, name.as_bytes()), "{service} exported no span {name}");
        }
        assert!(holds(body, &trace), "{service} exported another trace");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_collector_delays_nothing() {
    // It accepts connections and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let (dispatch, guard) = telemetry::build(&config(Some(endpoint)), "longhaul-test").unwrap();
    let started = Instant::now();
    with_default(&dispatch, || {
        for _ in 0..10_000 {
            info_span!("turn").in_scope(|| ());
        }
    });
    let took = started.elapsed();
    assert!(took < Duration::from_secs(10), "10,000 spans took {took:?}");
    tokio::task::spawn_blocking(move || drop(guard)).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(30), "shutdown took {:?}", started.elapsed());
}

/// Returns the spans of one request; the server runs on this thread.
async fn exported(service: &'static str, api: &TestApi, path: &str) -> (u16, Vec<u8>) {
    let (endpoint, exports) = collector().await;
    let (dispatch, guard) = telemetry::build(&config(Some(endpoint)), service).unwrap();
    let status = {
        let _default = tracing::dispatcher::set_default(&dispatch);
        api.acme.get(path).await.status
    };
    tokio::task::spawn_blocking(move || drop(guard)).await.unwrap();
    let exports = exports.lock().unwrap().clone();
    (status, exports.into_iter().flat_map(|(_, body)| body).collect())
}

#[tokio::test]
async fn status_5xx_marks_the_span_failed() {
    /// `Span.status` with only the code ERROR, as protobuf.
    const FAILED: [u8; 4] = [0x7a, 2, 0x18, 2];
    let api = TestApi::start().await;
    let (status, refused) = exported("refused", &api, "/v1/no-such").await;
    assert_eq!(status, 404);
    assert!(holds(&refused, b"http.request.method") && !holds(&refused, &FAILED));
    api.store.close().await;
    let (status, failed) = exported("failed", &api, "/v1/definitions").await;
    assert_eq!(status, 503);
    assert!(holds(&failed, b"error.type") && holds(&failed, &FAILED));
}

#[tokio::test]
async fn metrics_are_rendered_with_help_and_type() {
    let (_dispatch, _guard) = telemetry::build(&config(None), "longhaul-test").unwrap();
    // A label of this test alone: the gauges of queues are set by each API of the process.
    metrics::breakers_open("shown", 3);
    let text = metrics::render();
    for line in [
        "# HELP longhaul_model_breakers_open breakers of model endpoints that are not closed, by provider",
        "# TYPE longhaul_model_breakers_open gauge",
        "longhaul_model_breakers_open{provider=\"shown\"} 3",
    ] {
        assert!(text.contains(line), "no {line:?} in:\n{text}");
    }
}
