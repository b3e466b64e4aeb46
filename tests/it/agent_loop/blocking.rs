//! Calls that can never run are classified once nothing else can happen; the run never waits for them.

use longhaul_testkit::model::{Gate, ev_gate, reply_events};
use serde_json::json;

use super::kit::{Run, Stage, WORK, referring, work};

#[tokio::test]
async fn mutually_reading_calls_are_a_cycle_c21() {
    let stage = Stage::default();
    let reply = reply_events([
        work("a", json!({"value": "†state.b", "_outputPath": "†state.a"})),
        work("b", json!({"value": "†state.a", "_outputPath": "†state.b"})),
        work("behind", json!({"value": "†state.a"})),
        work("free", json!({"value": 1})),
    ]);
    let run = Run::start(&referring(), &stage, json!({}), [reply]).await;
    run.finished().await;
    let told = run.told(1);
    for member in ["a", "b"] {
        assert_eq!(told.error(member).as_deref(), Some("cycle"), "{}", told.text(member));
        let members = &told.value(member)["error"]["details"]["members"];
        assert_eq!(members, &json!([{"id": "a", "_tool": WORK}, {"id": "b", "_tool": WORK}]));
        assert_eq!(stage.runs(member), 0);
    }
    assert_eq!(told.error("behind").as_deref(), Some("dependency_failed"));
    assert_eq!(told.value("free"), json!(1));
}

#[tokio::test]
async fn unwritten_reference_is_unresolved_after_stream_end_c22() {
    let stage = Stage::default();
    let open = Gate::new();
    let reply = reply_events([
        work("reader", json!({"value": "†state.reprot"})),
        work("writer", json!({"value": 1, "_outputPath": "†state.report"})),
        work("after", json!({})),
        ev_gate(&open),
    ]);
    let run = Run::start(&referring(), &stage, json!({"name": "n"}), [reply]).await;
    // Nothing runs, but a later call of the stream may still write the path.
    stage.ended("writer").await;
    assert_eq!(run.fleet.llm.requests().len(), 1);
    open.open();
    run.finished().await;
    let told = run.told(1);
    assert_eq!(told.error("reader").as_deref(), Some("unresolved_reference"));
    let details = &told.value("reader")["error"]["details"];
    assert_eq!((&details["path"], &details["argument"]), (&json!("†state.reprot"), &json!("/value")));
    assert_eq!(details["nearest"][0], "†state.report");
    assert_eq!(stage.runs("reader"), 0);
}

#[tokio::test]
async fn reader_of_failed_call_is_skipped_naming_it_c23() {
    let stage = Stage::default().fails("a", "no such customer");
    let old = reply_events([work("old", json!({"value": "stale", "_outputPath": "†state.a"}))]);
    let reply = reply_events([
        work("a", json!({"_outputPath": "†state.a"})),
        work("b", json!({"value": "†state.a", "_outputPath": "†state.b"})),
        work("c", json!({"value": "unrelated"})),
        work("d", json!({"value": "†state.b"})),
    ]);
    let run = Run::start(&referring(), &stage, json!({}), [old, reply]).await;
    run.finished().await;
    let told = run.told(2);
    assert_eq!(told.error("a").as_deref(), Some("runtime"));
    // Not even with the value of the turn before.
    for (reader, cause) in [("b", "a"), ("d", "b")] {
        assert_eq!(told.error(reader).as_deref(), Some("dependency_failed"));
        assert_eq!(told.value(reader)["error"]["details"]["cause"]["id"], cause);
        assert_eq!(stage.runs(reader), 0);
    }
    assert_eq!(told.value("c"), json!("unrelated"));
}

#[tokio::test]
async fn reader_of_untaken_alternative_is_skipped_without_error_c24() {
    let stage = Stage::default().answers_at("check", "\"looks fine\"", "†state.good");
    let reply = reply_events([
        work("check", json!({"_outputPath": "†state.bad || †state.good"})),
        work("on_good", json!({"value": "†state.good"})),
        work("on_bad", json!({"value": "†state.bad"})),
    ]);
    let run = Run::start(&referring(), &stage, json!({}), [reply]).await;
    run.finished().await;
    let told = run.told(1);
    assert_eq!(stage.arguments("on_good")["value"], "looks fine");
    assert_eq!((stage.runs("on_bad"), told.error("on_bad")), (0, None));
    assert_eq!(told.value("on_bad")["status"], "skipped_branch");
}

#[tokio::test]
async fn call_reading_its_own_output_is_a_cycle_c25() {
    let stage = Stage::default();
    let reply = reply_events([
        work("own", json!({"value": "†state.x", "_outputPath": "†state.x"})),
        work("below", json!({"value": "†state.y.z", "_outputPath": "†state.y"})),
    ]);
    let run = Run::start(&referring(), &stage, json!({}), [reply]).await;
    run.finished().await;
    let told = run.told(1);
    for own in ["own", "below"] {
        assert_eq!(told.error(own).as_deref(), Some("cycle"), "{}", told.text(own));
        let members = told.value(own)["error"]["details"]["members"].clone();
        assert_eq!(members, json!([{"id": own, "_tool": WORK}]));
        assert_eq!(stage.runs(own), 0);
    }
}

#[tokio::test]
async fn reader_of_an_unresolved_call_names_that_call() {
    let stage = Stage::default();
    let reply = reply_events([
        work("a", json!({"value": "†state.gone", "_outputPath": "†state.a"})),
        work("b", json!({"value": "†state.a"})),
        work("typo", json!({"value": ["†state.a", "†state.tpyo"]})),
    ]);
    let run = Run::start(&referring(), &stage, json!({}), [reply]).await;
    run.finished().await;
    let told = run.told(1);
    let errors = ["a", "b", "typo"].map(|call| told.error(call));
    let expected = ["unresolved_reference", "dependency_failed", "unresolved_reference"];
    assert_eq!(errors, expected.map(|kind| Some(kind.to_owned())));
    assert_eq!(told.value("b")["error"]["details"]["path"], "†state.a");
    assert_eq!(told.value("typo")["error"]["details"]["path"], "†state.tpyo");
}
