//! Errors of calls reach the model when the tick closes, with the call as it wrote it.

use longhaul_sdk::{
    AgentSpec,
    spec::{AgentLimits, ToolRef},
};
use longhaul_store::history::ledger::EffectState;
use longhaul_testkit::model::{ev_call, ev_call_raw, reply_events, reply_text};
use serde_json::{Value, json};

use super::kit::{ACT, Run, Stage, WORK, Wire, any_answer, call_of, ledger, referring, results_in_order, work};

#[tokio::test]
async fn bad_parameters_prevent_the_call_and_are_shown_c26() {
    let stage = Stage::default();
    let reply = reply_events([
        work("unfit", json!({"n": "three"})),
        ev_call_raw("broken", WORK, "{\"call\": \"broken\", "),
        work("extra", json!({"colour": "red"})),
    ]);
    let run = Run::start(&referring(), &stage, json!({}), [reply]).await;
    run.finished().await;
    let told = run.told(1);
    for call in ["unfit", "broken", "extra"] {
        assert_eq!((told.error(call).as_deref(), stage.runs(call)), (Some("structural"), 0), "{}", told.text(call));
    }
    let shown = json!({"_tool": WORK, "arguments": {"call": "unfit", "n": "three"}});
    assert_eq!(told.value("unfit")["call"], shown);
    assert_eq!(told.value("unfit")["error"]["details"]["violations"][0]["path"], "/n");
    assert_eq!(told.value("broken")["call"]["arguments"], "{\"call\": \"broken\", ");
}

#[tokio::test]
async fn type_mismatch_after_substitution_names_its_source_c27() {
    let stage = Stage::default();
    let reply = reply_events([
        work("writer", json!({"value": "three", "_outputPath": "†state.n"})),
        work("reader", json!({"n": "†state.n"})),
    ]);
    let run = Run::start(&referring(), &stage, json!({}), [reply]).await;
    run.finished().await;
    let told = run.told(1);
    assert_eq!((told.error("reader").as_deref(), stage.runs("reader")), (Some("structural"), 0));
    let error = &told.value("reader")["error"];
    assert!(error["message"].as_str().unwrap().contains("†state.n"), "{error}");
    assert_eq!(error["details"]["violations"][0]["source"], "†state.n");
    // The model is shown the call with its reference unresolved.
    assert_eq!(told.value("reader")["call"]["arguments"]["n"], "†state.n");
}

#[tokio::test]
async fn panic_failure_or_timeout_leaves_siblings_alone_c28() {
    let stage = Stage::default().panics("bad").fails("poor", "no line").hold("stuck");
    let mut agent = referring();
    let hangs = json!({"name": ACT, "timeout_seconds": 1});
    agent.tools = vec![ToolRef::Name(WORK.into()), ToolRef::WithSettings(serde_json::from_value(hangs).unwrap())];
    let reply = reply_events([
        work("bad", json!({})),
        work("poor", json!({})),
        call_of(ACT, "stuck", json!({})),
        work("fine", json!({"value": 1})),
    ]);
    let run = Run::start(&agent, &stage, json!({}), [reply]).await;
    let row = run.finished().await;
    assert_eq!(row["attempts"], 1);
    let told = run.told(1);
    let errors = ["bad", "poor", "stuck", "fine"].map(|call| told.error(call));
    let expected = [Some("runtime"), Some("runtime"), Some("timeout"), None].map(|error| error.map(str::to_owned));
    assert_eq!(errors, expected);
    assert_eq!(told.message("poor"), "no line");
    let unknown = [(ACT.to_owned(), EffectState::Unknown)];
    assert_eq!(ledger(&run.fleet, run.id).await, unknown, "who took too long may have done it");
    assert!(!told.text("bad").contains("as the test says"), "{}", told.text("bad"));
    assert_eq!(told.value("fine"), json!(1));
}

#[tokio::test]
async fn errors_reach_the_model_together_at_tick_close_c29() {
    let stage = Stage::default().fails("late", "last to fail").fails("early", "first to fail").hold("late");
    let reply = reply_events([work("late", json!({})), work("early", json!({})), work("unfit", json!({"n": "x"}))]);
    let run = Run::start(&referring(), &stage, json!({}), [reply]).await;
    stage.ended("early").await;
    stage.started("late").await;
    assert_eq!(run.fleet.llm.requests().len(), 1);
    stage.release("late");
    run.finished().await;
    // In the order of the calls, whichever failed first.
    let told = results_in_order(&run.fleet.llm.requests()[1]);
    let ids: Vec<&str> = told.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["late", "early", "unfit"]);
    assert!(told.iter().all(|(_, text)| text.starts_with("{\"error\":") || text.contains("\"error\"")), "{told:?}");
}

#[tokio::test]
async fn corrected_error_stays_on_record_c30() {
    let stage = Stage::default();
    let wrong = reply_events([work("wrong", json!({"n": "x"}))]);
    let right = reply_events([work("right", json!({"n": 1}))]);
    let run = Run::start(&referring(), &stage, json!({}), [wrong, right]).await;
    run.finished().await;
    let told = run.told(2);
    assert_eq!((told.error("wrong").as_deref(), told.error("right")), (Some("structural"), None));
    let outcomes: Vec<Value> = run.events("call").await.into_iter().map(|event| event["outcome"].clone()).collect();
    assert_eq!(outcomes, [json!("structural"), json!("ok")]);
}

#[tokio::test]
async fn unknown_tool_is_an_error_not_latent_c31() {
    let stage = Stage::default();
    let output = json!({"_output": "made up", "_outputPath": "†state.x"});
    let reply = reply_events([ev_call("ghost", "guess", &output), work("reader", json!({"value": "†state.x"}))]);
    let run = Run::start(&referring(), &stage, json!({}), [reply]).await;
    run.finished().await;
    let told = run.told(1);
    assert_eq!(told.error("ghost").as_deref(), Some("structural"));
    assert!(told.message("ghost").contains("there is no tool named `guess`"), "{}", told.text("ghost"));
    assert_eq!(told.value("ghost")["error"]["details"]["known_tools"], json!(["work", "put", "act"]));
    // A reader of the path that it claims to write is told the cause.
    assert_eq!(told.error("reader").as_deref(), Some("dependency_failed"));
    assert_eq!(told.value("reader")["error"]["details"]["cause"]["id"], "ghost");
}

#[tokio::test]
async fn every_call_has_one_result_in_order_c32() {
    for wire in Wire::ALL {
        let stage = Stage::default().fails("fails", "no").answers_at("check", "1", "†state.good");
        let limits = AgentLimits { max_calls_per_turn: 12, ..AgentLimits::default() };
        let agent = AgentSpec { limits, conditions: true, ..referring() };
        let reply = reply_events([
            work("reads", json!({"value": "†state.w"})),
            work("writes", json!({"value": 1, "_outputPath": "†state.w"})),
            work("fails", json!({"_outputPath": "†state.f"})),
            work("depends", json!({"value": "†state.f"})),
            work("cycle", json!({"value": "†state.c", "_outputPath": "†state.c"})),
            work("nobody", json!({"value": "†state.nobody"})),
            work("check", json!({"_outputPath": "†state.bad || †state.good"})),
            work("untaken", json!({"value": "†state.bad"})),
            work("held", json!({"_when": "†state.w > 1"})),
            work("unfit", json!({"n": "x"})),
            ev_call("unknown", "nothing", &json!({})),
            call_of(ACT, "effect", json!({})),
            work("too_many", json!({})),
        ]);
        let fleet = wire.fleet().await;
        let run = Run::start_on(fleet, &any_answer(), &agent, &stage, json!({}), [reply, reply_text("done")]).await;
        run.finished().await;
        let told = results_in_order(&run.fleet.llm.requests()[1]);
        let ids: Vec<&str> = told.iter().map(|(id, _)| id.as_str()).collect();
        let expected = [
            "reads", "writes", "fails", "depends", "cycle", "nobody", "check", "untaken", "held", "unfit", "unknown",
            "effect", "too_many",
        ];
        assert_eq!(ids, expected, "{wire:?}");
        let by_id = run.told(1);
        let fates = expected.map(|id| by_id.error(id).unwrap_or_else(|| "-".into()));
        let wanted = [
            "-",
            "-",
            "runtime",
            "dependency_failed",
            "cycle",
            "unresolved_reference",
            "-",
            "-",
            "-",
            "structural",
            "structural",
            "-",
            "structural",
        ];
        assert_eq!(fates, wanted, "{wire:?}");
        assert_eq!(by_id.value("untaken")["status"], "skipped_branch");
        assert_eq!(by_id.value("held")["status"], "held_condition");
        // The record holds one result for each, too.
        let recorded = run.recorded_calls().await;
        assert_eq!(recorded, i64::try_from(expected.len()).unwrap(), "{wire:?}");
    }
}
