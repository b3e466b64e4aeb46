//! A process whose executor stands still for ever while its heartbeat renews its lease.

use std::{os::unix::process::ExitStatusExt as _, time::Duration};

use longhaul_sdk::{DefinitionSpec, spec::ToolRef};
use longhaul_testkit::model::{Gate, ev_gate, ev_text, reply_calls, reply_events, reply_text};
use serde_json::json;

use crate::support::{
    fleet::{Fleet, PATIENCE, agent},
    process::WorkerProcess,
    wait::{eventually, within},
};

const SIGABRT: i32 = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wedged_process_aborts_and_its_work_resumes_elsewhere() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__LEASE_SECONDS", "2");
    fleet.set("LONGHAUL__WORKER__RENEW_SECONDS", "0.6");
    fleet.set("LONGHAUL__WORKER__WEDGED_SECONDS", "8");
    let mut agent = agent("a");
    agent.tools = vec![ToolRef::Name("fragile".into())];
    fleet.apply(&agent, &DefinitionSpec::new("d", "a")).await;
    let slow = Gate::new();
    let answers = slow.clone();
    fleet.llm.answer_with(move |request| {
        let wedges = request.messages().iter().any(|message| message.to_string().contains("stand still"));
        match request.replies() {
            0 if wedges => reply_calls([("fragile", json!({"text": "wedge"}))]),
            _ if wedges => reply_text("{}"),
            _ => reply_events([ev_gate(&answers), ev_text("{}")]),
        }
    });
    let mut process = WorkerProcess::start(&fleet).await;
    let held = fleet.submit("d", json!({"text": "beside it"})).await;
    within("the model is asked", PATIENCE, slow.reached()).await;
    let guilty = fleet.submit("d", json!({"text": "stand still"})).await;

    // Its lease stays valid, so no other worker would ever take over.
    let status = process.ended(Duration::from_secs(60)).await;
    assert_eq!(status.signal(), Some(SIGABRT), "{}", process.log());
    assert!(process.log().contains("the executor stands still"), "{}", process.log());
    let leases = "select to_jsonb(count(*)) from executions where worker_id is not null";
    assert_eq!(fleet.json(leases).await, json!(2), "it held both until it died");

    fleet.set("LONGHAUL__WORKER__BUILD", "mended");
    let _next = WorkerProcess::start(&fleet).await;
    slow.open();
    for id in [held, guilty] {
        let row = fleet.ended(id).await;
        assert_eq!((&row["status"], &row["attempts"]), (&json!("FINISHED"), &json!(2)), "{row}");
    }
    eventually("no lease is left", Duration::from_secs(10), async || {
        let left = fleet.json(leases).await;
        if left == json!(0) { Ok(()) } else { Err(format!("{left} leases")) }
    })
    .await;
}
