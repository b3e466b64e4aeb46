//! End of a run: by the presence of its output, after the calls beside it, and by its limits.

use longhaul_sdk::{
    AgentSpec, DefinitionSpec, ValidatorResponse,
    spec::{AgentLimits, OutputMode, ValidatorRef},
};
use longhaul_testkit::model::{Captured, Ev, Reply, ev_call, ev_text, reply_calls, reply_events, reply_text};
use serde_json::{Value, json};

use super::kit::{
    ACT, Run, Stage, WORK, Wire, any_answer, call_of, referring, results_in_order, with_output_schema, work,
};
use crate::{support::fleet::Fleet, worker::kit::TestValidator};

const SUBMIT: &str = "submit_output";

fn submit(id: &str, output: Value) -> Ev {
    ev_call(id, SUBMIT, &json!({ "output": output }))
}

/// A definition with an output schema and without validators.
fn answering(schema: Value) -> DefinitionSpec {
    DefinitionSpec { output_schema: Some(schema), validators: Vec::new(), ..DefinitionSpec::new("d", "a") }
}

fn choice(request: &Captured) -> &Value {
    &request.body["tool_choice"]
}

#[tokio::test]
async fn calls_without_output_are_followed_by_another_request_c33() {
    let stage = Stage::default();
    let replies = [
        reply_events([ev_text("Let me look."), work("one", json!({}))]),
        reply_events([work("two", json!({}))]),
        reply_events([submit("out", json!({"done": true}))]),
    ];
    let run = Run::start_as(&with_output_schema(), &referring(), &stage, json!({}), replies).await;
    let row = run.finished().await;
    // Text beside calls is a remark, not the output.
    assert_eq!((&row["output"], &row["turns"]), (&json!({"done": true}), &json!(3)));
}

#[tokio::test]
async fn calls_beside_the_output_run_before_the_end_c34() {
    for wire in Wire::ALL {
        let stage = Stage::default().hold("effect");
        let reply = reply_events([
            submit("out", json!({"sum": "†state.sum"})),
            call_of(ACT, "effect", json!({"value": 5, "_outputPath": "†state.sum"})),
            work("unrelated", json!({"n": "x"})),
        ]);
        let run =
            Run::start_on(wire.fleet().await, &answering(json!({})), &referring(), &stage, json!({}), [reply]).await;
        stage.started("effect").await;
        assert_eq!(run.fleet.row(run.id).await["status"], "IN_PROGRESS", "{wire:?}");
        stage.release("effect");
        let row = run.finished().await;
        // The output reads a result of its own reply, and an unrelated failure does not reject it.
        assert_eq!((&row["output"], &row["turns"]), (&json!({"sum": 5}), &json!(1)), "{wire:?}");
        assert_eq!(run.recorded_calls().await, 2, "{wire:?}");
    }
}

#[tokio::test]
async fn output_exists_whatever_its_value_c35() {
    for output in [json!(0), json!(""), json!(false), json!({}), json!([]), Value::Null] {
        let stage = Stage::default();
        let replies = [reply_events([submit("out", output.clone())])];
        let run = Run::start_as(&answering(json!({})), &referring(), &stage, json!({}), replies).await;
        assert_eq!(run.finished().await["output"], output);
    }
    // A missing argument is no output.
    let missing = reply_events([ev_call("none", SUBMIT, &json!({}))]);
    let replies = [missing, reply_events([submit("out", json!(0))])];
    let run = Run::start_as(&answering(json!({})), &referring(), &Stage::default(), json!({}), replies).await;
    assert_eq!(run.finished().await["output"], json!(0));
    assert_eq!(run.told(1).error("none").as_deref(), Some("structural"));
}

#[tokio::test]
async fn empty_reply_is_asked_again_within_bounds_c36() {
    for wire in Wire::ALL {
        let (stage, fleet) = (Stage::default(), wire.fleet().await);
        let replies = [reply_text(""), reply_events([work("one", json!({}))]), reply_text(""), reply_text("done")];
        let run = Run::start_on(fleet, &any_answer(), &referring(), &stage, json!({}), replies).await;
        let row = run.finished().await;
        // An empty reply is a turn, and two apart are not two in a row.
        assert_eq!((&row["turns"], &row["retries"]), (&json!(4), &json!(0)), "{wire:?}");
        assert!(run.fleet.llm.requests()[1].last_text().contains("Your reply was empty"), "{wire:?}");

        [reply_text(""), reply_text(" "), reply_text("done")].into_iter().for_each(|reply| run.fleet.llm.push(reply));
        let id = run.fleet.submit("d", json!({})).await;
        run.fleet.until(id, "the retry waits", |row| row["wait_reason"] == "retry_backoff").await;
        run.fleet.advance(std::time::Duration::from_secs(11)).await;
        let row = run.fleet.ended(id).await;
        assert_eq!((&row["status"], &row["retries"]), (&json!("FINISHED"), &json!(1)), "{wire:?}: {row}");
        let kinds = run.fleet.steps(id).await;
        let turns: Vec<&str> =
            kinds.iter().filter(|(kind, _)| kind == "turn").map(|(_, state)| state.as_str()).collect();
        assert_eq!(turns, ["live", "spent", "live"], "{wire:?}");
    }
}

#[tokio::test]
async fn schema_violation_is_corrected_as_call_result_c37() {
    for wire in Wire::ALL {
        let stage = Stage::default();
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let replies = [
            reply_events([work("look", json!({})), submit("bad", json!({"n": "x"})), work("after", json!({}))]),
            reply_events([submit("good", json!({"n": 1}))]),
        ];
        let fleet = wire.fleet().await;
        let run = Run::start_on(fleet, &answering(schema), &referring(), &stage, json!({}), replies).await;
        assert_eq!(run.finished().await["output"], json!({"n": 1}), "{wire:?}");
        // The correction is in its place among the results, and no message was added.
        let told = results_in_order(&run.fleet.llm.requests()[1]);
        let ids: Vec<&str> = told.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["look", "bad", "after"], "{wire:?}");
        assert!(told[1].1.contains("does not satisfy the required JSON schema"), "{wire:?}: {told:?}");
        assert_eq!(run.events("correction").await.len(), 1, "{wire:?}");
    }
}

#[tokio::test]
async fn output_refusals_count_as_corrections() {
    let schema = json!({"type": "integer"});
    let definition = DefinitionSpec { max_retries: 1, ..answering(schema) };
    let replies = [
        reply_events([submit("first", json!("x"))]),
        reply_events([submit("second", json!("y"))]),
        reply_text("it could not be done"),
    ];
    let fleet = Fleet::start().await;
    let run = Run::start_on(fleet, &definition, &referring(), &Stage::default(), json!({}), replies).await;
    let row = run.fleet.ended(run.id).await;
    assert_eq!(
        (&row["failure_code"], &row["failure_summary"]),
        (&json!("max_retries_exceeded"), &json!("it could not be done"))
    );
    let told = run.told(2);
    assert!(told.text("second").contains("does not satisfy"), "{}", told.text("second"));
}

#[tokio::test]
async fn validators_see_the_canonical_output() {
    let seen = TestValidator::always("seen", ValidatorResponse::success());
    let definition = DefinitionSpec { validators: vec![ValidatorRef::Name("seen".into())], ..answering(json!({})) };
    let fleet = Fleet::start().await;
    fleet.apply(&AgentSpec { tools: Vec::new(), ..referring() }, &definition).await;
    fleet.llm.push(reply_events([submit("out", json!({"b": 1, "a": [true]}))]));
    let id = fleet.submit("d", json!({})).await;
    let worker = fleet.worker_with(|builder| builder.validator(seen.clone()).unwrap());
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let seen: Vec<Value> = seen.seen().iter().map(|seen| serde_json::from_str(&seen.response).unwrap()).collect();
    assert_eq!(seen, [json!({"b": 1, "a": [true]})]);
    worker.drain().await;
}

#[tokio::test]
async fn output_that_reads_a_failed_call_is_refused_c38() {
    let stage = Stage::default().fails("source", "no such customer");
    let replies = [
        reply_events([work("source", json!({"_outputPath": "†state.x"})), submit("first", json!("†state.x"))]),
        reply_events([submit("second", json!("known"))]),
    ];
    let run = Run::start_as(&answering(json!({})), &referring(), &stage, json!({}), replies).await;
    assert_eq!(run.finished().await["output"], "known");
    let told = run.told(1);
    assert_eq!(told.error("first").as_deref(), Some("dependency_failed"));
    assert_eq!(told.value("first")["error"]["details"]["cause"]["id"], "source");
    // No validator ran, so it is no correction.
    assert!(run.events("correction").await.is_empty());
}

#[tokio::test]
async fn last_of_two_outputs_counts() {
    let replies = [
        reply_events([submit("first", json!(1)), submit("second", json!("x"))]),
        reply_events([submit("third", json!(3))]),
    ];
    let schema = json!({"type": "integer"});
    let run = Run::start_as(&answering(schema), &referring(), &Stage::default(), json!({}), replies).await;
    assert_eq!(run.finished().await["output"], 3);
    let told = run.told(1);
    assert_eq!(told.value("first")["status"], "superseded");
    assert!(told.text("second").contains("does not satisfy"), "{}", told.text("second"));
}

#[tokio::test]
async fn last_turn_offers_only_output_then_run_fails_c39() {
    for has_schema in [true, false] {
        let agent = AgentSpec { limits: AgentLimits { max_turns: 3, ..AgentLimits::default() }, ..referring() };
        let definition = if has_schema { answering(json!({})) } else { any_answer() };
        let stage = Stage::default();
        let replies =
            (0..3).map(|turn| reply_events([work(&format!("call{turn}"), json!({}))])).collect::<Vec<Reply>>();
        let run = Run::start_as(&definition, &agent, &stage, json!({}), replies).await;
        let row = run.fleet.ended(run.id).await;
        assert_eq!((&row["failure_class"], &row["failure_code"]), (&json!("permanent"), &json!("max_turns_exceeded")));
        let requests = run.fleet.llm.requests();
        assert_eq!(requests.len(), 3);
        let noticed: Vec<bool> =
            requests.iter().map(|request| request.last_text().contains("turn before the last")).collect();
        assert_eq!(noticed, [false, true, false]);
        if has_schema {
            assert_eq!((requests[1].tools().len(), requests[2].tools()), (4, vec![SUBMIT]));
        } else {
            // A transcript with calls needs its tools; none may be called.
            assert_eq!(requests[1].tools(), requests[2].tools());
            assert_eq!((choice(&requests[1]), choice(&requests[2])), (&Value::Null, &json!("none")));
        }
        // Calls of the last reply do not run.
        assert_eq!((stage.runs("call1"), stage.runs("call2")), (1, 0));
        let detail: Value =
            sqlx::query_scalar("select failure_detail::jsonb from execution_payloads where execution_id = $1")
                .bind(run.id.0)
                .fetch_one(&run.fleet.db.pool)
                .await
                .unwrap();
        let spent = json!({"turns": 3, "calls": 3, "input_tokens": 33, "output_tokens": 21, "last_calls": [WORK]});
        assert_eq!(detail, json!({"cap": "max_turns", "limit": 3, "spent": spent}));
    }
}

#[tokio::test]
async fn last_turn_may_still_answer() {
    let agent = AgentSpec { limits: AgentLimits { max_turns: 2, ..AgentLimits::default() }, ..referring() };
    let replies = [reply_events([work("look", json!({}))]), reply_events([submit("out", json!(1))])];
    let run = Run::start_as(&answering(json!({})), &agent, &Stage::default(), json!({}), replies).await;
    assert_eq!(run.finished().await["output"], 1);
}

#[tokio::test]
async fn fifth_repeat_of_a_failing_call_ends_run() {
    let stage = Stage::default();
    let replies: Vec<Reply> = (0..5).map(|_| reply_calls([(WORK, json!({"call": "again", "n": "x"}))])).collect();
    let run = Run::start(&referring(), &stage, json!({}), replies).await;
    let row = run.fleet.ended(run.id).await;
    assert_eq!((&row["failure_class"], &row["failure_code"]), (&json!("permanent"), &json!("repeated_call")));
    let requests = run.fleet.llm.requests();
    let noticed: Vec<bool> =
        requests.iter().map(|request| request.last_text().contains("has failed 3 times")).collect();
    assert_eq!(noticed, [false, false, false, true, false]);
}

#[tokio::test]
async fn calls_with_different_reads_are_no_repeats() {
    let stage = Stage::default();
    let mut replies = Vec::new();
    for round in 0..5 {
        let text = format!("x{round}");
        replies.push(reply_events([
            work(&format!("w{round}"), json!({"value": text, "_outputPath": "†state.n"})),
            ev_call(&format!("r{round}"), WORK, &json!({"call": "r", "n": "†state.n"})),
        ]));
    }
    let run = Run::start(&referring(), &stage, json!({}), replies).await;
    run.finished().await;
}

#[tokio::test]
async fn native_output_mode_requests_structured_output() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let mut agent = referring();
    agent.model.output = OutputMode::Native;
    let replies = [reply_text(r#"{"n": "x"}"#), reply_text(r#"{"n": 1}"#)];
    let run = Run::start_as(&answering(schema.clone()), &agent, &Stage::default(), json!({}), replies).await;
    // The provider's structured output is checked all the same.
    assert_eq!(run.finished().await["output"], json!({"n": 1}));
    let requests = run.fleet.llm.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].body["response_format"]["json_schema"]["schema"], schema);
    assert!(!requests[0].tools().contains(&SUBMIT));
    assert!(requests[1].last_text().contains("does not satisfy"));
}

#[tokio::test]
async fn answer_in_plain_text_is_taken_as_the_output() {
    let replies = [reply_text(r#"{"n": 1}"#)];
    let run =
        Run::start_as(&answering(json!({"type": "object"})), &referring(), &Stage::default(), json!({}), replies).await;
    assert_eq!(run.finished().await["output"], json!({"n": 1}));
}
