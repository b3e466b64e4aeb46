//! Calls that start while the reply still streams, and their fate when the stream breaks.

use std::time::Duration;

use longhaul_sdk::{
    AgentSpec,
    spec::{AgentLimits, Launch, ToolRef, ToolSettings},
};
use longhaul_testkit::model::{Ev, Gate, Reply, ev_call_raw, ev_cut, ev_gate, ev_text, reply_events, reply_text};
use serde_json::{Value, json};

use super::kit::{ACT, Run, Stage, WORK, Wire, any_answer, call_of, referring, results_in_order, work};

async fn start(wire: Wire, agent: &AgentSpec, stage: &Stage, replies: impl IntoIterator<Item = Reply>) -> Run {
    Run::start_on(wire.fleet().await, &any_answer(), agent, stage, json!({}), replies).await
}

/// Events that show the call before them to be complete, where the format does not say so itself.
fn next(wire: Wire, name: &str) -> Vec<Ev> {
    if wire == Wire::OpenAi { vec![work(name, json!({}))] } else { Vec::new() }
}

#[tokio::test]
async fn call_starts_before_stream_closes_c01() {
    for wire in Wire::ALL {
        let (stage, rest) = (Stage::default(), Gate::new());
        let mut events = vec![ev_text("I look. "), work("early", json!({}))];
        events.extend(next(wire, "next"));
        events.push(ev_gate(&rest));
        let run = start(wire, &referring(), &stage, [reply_events(events), reply_text("done")]).await;
        // The gate is shut, so the reply cannot have ended.
        stage.ended("early").await;
        assert_eq!((stage.runs("next"), run.fleet.llm.in_flight()), (0, 1), "{wire:?}");
        rest.open();
        run.finished().await;
        assert_eq!(stage.runs("early"), 1, "{wire:?}");
    }
}

#[tokio::test]
async fn side_effect_waits_for_the_stream_to_close_c02() {
    for wire in Wire::ALL {
        let (stage, rest) = (Stage::default(), Gate::new());
        let mut events = vec![call_of(ACT, "effect", json!({})), work("early", json!({}))];
        events.extend(next(wire, "next"));
        events.push(ev_gate(&rest));
        let run = start(wire, &referring(), &stage, [reply_events(events), reply_text("done")]).await;
        // The call behind it was complete later and has run.
        stage.ended("early").await;
        assert_eq!(stage.runs("effect"), 0, "{wire:?}");
        rest.open();
        run.finished().await;
        assert_eq!(stage.runs("effect"), 1, "{wire:?}");
    }
}

#[tokio::test]
async fn launch_of_a_tool_overrides_its_effect() {
    let (stage, rest) = (Stage::default(), Gate::new());
    let launched = |name: &str, launch| {
        let settings = json!({ "name": name, "launch": launch });
        ToolRef::WithSettings(serde_json::from_value::<ToolSettings>(settings).unwrap())
    };
    let tools = vec![launched(WORK, Launch::OnClose), launched(ACT, Launch::Eager)];
    let agent = AgentSpec { tools, ..referring() };
    let reply = reply_events([
        work("look", json!({})),
        call_of(ACT, "effect", json!({})),
        work("next", json!({})),
        ev_gate(&rest),
    ]);
    let run = start(Wire::OpenAi, &agent, &stage, [reply, reply_text("done")]).await;
    stage.ended("effect").await;
    assert_eq!(stage.runs("look"), 0);
    rest.open();
    run.finished().await;
    assert_eq!((stage.runs("look"), stage.runs("effect")), (1, 1));
}

#[tokio::test]
async fn independent_calls_of_one_reply_overlap_c03() {
    let stage = Stage::default().hold("one").hold("two").hold("effect");
    let calls = [work("one", json!({})), work("two", json!({})), call_of(ACT, "effect", json!({}))];
    let run = start(Wire::OpenAi, &referring(), &stage, [reply_events(calls), reply_text("done")]).await;
    for call in ["one", "two", "effect"] {
        stage.started(call).await;
    }
    for call in ["one", "two", "effect"] {
        stage.release(call);
    }
    run.finished().await;
}

#[tokio::test]
async fn calls_beyond_run_or_tool_limit_wait() {
    for (limits, concurrency) in [(1, None), (16, Some(1))] {
        let stage = Stage::default().hold("one");
        let tool = json!({ "name": WORK, "concurrency": concurrency });
        let tools = vec![ToolRef::WithSettings(serde_json::from_value(tool).unwrap()), ToolRef::Name(ACT.into())];
        let limits = AgentLimits { max_parallel_calls: limits, ..AgentLimits::default() };
        let agent = AgentSpec { tools, limits, ..referring() };
        let calls = [work("one", json!({})), work("two", json!({})), call_of(ACT, "effect", json!({}))];
        let run = start(Wire::OpenAi, &agent, &stage, [reply_events(calls), reply_text("done")]).await;
        stage.started("one").await;
        if concurrency.is_some() {
            // The limit is the tool's, not the run's.
            stage.ended("effect").await;
        }
        stage.release("one");
        run.finished().await;
        stage.assert_before("-one", "+two");
    }
}

#[tokio::test]
async fn chat_completions_call_completes_when_next_begins_c04() {
    let (stage, second, finish) = (Stage::default(), Gate::new(), Gate::new());
    let reply = reply_events([work("first", json!({})), ev_gate(&second), work("second", json!({})), ev_gate(&finish)]);
    let run = start(Wire::OpenAi, &referring(), &stage, [reply, reply_text("done")]).await;
    second.reached().await;
    assert_eq!(stage.runs("first"), 0);
    second.open();
    stage.ended("first").await;
    assert_eq!(stage.runs("second"), 0);
    finish.open();
    run.finished().await;
    assert_eq!(stage.runs("second"), 1);
}

#[tokio::test]
async fn empty_argument_text_is_no_arguments_c05() {
    for wire in Wire::ALL {
        let stage = Stage::default();
        let reply = reply_events([ev_call_raw("bare", "note", "")]);
        let mut agent = referring();
        agent.tools.push(ToolRef::Name("note".into()));
        let fleet = wire.fleet().await;
        fleet.apply(&agent, &any_answer()).await;
        [reply, reply_text("done")].into_iter().for_each(|reply| fleet.llm.push(reply));
        let note = crate::worker::kit::TestTool::new("note", longhaul_sdk::ToolEffect::ReadOnly, |_, value, _| {
            Ok(format!("given {value}").into())
        });
        let worker = fleet.worker_with(|builder| stage.tools(builder).tool(note.clone()).unwrap());
        let id = fleet.submit("d", json!({})).await;
        assert_eq!(fleet.ended(id).await["status"], "FINISHED");
        let told = results_in_order(&fleet.llm.requests()[1]);
        assert_eq!(told, [("bare".to_owned(), "given null".to_owned())], "{wire:?}");
        worker.drain().await;
    }
}

#[tokio::test]
async fn characters_split_over_chunks_survive_c06() {
    let text = "é€😀 \u{7} \"quoted\" \\ ü";
    for wire in Wire::ALL {
        for size in [1, 3, 7] {
            let stage = Stage::default();
            let reply = reply_events([ev_text("é€😀"), work("odd", json!({ "value": text }))]).chunks_of(size);
            let run = start(wire, &referring(), &stage, [reply, reply_text("done")]).await;
            run.finished().await;
            assert_eq!(stage.arguments("odd")["value"], text, "{wire:?} in pieces of {size}");
        }
    }
}

#[tokio::test]
async fn broken_stream_after_a_launch_continues_c07() {
    for wire in Wire::ALL {
        let (stage, break_off) = (Stage::default(), Gate::new());
        let broken = reply_events([
            ev_text("I look. "),
            call_of(ACT, "effect", json!({})),
            work("early", json!({})),
            // In OpenAI's format its arguments are not complete yet.
            work("open", json!({})),
            ev_gate(&break_off),
            ev_cut(),
        ]);
        let run = start(wire, &referring(), &stage, [broken, reply_text("done")]).await;
        stage.ended("early").await;
        break_off.open();
        let row = run.finished().await;
        assert_eq!((&row["attempts"], &row["retries"], &row["turns"]), (&json!(1), &json!(0), &json!(2)), "{wire:?}");
        // Complete calls ran, once each; the broken request was not repeated.
        let requests = run.fleet.llm.requests();
        assert_eq!(requests.len(), 2, "{wire:?}");
        assert!(run.fleet.llm.calls().values().all(|&count| count == 1), "{wire:?}");
        let expected = if wire == Wire::OpenAi { vec!["effect", "early"] } else { vec!["effect", "early", "open"] };
        let told: Vec<String> = results_in_order(&requests[1]).into_iter().map(|(id, _)| id).collect();
        assert_eq!(told, expected, "{wire:?}");
        for call in expected {
            assert_eq!(stage.runs(call), 1, "{wire:?}: {call}");
        }
    }
}

#[tokio::test]
async fn broken_stream_before_any_launch_is_retried_c08() {
    for wire in Wire::ALL {
        let stage = Stage::default();
        // A side effect is not launched before the reply is whole, even if its call is complete.
        let broken = reply_events([call_of(ACT, "first", json!({})), call_of(ACT, "second", json!({})), ev_cut()]);
        let again = reply_events([call_of(ACT, "again", json!({}))]);
        let run = start(wire, &referring(), &stage, [broken, again, reply_text("done")]).await;
        let waits = |row: &Value| row["wait_reason"] == "retry_backoff";
        run.fleet.until(run.id, "the retry waits", waits).await;
        run.fleet.advance(Duration::from_secs(11)).await;
        let row = run.finished().await;
        assert_eq!((&row["attempts"], &row["retries"]), (&json!(2), &json!(1)), "{wire:?}");
        assert_eq!((stage.runs("first"), stage.runs("again")), (0, 1), "{wire:?}");
        let requests = run.fleet.llm.requests();
        assert_eq!(requests[0].raw, requests[1].raw, "{wire:?}");
        assert_eq!(requests[0].idempotency_key, requests[1].idempotency_key, "{wire:?}");
    }
}
