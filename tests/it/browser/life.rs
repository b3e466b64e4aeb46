//! The browser ends with its attempt, however that ends, and the next attempt is told.

use longhaul_agent::probe::Point;
use longhaul_testkit::model::reply_calls;
use serde_json::json;

use super::{
    PATIENCE, Running, Site, scratch,
    tools::{Bench, read},
};
use crate::{
    support::{process::WorkerProcess, wait::eventually},
    worker::journal::{Holds, quick_fleet},
};

const NEW: &str = "Your browser is new. The one of your earlier calls is gone, with its page, cookies and logins.";
const PAGES: &[(&str, &str)] = &[("/", "<title>first</title>"), ("/again", "<title>again</title>")];

#[tokio::test(flavor = "multi_thread")]
async fn killed_worker_leaves_no_browser() {
    let (_scratch, dir) = scratch();
    let Some(mut bench) = Bench::over(quick_fleet().await, Site::start(PAGES).await).await else { return };
    bench.fleet.set("LONGHAUL__BROWSER__SCRATCH_DIR", &dir);
    // The second call never ends by itself.
    bench.script([vec![bench.open("/")], vec![bench.open("/silent")], vec![bench.open("/again")]]);
    let mut doomed = WorkerProcess::start(&bench.fleet).await;
    let id = bench.submit().await;
    bench.site.requested("GET /silent").await;
    let running = Running::below(&dir);
    running.stop();
    doomed.kill();
    running.all_gone().await;
    let next = WorkerProcess::start(&bench.fleet).await;
    let results = bench.finished(id).await;
    assert!(results[1].contains(NEW), "the resumed attempt is told: {results:?}");
    assert!(results[2].contains("Page: again <") && !results[2].contains(NEW), "once: {results:?}");
    Running::below(&dir).all_gone().await;
    drop(next);
}

#[tokio::test(flavor = "multi_thread")]
async fn browser_ends_with_every_end_of_its_attempt() {
    let (_scratch, dir) = scratch();
    let Some(mut bench) = Bench::over(quick_fleet().await, Site::start(PAGES).await).await else { return };
    bench.fleet.set("LONGHAUL__BROWSER__SCRATCH_DIR", &dir);
    let runs = async || {
        eventually("the browser runs", PATIENCE, async || {
            let running = Running::below(&dir).lines();
            if running.len() > 3 { Ok(()) } else { Err(running.join("\n")) }
        })
        .await;
    };
    // Finished.
    let worker = bench.fleet.worker();
    bench.script([vec![bench.open("/")]]);
    let results = bench.finished(bench.submit().await).await;
    assert!(results[0].starts_with("The page is open."), "{results:?}");
    Running::below(&dir).all_gone().await;
    // Parked.
    bench.fleet.llm.push(reply_calls([bench.open("/")]));
    bench.fleet.llm.push(reply_calls([("ask_caller", json!({"question": "Which?"}))]));
    let id = bench.submit().await;
    bench.fleet.until(id, "it waits for its caller", |row| row["wait_reason"] == "input").await;
    let asked = bench.fleet.llm.requests();
    assert!(asked.last().unwrap().messages().last().unwrap().to_string().contains("The page is open."));
    Running::below(&dir).all_gone().await;
    let cancelled = bench.api.acme.post(&format!("/v1/executions/{id}/cancel"), &json!({})).await;
    assert!(cancelled.status < 300, "{}", cancelled.text);
    // Cancelled.
    bench.fleet.llm.push(reply_calls([bench.open("/silent")]));
    let id = bench.submit().await;
    runs().await;
    let cancelled = bench.api.acme.post(&format!("/v1/executions/{id}/cancel"), &json!({})).await;
    assert!(cancelled.status < 300, "{}", cancelled.text);
    assert_eq!(bench.fleet.ended(id).await["failure_code"], "cancelled");
    Running::below(&dir).all_gone().await;
    // Drained.
    bench.fleet.llm.push(reply_calls([bench.open("/silent")]));
    bench.submit().await;
    runs().await;
    worker.drain().await;
    Running::below(&dir).all_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_attempt_learns_that_its_browser_is_new() {
    let (_scratch, dir) = scratch();
    let Some(mut bench) = Bench::over(quick_fleet().await, Site::start(PAGES).await).await else { return };
    bench.fleet.set("LONGHAUL__BROWSER__SCRATCH_DIR", &dir);
    bench.script([vec![bench.open("/")], vec![read()], vec![bench.open("/again")], vec![read()]]);
    let (holds, id) = (Holds::default(), bench.submit().await);
    // After the first call, before the second turn.
    holds.plan(id, Point::BeforeTurn, 2);
    let probe = holds.probe();
    let worker = bench.fleet.worker_with(|builder| builder.probe(probe));
    holds.all_held().await;
    worker.kill().await;
    Running::below(&dir).all_gone().await;
    bench.fleet.bury_workers().await;
    let next = bench.fleet.worker();
    let results = bench.finished(id).await;
    assert!(!results[0].contains(NEW), "{results:?}");
    assert!(results[1].contains(NEW) && results[1].contains("no page is open"), "{results:?}");
    assert!(results[2..].iter().all(|result| !result.contains(NEW)), "once: {results:?}");
    assert!(results[3].contains("Page: again <"), "{results:?}");
    next.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_click_is_not_repeated() {
    let Some(bench) = Bench::over(
        quick_fleet().await,
        Site::start(&[("/", "<button onclick=\"fetch('/clicked')\">Press</button>")]).await,
    )
    .await
    else {
        return;
    };
    bench.script([vec![bench.open("/")], vec![("browser_click", json!({"selector": "button"}))]]);
    let (holds, id) = (Holds::default(), bench.submit().await);
    holds.plan(id, Point::CallAnswered, 2);
    let probe = holds.probe();
    let worker = bench.fleet.worker_with(|builder| builder.probe(probe));
    holds.all_held().await;
    worker.kill().await;
    bench.fleet.bury_workers().await;
    let next = bench.fleet.worker();
    let results = bench.finished(id).await;
    assert!(results[1].contains("outcome_unknown"), "{results:?}");
    let clicks = bench.site.requests().iter().filter(|request| *request == "GET /clicked").count();
    assert_eq!(clicks, 1);
    next.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn later_message_learns_of_the_new_browser() {
    let Some(bench) = Bench::over(quick_fleet().await, Site::start(PAGES).await).await else { return };
    let worker = bench.fleet.worker();
    let session = bench.api.acme.post("/v1/sessions", &json!({"agent": "surfer"})).await;
    let session = session.body["id"].as_str().unwrap().to_owned();
    let mut texts = Vec::new();
    for _ in 0..2 {
        bench.script([vec![bench.open("/")]]);
        let path = format!("/v1/sessions/{session}/messages");
        let said = bench.api.acme.post(&path, &json!({"message": "go on"})).await;
        assert!(said.status < 300, "{}", said.text);
        let id = said.body["execution_id"].as_str().unwrap_or_else(|| panic!("{}", said.text)).parse().unwrap();
        texts.push(bench.finished(id).await.pop().unwrap());
    }
    assert!(!texts[0].contains(NEW) && texts[1].contains(NEW), "{texts:?}");
    worker.drain().await;
}
