//! Detached calls, which no tick waits for.

use longhaul_sdk::{
    AgentSpec,
    spec::{Detached, ToolRef, ToolSettings},
};
use longhaul_testkit::model::{Captured, Gate, ev_gate, ev_text, reply_events, reply_text};
use serde_json::{Value, json};

use super::kit::{ACT, Run, Stage, WORK, any_answer, call_of, referring, work};
use crate::support::{
    fleet::{Fleet, PATIENCE},
    wait::within,
};

/// An agent whose model may detach calls.
fn detaching() -> AgentSpec {
    let settings = |name: &str| {
        let mut settings: ToolSettings = serde_json::from_value(json!({ "name": name })).unwrap();
        settings.detached = Detached::Allowed;
        ToolRef::WithSettings(settings)
    };
    AgentSpec { tools: vec![settings(WORK), settings(ACT)], ..referring() }
}

/// Contents of the user messages of a request, without the first.
/// Notices, which ride in the last result of a turn.
fn notices(request: &Captured) -> Vec<&str> {
    let results = request.messages().iter().filter(|message| message["role"] == "tool");
    results.filter_map(|result| Some(result["content"].as_str()?.split_once("\n\n[")?.1)).collect()
}

#[tokio::test]
async fn detached_call_delays_no_tick_and_reports_failure_c56() {
    let stage = Stage::default().hold("unwatched").fails("unwatched", "no paper").hold("meanwhile").hold("last");
    let answering = Gate::new();
    let first = reply_events([
        work("unwatched", json!({"value": 1, "_detached": true})),
        work("last", json!({"value": 1, "_detached": true})),
        work("watched", json!({"value": 2, "_detached": false})),
        work("torn", json!({"_detached": true, "_outputPath": "†state.x"})),
    ]);
    let second = reply_events([work("meanwhile", json!({}))]);
    let third = reply_events([work("then", json!({}))]);
    let done = reply_events([ev_gate(&answering), ev_text("done")]);
    let run = Run::start_as(&any_answer(), &detaching(), &stage, json!({}), [first, second, third, done]).await;
    // A call of the next turn runs, so the first tick has closed.
    stage.started("meanwhile").await;
    stage.started("unwatched").await;
    assert!(!stage.log().contains(&"-unwatched".to_owned()), "{:?}", stage.log());
    let told = run.told(1);
    assert_eq!(told.value("unwatched")["status"], "accepted");
    assert_eq!(told.value("watched"), json!(2));
    assert_eq!(told.error("torn").as_deref(), Some("structural"));
    stage.release("unwatched");
    stage.ended("unwatched").await;
    stage.release("meanwhile");
    within("the last turn is asked", PATIENCE, answering.reached()).await;
    let requests = run.fleet.llm.requests();
    assert_eq!(notices(&requests[1]), [""; 0]);
    for later in [2, 3] {
        let notices = notices(&requests[later]);
        let [only] = notices.as_slice() else { panic!("{notices:?}") };
        assert!(only.contains("accepted earlier has failed") && only.contains("no paper"), "{only}");
    }
    // The answer is recorded, and accepted calls end before the execution does.
    answering.open();
    run.fleet.until(run.id, "the answer is recorded", |row| row["turns"] == 4).await;
    assert_eq!(run.fleet.row(run.id).await["finished_at"], Value::Null);
    stage.release("last");
    run.finished().await;
    let outcomes = run.events("call").await.into_iter().map(|event| event["outcome"].clone());
    assert_eq!(outcomes.filter(|outcome| outcome == "runtime").count(), 1);
    assert_eq!((stage.runs("unwatched"), stage.runs("last")), (1, 1));
}

#[tokio::test]
async fn detached_call_of_dead_worker_follows_its_effect() {
    let stage = Stage::default().hold("harmless").hold("harmful");
    let mut fleet = Fleet::start().await;
    for (name, seconds) in [("LEASE", "2"), ("RENEW", "0.5"), ("REAPER_TICK", "0.3"), ("SWEEP_TICK", "0.3")] {
        fleet.set(&format!("LONGHAUL__WORKER__{name}_SECONDS"), seconds);
    }
    let waiting = Gate::new();
    let replies = [
        reply_events([
            work("harmless", json!({"_detached": true})),
            call_of(ACT, "harmful", json!({"_detached": true})),
        ]),
        reply_events([ev_gate(&waiting)]),
        reply_events([work("next", json!({}))]),
        reply_text("done"),
    ];
    let mut run = Run::start_on(fleet, &any_answer(), &detaching(), &stage, json!({}), replies).await;
    within("the second turn is asked", PATIENCE, waiting.reached()).await;
    stage.started("harmless").await;
    stage.started("harmful").await;
    run.replace_worker().await;
    stage.ended("next").await;
    stage.release("harmful");
    stage.release("harmless");
    run.finished().await;
    assert_eq!((stage.runs("harmless"), stage.runs("harmful")), (2, 1));
    let requests = run.fleet.llm.requests();
    let notices = notices(requests.last().unwrap());
    let [only] = notices.as_slice() else { panic!("{notices:?}") };
    assert!(only.contains("outcome_unknown"), "{only}");
}
