//! Core-rules 20: JSON that a round trip through a parser or a database would change. However a run is interrupted,
//! the model receives byte for byte what an undisturbed run sends.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_sdk::ToolEffect;
use longhaul_testkit::model::{Captured, Gate, Reply, ev_call_raw, ev_gate, ev_text, reply_events, reply_text};
use serde_json::{Value, json};

use super::kit::{TestTool, agent_with, definition, said};
use crate::support::fleet::{Fleet, FleetWorker};

/// Duplicate keys, signed zeros, exponents, escapes that no text can hold, numbers that no machine type holds, odd
/// white space.
const ODD: &str = concat!(
    r#"{"a": 1, "a": {"a": 2,  "a":3}, "zero": -0, "real": -0.0, "ten": 1e2, "TEN": 1E+2, "nul": "\u0000",
	"big": 123456789012345678901234567890, "long": 0.1000000000000000055511151231257827,"#,
    r#" "slash": "\/", "half": "\u00e9"}"#
);
/// The same with half a surrogate pair, which is valid JSON but not valid text.
const HALF: &str = r#"{"value": "\ud800", "value": -0, "pair": "\ud83d\ude00"}"#;

/// An answer that can be stored; one with U+0000 is corrected.
const ANSWER: &str = r#"{"done": 1e2, "done": -0, "big": 123456789012345678901234567890}"#;

fn arguments() -> String {
    format!(r#"{{"value": {ODD}, "value": {ODD}}}"#)
}

/// Answers in odd JSON too, with a character that no text of the database can hold.
fn odd_tool() -> TestTool {
    TestTool::new("odd", ToolEffect::ReadOnly, |_, _, _| Ok(format!("{ODD}\u{0}{HALF}").into()))
}

fn case_of(request: &Captured) -> String {
    let input: Value = serde_json::from_str(&said(request)[1].1).unwrap();
    input["case"].as_str().unwrap().to_owned()
}

fn script(request: &Captured) -> Reply {
    match request.replies() {
        0 => reply_events([
            ev_text(&format!("I pass on {ODD} and {HALF}.")),
            ev_call_raw("c1", "odd", &arguments()),
            ev_call_raw("c2", "odd", HALF),
        ]),
        1 => reply_events([ev_call_raw("c3", "odd", ODD)]),
        2 => reply_text(&format!("not JSON: {ODD}")),
        _ => reply_text(ANSWER),
    }
}

/// Distinct request bodies of a case by turn, with the name of the case taken out.
fn bodies(fleet: &Fleet, case: &str) -> BTreeMap<usize, BTreeSet<Vec<u8>>> {
    let mut bodies: BTreeMap<usize, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for request in fleet.llm.requests().iter().filter(|request| case_of(request) == case) {
        let body = String::from_utf8(request.raw.to_vec()).unwrap().replace(case, "CASE");
        bodies.entry(request.replies()).or_default().insert(body.into_bytes());
    }
    bodies
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_json_is_resent_byte_equal_after_interrupts() {
    let mut fleet = Fleet::start().await;
    for (name, seconds) in [("LEASE", "2"), ("RENEW", "0.5"), ("REAPER_TICK", "0.3"), ("SWEEP_TICK", "0.3")] {
        fleet.set(&format!("LONGHAUL__WORKER__{name}_SECONDS"), seconds);
    }
    fleet.apply(&agent_with(&["odd"]), &definition("d", &["is_valid_json"])).await;
    let worker = |fleet: &Fleet| -> FleetWorker { fleet.worker_with(|builder| builder.tool(odd_tool()).unwrap()) };

    fleet.llm.answer_with(script);
    let first = worker(&fleet);
    let clean = fleet.submit("d", json!({"case": "clean"})).await;
    assert_eq!(fleet.ended(clean).await["status"], "FINISHED");
    first.drain().await;
    let expected = bodies(&fleet, "clean");
    assert_eq!(expected.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);

    // At each turn of the model, one run is killed and another drained.
    for turn in 0..4 {
        for way in ["killed", "drained"] {
            let case = format!("{way}-{turn}");
            let gate = Gate::new();
            let (waits, held) = (gate.clone(), case.clone());
            fleet.llm.answer_with(move |request| match script(request) {
                // The first time only: an open gate holds no request.
                _ if case_of(request) == held && request.replies() == turn && way == "killed" && !waits.is_open() => {
                    reply_events([ev_gate(&waits), ev_text("nobody reads this")])
                }
                reply if case_of(request) == held && request.replies() == turn && way == "drained" => {
                    reply.before(ev_gate(&waits))
                }
                reply => reply,
            });
            let stopped = worker(&fleet);
            let id = fleet.submit("d", json!({"case": case})).await;
            gate.reached().await;
            if way == "killed" {
                stopped.kill().await;
                gate.open();
            } else {
                stopped.begin_drain();
                gate.open();
                stopped.drain().await;
            }
            let next = worker(&fleet);
            let row = fleet.ended(id).await;
            assert_eq!(row["status"], "FINISHED", "{case}: {row}");
            next.drain().await;
            assert_eq!(bodies(&fleet, &case), expected, "{case}");
        }
    }
    // Only requests in flight when a worker was killed were asked twice.
    assert_eq!(fleet.llm.calls().into_values().filter(|&asked| asked > 1).count(), 4);
}
