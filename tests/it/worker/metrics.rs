//! Metrics and health of a worker over HTTP.

use longhaul_embedded::free_port;
use longhaul_guards::http::{HttpOptions, client};
use longhaul_testkit::model::{Gate, ev_gate, ev_text, reply_events, reply_text};
use reqwest::StatusCode;
use rustix::process::Signal;
use serde_json::json;

use super::kit::definition;
use crate::support::{
    fleet::{Fleet, PATIENCE, agent},
    process::WorkerProcess,
    wait::eventually,
};

#[tokio::test]
async fn worker_metrics_are_served_until_it_ends() {
    let mut fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    fleet.llm.answer_with(|_| reply_text("done"));
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    fleet.set("LONGHAUL__WORKER__METRICS_LISTEN", &address);
    let mut process = WorkerProcess::start(&fleet).await;
    let id = fleet.submit("d", json!({})).await;
    fleet.ended(id).await;

    // Gauges of the fleet appear with the duty that counts them.
    eventually("the fleet is counted", PATIENCE, || async {
        let text = reqwest::get(format!("http://{address}/metrics")).await.unwrap().text().await.unwrap();
        if text.contains("longhaul_store_oldest_snapshot_seconds") { Ok(()) } else { Err(text) }
    })
    .await;
    let scraped = reqwest::get(format!("http://{address}/metrics")).await.unwrap();
    assert_eq!(scraped.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = scraped.text().await.unwrap();
    for line in [
        "# TYPE longhaul_attempts_started_total counter",
        "longhaul_attempts_started_total 1",
        "# TYPE longhaul_store_oldest_snapshot_seconds gauge",
    ] {
        assert!(text.contains(line), "no {line:?} in:\n{text}");
    }
    assert_eq!(reqwest::get(format!("http://{address}/")).await.unwrap().status(), StatusCode::NOT_FOUND);
    let posted =
        client(&HttpOptions::default()).unwrap().post(format!("http://{address}/metrics")).send().await.unwrap();
    assert_eq!(posted.status(), StatusCode::METHOD_NOT_ALLOWED);

    process.signal(Signal::TERM);
    assert!(process.ended(PATIENCE).await.success());
    assert!(reqwest::get(format!("http://{address}/metrics")).await.unwrap_err().is_connect());
}

/// Status and text of an answer.
async fn get(address: &str, path: &str) -> (StatusCode, String) {
    let answer = reqwest::get(format!("http://{address}{path}")).await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

#[tokio::test]
async fn worker_is_ready_between_registration_and_drain() {
    let mut fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    let gate = Gate::new();
    let held = gate.clone();
    fleet.llm.answer_with(move |_| reply_events([ev_gate(&held), ev_text("done")]));
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    fleet.set("LONGHAUL__WORKER__METRICS_LISTEN", &address);
    let id = fleet.submit("d", json!({})).await;
    let worker = fleet.worker();
    gate.reached().await;
    assert_eq!(get(&address, "/readyz").await, (StatusCode::OK, "ready\n".into()));
    worker.begin_drain();
    assert_eq!(get(&address, "/readyz").await, (StatusCode::SERVICE_UNAVAILABLE, "draining\n".into()));
    assert_eq!(get(&address, "/healthz").await, (StatusCode::OK, "ok\n".into()), "it is not to be restarted");
    gate.open();
    fleet.ended(id).await;
    worker.drain().await;
}

#[tokio::test]
async fn worker_that_cannot_register_is_alive_and_unready() {
    let mut fleet = Fleet::start().await;
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    fleet.set("LONGHAUL__WORKER__METRICS_LISTEN", &address);
    sqlx::query("alter table workers rename to workers_away").execute(&fleet.db.pool).await.unwrap();
    let worker = fleet.worker();
    let unready = (StatusCode::SERVICE_UNAVAILABLE, "starting\n".to_owned());
    eventually("the endpoint answers", PATIENCE, || async {
        reqwest::get(format!("http://{address}/healthz")).await.map_err(|error| error.to_string())
    })
    .await;
    assert_eq!(get(&address, "/readyz").await, unready);
    sqlx::query("alter table workers_away rename to workers").execute(&fleet.db.pool).await.unwrap();
    eventually("the worker is ready", PATIENCE, || async {
        let state = get(&address, "/readyz").await;
        if state == unready { Err(state.1) } else { Ok(()) }
    })
    .await;
    worker.drain().await;
}

#[tokio::test]
async fn worker_frees_metrics_port_and_refuses_taken_one() {
    let mut fleet = Fleet::start().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    fleet.set("LONGHAUL__WORKER__METRICS_LISTEN", &address.to_string());
    let worker = longhaul_worker::WorkerBuilder::new(fleet.config()).build().unwrap();
    let error = worker.run(Default::default()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("the metrics cannot be served at {address}"));
    drop(taken);
    let worker = fleet.worker();
    eventually("the worker registers", PATIENCE, || async {
        let workers = fleet.json("select to_jsonb(count(*)) from workers").await;
        if workers == json!(1) { Ok(()) } else { Err(workers) }
    })
    .await;
    assert!(reqwest::get(format!("http://{address}/metrics")).await.unwrap().status().is_success());
    worker.drain().await;
    std::net::TcpListener::bind(address).expect("nobody listens any more");
}
