//! Every row of the validator loop (specification, section 4), through a real worker and a model over HTTP.
//!
//! Rows that need neither are tests of the crates:
//! - texts that parse as JSON and texts that do not: `sdk::answer::tests`, `worker::validators::tests`
//! - the stop validator's order, the empty reason, the cleared scratchpad: `worker::validators::tests`
//! - a response asks for a retry by default: `worker::validators::tests`
//! - the last write of a tool wins in a scratchpad: `sdk::scratchpad::tests`
//!
//! `max_retries` below zero does not exist: the type has no such value.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use longhaul_sdk::{
    Conversation, DefinitionSpec, ExecutionDefinition, ExecutionResult, FailureCode, JsonSchema, Step, ToolEffect,
    Validator, ValidatorResponse, async_trait,
    definition::{Execute, run_validated},
    spec::{FAILURE_SUMMARY_PROMPT, GENERIC_FEEDBACK},
};
use longhaul_testkit::model::{Captured, Reply, reply_calls, reply_status, reply_text};
use serde::Deserialize;
use serde_json::{Value, json};

use super::kit::{TestTool, TestValidator, agent_with, definition, said};
use crate::support::fleet::{Fleet, agent};

/// Runs one execution with these replies. Returns its row and the requests it made.
async fn run(fleet: &Fleet, definition: &str, replies: impl IntoIterator<Item = Reply>) -> (Value, Vec<Captured>) {
    let before = fleet.llm.requests().len();
    replies.into_iter().for_each(|reply| fleet.llm.push(reply));
    let id = fleet.submit(definition, json!({"task": "the original task"})).await;
    let row = fleet.ended(id).await;
    (row, fleet.llm.requests()[before..].to_vec())
}

fn failure(row: &Value) -> Value {
    json!([row["status"], row["failure_class"], row["failure_code"], row["failure_summary"]])
}

#[tokio::test]
async fn three_retries_give_four_answers_and_a_summary() {
    let fleet = Fleet::start().await;
    let validator = TestValidator::new("never", |number, _| ValidatorResponse::retry(format!("wrong {number}")));
    fleet.apply(&agent("a"), &definition("d", &["never"])).await;
    let worker = fleet.worker_with(|builder| builder.validator(validator.clone()).unwrap());
    let replies = ["one", "two", "three", "four", r#"{"not": "validated"}"#].map(reply_text);
    let (row, requests) = run(&fleet, "d", replies).await;
    assert_eq!(failure(&row), json!(["FAILED", "permanent", "max_retries_exceeded", r#"{"not": "validated"}"#]));
    let seen: Vec<String> = validator.seen().into_iter().map(|seen| seen.response).collect();
    assert_eq!(seen, ["one", "two", "three", "four"]);
    // Each request carries the whole conversation verbatim: the original task, every answer, every feedback.
    let user = |text: &str| ("user".to_owned(), text.to_owned());
    let assistant = |text: &str| ("assistant".to_owned(), text.to_owned());
    assert_eq!(
        said(requests.last().unwrap()),
        [
            ("system".to_owned(), "answer in JSON".to_owned()),
            user(r#"{"task":"the original task"}"#),
            assistant("one"),
            user("wrong 0"),
            assistant("two"),
            user("wrong 1"),
            assistant("three"),
            user("wrong 2"),
            assistant("four"),
            user(FAILURE_SUMMARY_PROMPT),
        ]
    );
    assert_eq!(row["attempts"], 1);
    worker.drain().await;
}

#[tokio::test]
async fn no_retries_are_one_answer_and_a_summary_turn() {
    let fleet = Fleet::start().await;
    let spec = DefinitionSpec {
        max_retries: 0,
        failure_summary_prompt: "say why".into(),
        ..definition("d", &["is_valid_json"])
    };
    fleet.apply(&agent("a"), &spec).await;
    let worker = fleet.worker();
    let (row, requests) = run(&fleet, "d", [reply_text("prose"), reply_text("it was prose")]).await;
    assert_eq!(failure(&row), json!(["FAILED", "permanent", "max_retries_exceeded", "it was prose"]));
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].last_text(), "say why");
    worker.drain().await;
}

#[tokio::test]
async fn failed_summary_turn_keeps_the_failure_code() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &DefinitionSpec { max_retries: 0, ..definition("d", &["is_valid_json"]) }).await;
    let worker = fleet.worker();
    for status in [500, 400] {
        let (row, requests) = run(&fleet, "d", [reply_text("prose"), reply_status(status, "no")]).await;
        assert_eq!(failure(&row), json!(["FAILED", "permanent", "max_retries_exceeded", null]), "{status}");
        assert_eq!(row["failure_detail"]["validator"], "is_valid_json");
        assert!(row["failure_detail"]["feedback"].as_str().unwrap().contains("not valid JSON"), "{row}");
        assert_eq!(requests.len(), 2, "{status}");
    }
    worker.drain().await;
}

#[tokio::test]
async fn feedback_is_sent_verbatim_or_as_generic_text() {
    let fleet = Fleet::start().await;
    let empty = ValidatorResponse { feedback: None, ..ValidatorResponse::retry("") };
    for (key, response, expected) in [
        ("verbatim", ValidatorResponse::retry("  Use *euros*.\n\"now\" "), "  Use *euros*.\n\"now\" "),
        ("blank", ValidatorResponse::retry(""), GENERIC_FEEDBACK),
        ("none", empty, GENERIC_FEEDBACK),
        // A failure code is for stops and has no effect on a retry.
        (
            "coded",
            ValidatorResponse { failure_code: Some(FailureCode::CANCELLED), ..ValidatorResponse::retry("again") },
            "again",
        ),
    ] {
        let once = TestValidator::new(
            key,
            move |number, _| {
                if number == 0 { response.clone() } else { ValidatorResponse::success() }
            },
        );
        fleet.apply(&agent("a"), &definition(key, &[key])).await;
        let worker = fleet.worker_with(|builder| builder.validator(once).unwrap());
        let (row, requests) = run(&fleet, key, [reply_text("1"), reply_text("2")]).await;
        assert_eq!((&row["status"], &row["output"]), (&json!("FINISHED"), &json!(2)), "{key}");
        assert_eq!(requests[1].last_text(), expected, "{key}");
        worker.drain().await;
    }
}

#[tokio::test]
async fn only_first_failing_validator_gives_feedback() {
    let fleet = Fleet::start().await;
    let passes = TestValidator::always("passes", ValidatorResponse::success());
    let refuses = TestValidator::new("refuses", |number, _| match number {
        0 => ValidatorResponse::retry("first"),
        _ => ValidatorResponse::success(),
    });
    let later = TestValidator::always("later", ValidatorResponse::success());
    fleet.apply(&agent("a"), &definition("d", &["passes", "refuses", "later"])).await;
    let worker = fleet.worker_with(|builder| {
        let builder = builder.validator(passes.clone()).unwrap().validator(refuses.clone()).unwrap();
        builder.validator(later.clone()).unwrap()
    });
    let (row, requests) = run(&fleet, "d", [reply_text("1"), reply_text("2")]).await;
    assert_eq!(row["output"], 2);
    assert_eq!(requests[1].last_text(), "first");
    assert_eq!([passes.seen().len(), refuses.seen().len(), later.seen().len()], [2, 2, 1]);
    worker.drain().await;
}

#[tokio::test]
async fn stop_ends_run_with_a_declared_code() {
    let fleet = Fleet::start().await;
    let code = |text: &str| Some(FailureCode::custom(text).unwrap());
    for (key, feedback, own, expected) in [
        ("plain", Some("no stock"), None, json!(["FAILED", "permanent", "validation_failed", "no stock"])),
        ("silent", None, None, json!(["FAILED", "permanent", "validation_failed", null])),
        ("empty", Some(""), None, json!(["FAILED", "permanent", "validation_failed", ""])),
        (
            "declared",
            Some("no stock"),
            code("OUT_OF_STOCK"),
            json!(["FAILED", "permanent", "OUT_OF_STOCK", "no stock"]),
        ),
        ("undeclared", None, code("SOMETHING_ELSE"), json!(["FAILED", "permanent", "validation_failed", null])),
    ] {
        let response = ValidatorResponse::stop(feedback.map(str::to_owned), own);
        let spec = DefinitionSpec { failure_codes: vec!["OUT_OF_STOCK".into()], ..definition(key, &[key]) };
        fleet.apply(&agent("a"), &spec).await;
        let worker = fleet.worker_with(|builder| builder.validator(TestValidator::always(key, response)).unwrap());
        let (row, requests) = run(&fleet, key, [reply_text("{}")]).await;
        assert_eq!(failure(&row), expected, "{key}");
        assert_eq!(requests.len(), 1, "{key}");
        worker.drain().await;
    }
}

#[tokio::test]
async fn validator_panic_ends_the_run_permanently() {
    let fleet = Fleet::start().await;
    let panics = TestValidator::new("panics", |_, _| panic!("a bug"));
    fleet.apply(&agent("a"), &definition("d", &["panics"])).await;
    let worker = fleet.worker_with(|builder| builder.validator(panics).unwrap());
    let (row, requests) = run(&fleet, "d", [reply_text("{}")]).await;
    assert_eq!((&row["status"], &row["failure_class"]), (&json!("FAILED"), &json!("permanent")));
    assert_eq!((&row["failure_code"], requests.len()), (&json!("panic"), 1));
    // The panic's message is for the log only.
    assert!(!row["failure_summary"].as_str().unwrap().contains("a bug"));
    worker.drain().await;
}

#[tokio::test]
async fn without_validators_every_answer_counts() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    let worker = fleet.worker();
    for (answer, output) in [
        ("plain words", json!({"response": "plain words"})),
        ("{\"a\": 1}", json!({"a": 1})),
        ("NaN", json!({"response": "NaN"})),
        ("a\0b", json!({"response": "a\u{fffd}b"})),
        ("\"\\u0000\"", json!({"response": "\"\\u0000\""})),
    ] {
        let (row, requests) = run(&fleet, "d", [reply_text(answer)]).await;
        assert_eq!((&row["status"], &row["output"]), (&json!("FINISHED"), &output), "{answer:?}");
        assert_eq!(requests.len(), 1);
    }
    worker.drain().await;
}

#[tokio::test]
async fn any_json_value_finishes_the_run() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    let worker = fleet.worker();
    for (answer, output) in [
        ("{\"a\": [1, {}]}", json!({"a": [1, {}]})),
        ("[]", json!([])),
        ("[1, 2]", json!([1, 2])),
        ("\"\"", json!("")),
        ("\"text\"", json!("text")),
        ("0", json!(0)),
        ("  12\n", json!(12)),
        ("false", json!(false)),
        ("true", json!(true)),
        ("null", Value::Null),
        ("{\"a\": 1, \"a\": 2}", json!({"a": 2})),
        ("\u{feff}{\"a\": 1}", json!({"a": 1})),
        ("```json\n{\"a\": 1}\n```", json!({"a": 1})),
    ] {
        let (row, requests) = run(&fleet, "d", [reply_text(answer)]).await;
        assert_eq!((&row["status"], &row["output"]), (&json!("FINISHED"), &output), "{answer:?}");
        assert!(row["failure_code"].is_null() && requests.len() == 1, "{answer:?}");
    }
    // A null output is stored as a value, not as a missing one.
    let stored: Value = fleet
        .json("select to_jsonb(count(*)) from execution_payloads where output is not null and output::text = 'null'")
        .await;
    assert_eq!(stored, 1);
    worker.drain().await;
}

#[tokio::test]
async fn invalid_or_unstorable_json_is_corrected() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    let worker = fleet.worker();
    let digits = format!("1{}", "0".repeat(5_000));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for answer in [
        "prose",
        "{\"a\": 1} and prose",
        "prose {\"a\": 1}",
        "{'a': 1}",
        "[1,]",
        "{\"a\": 1 /* why */}",
        "NaN",
        "[Infinity]",
        "{\"a\": -Infinity}",
        "\"\\u0000\"",
        "{\"a\\u0000\": 1}",
        "{\"a\": \"raw \0\"}",
        "\"\\ud800\"",
        "1e99999",
        &digits,
        &deep,
    ] {
        let (row, requests) = run(&fleet, "d", [reply_text(answer), reply_text("{\"ok\": 1}")]).await;
        let shown: String = answer.chars().take(40).collect();
        assert_eq!((&row["status"], &row["output"]), (&json!("FINISHED"), &json!({"ok": 1})), "{shown:?}");
        assert_eq!(requests.len(), 2, "{shown:?}");
        assert!(requests[1].last_text().starts_with("The response is not valid JSON ("), "{}", requests[1].last_text());
    }
    worker.drain().await;
}

#[tokio::test]
async fn schema_mismatch_is_corrected_and_validators_get_canonical_json() {
    let fleet = Fleet::start().await;
    let own = TestValidator::always("own", ValidatorResponse::success());
    let spec = DefinitionSpec {
        output_schema: Some(json!({
            "type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]
        })),
        ..definition("d", &["is_valid_json", "own"])
    };
    fleet.apply(&agent("a"), &spec).await;
    let worker = fleet.worker_with(|builder| builder.validator(own.clone()).unwrap());
    let replies =
        [reply_text("[7]"), reply_text("{\"total\": \"seven\"}"), reply_text("```json\n{\n  \"total\" : 7\n}\n```")];
    let (row, requests) = run(&fleet, "d", replies).await;
    assert_eq!((&row["status"], &row["output"]), (&json!("FINISHED"), &json!({"total": 7})));
    assert_eq!(requests.len(), 3);
    assert!(requests[2].last_text().contains("/total"), "{}", requests[2].last_text());
    let seen: Vec<String> = own.seen().into_iter().map(|seen| seen.response).collect();
    assert_eq!(seen, ["{\"total\":7}"]);
    // Schema failures count against the retries as well.
    let wrong = [reply_text("1"), reply_text("2"), reply_text("3"), reply_text("4"), reply_text("could not")];
    let (row, _) = run(&fleet, "d", wrong).await;
    assert_eq!(failure(&row), json!(["FAILED", "permanent", "max_retries_exceeded", "could not"]));
    worker.drain().await;
}

#[tokio::test]
async fn scratchpad_is_cleared_before_every_correction() {
    let fleet = Fleet::start().await;
    let tool = TestTool::recording("note", ToolEffect::ReadOnly);
    let validator = TestValidator::new("pad", |number, _| match number {
        0 => ValidatorResponse::retry("again"),
        _ => ValidatorResponse::success(),
    });
    fleet.apply(&agent_with(&["note"]), &definition("d", &["pad"])).await;
    let worker = fleet.worker_with(|builder| builder.tool(tool.clone()).unwrap().validator(validator.clone()).unwrap());
    // Two calls of one tool: the later one in the reply is kept, whichever ended first.
    let two = [("note", json!({"value": "first"})), ("note", json!({"value": "second"}))];
    let replies = [reply_calls(two), reply_text("1"), reply_text("2")];
    let (row, _) = run(&fleet, "d", replies).await;
    assert_eq!(row["output"], 2);
    let pads: Vec<_> = validator.seen().into_iter().map(|seen| seen.scratchpad).collect();
    assert_eq!(pads, [BTreeMap::from([("note".to_owned(), json!("second"))]), BTreeMap::new()]);
    worker.drain().await;
}

#[tokio::test]
async fn stop_tool_works_only_with_its_validator() {
    let fleet = Fleet::start().await;
    let agent = agent_with(&["stop_execution"]);
    fleet.apply(&agent, &definition("stops", &["stop_execution", "is_valid_json"])).await;
    fleet.apply(&agent, &definition("ignores", &["is_valid_json"])).await;
    let worker = fleet.worker();
    let stop = |reason: &str| reply_calls([("stop_execution", json!({"stop_reason": reason}))]);
    for reason in ["the invoice is unreadable", ""] {
        let (row, requests) = run(&fleet, "stops", [stop(reason), reply_text("not even JSON")]).await;
        assert_eq!(failure(&row), json!(["FAILED", "permanent", "validation_failed", reason]));
        // The call does not end the turn: the model receives its result and answers.
        assert_eq!(requests[1].last_text(), "Execution stop registered.");
        assert_eq!(requests.len(), 2);
    }
    let (row, _) = run(&fleet, "ignores", [stop("no"), reply_text("{}")]).await;
    assert_eq!((&row["status"], &row["output"]), (&json!("FINISHED"), &json!({})));
    // Nor does it affect a summary turn.
    let wrong = ["1x", "2x", "3x", "4x"].map(reply_text);
    let replies = wrong.into_iter().chain([stop("too late"), reply_text("the summary")]);
    let (row, _) = run(&fleet, "stops", replies).await;
    assert_eq!(failure(&row), json!(["FAILED", "permanent", "max_retries_exceeded", "the summary"]));
    worker.drain().await;
}

#[tokio::test]
async fn tool_calls_stay_in_conversation_with_arguments() {
    let fleet = Fleet::start().await;
    let tool = TestTool::recording("note", ToolEffect::ReadOnly);
    fleet.apply(&agent_with(&["note"]), &definition("d", &["is_valid_json"])).await;
    let worker = fleet.worker_with(|builder| builder.tool(tool).unwrap());
    let replies = [reply_calls([("note", json!({"value": 1.5}))]), reply_text("prose"), reply_text("{}")];
    let (row, requests) = run(&fleet, "d", replies).await;
    assert_eq!(row["status"], "FINISHED");
    let roles: Vec<String> = said(&requests[2]).into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "user"]);
    let call = &requests[2].messages()[2]["tool_calls"][0]["function"];
    assert_eq!(call["arguments"], r#"{"value":1.5}"#);
    worker.drain().await;
}

#[tokio::test]
async fn unstorable_tool_name_is_reported_to_the_model() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    let worker = fleet.worker();
    let (row, requests) = run(&fleet, "d", [reply_calls([("no\0such", json!({}))]), reply_text("{}")]).await;
    assert_eq!(row["status"], "FINISHED");
    assert!(requests[1].last_text().contains("there is no tool named"), "{}", requests[1].last_text());
    worker.drain().await;
}

#[tokio::test]
async fn an_agent_that_never_answers_runs_out_of_turns() {
    let fleet = Fleet::start().await;
    let tool = TestTool::recording("note", ToolEffect::ReadOnly);
    let mut agent = agent_with(&["note"]);
    agent.limits.max_turns = 3;
    fleet.apply(&agent, &definition("d", &[])).await;
    let worker = fleet.worker_with(|builder| builder.tool(tool).unwrap());
    let (row, requests) = run(&fleet, "d", (0..3).map(|n| reply_calls([("note", json!({"value": n}))]))).await;
    assert_eq!((&row["failure_class"], &row["failure_code"]), (&json!("permanent"), &json!("max_turns_exceeded")));
    assert_eq!(requests.len(), 3);
    worker.drain().await;
}

#[tokio::test]
async fn the_built_in_definition_runs_an_agent_directly() {
    let fleet = Fleet::start().await;
    fleet.store.put_shared_agent(&agent("a")).await.unwrap();
    let worker = fleet.worker();
    fleet.llm.push(reply_text("{\"left\": \"as text\"}"));
    let id = fleet.submit_directly("a", json!({"prompt": "Say hi."})).await;
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], &row["output"]), (&json!("FINISHED"), &json!({"response": "{\"left\": \"as text\"}"})));
    assert_eq!(said(&fleet.llm.requests()[0])[1], ("user".into(), "Say hi.".into()));
    worker.drain().await;
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Task {
    task: String,
}

/// Wraps each answer, and keeps the scratchpad as it is when the run is over.
struct Wrapping {
    scratchpad: Arc<Mutex<Option<BTreeMap<String, Value>>>>,
    refuses: TestValidator,
}

struct Wrap<'a>(&'a Task);

#[async_trait]
impl Execute for Wrap<'_> {
    async fn execute(&self, conversation: &mut dyn Conversation) -> Step<String> {
        Ok(format!("{}: {}", self.0.task, conversation.ask().await?))
    }
}

#[async_trait]
impl ExecutionDefinition for Wrapping {
    type Input = Task;
    const KEY: &'static str = "wrapping";
    const AGENT_KEY: &'static str = "a";
    const NAME: &'static str = "Wrapping";
    const MAX_RETRIES: u32 = 1;

    fn validators(&self) -> Vec<Arc<dyn Validator>> {
        vec![Arc::new(self.refuses.clone())]
    }

    async fn run(
        &self,
        definition: &DefinitionSpec,
        validators: &[Arc<dyn Validator>],
        input: &Task,
        conversation: &mut dyn Conversation,
    ) -> Step<ExecutionResult> {
        let result = run_validated(definition, validators, &Wrap(input), conversation).await?;
        *self.scratchpad.lock().unwrap() = Some(conversation.scratchpad().snapshot());
        Ok(result)
    }
}

#[tokio::test]
async fn execute_wraps_answers_and_summary_keeps_scratchpad() {
    let fleet = Fleet::start().await;
    let refuses = TestValidator::always("refuses", ValidatorResponse::retry("again"));
    let scratchpad = Arc::default();
    let tool = TestTool::recording("note", ToolEffect::ReadOnly);
    fleet.store.put_shared_agent(&agent_with(&["note"])).await.unwrap();
    let worker = fleet.worker_with(|builder| {
        let definition = Wrapping { scratchpad: Arc::clone(&scratchpad), refuses: refuses.clone() };
        builder.definition(definition).unwrap().tool(tool).unwrap()
    });
    fleet.published("wrapping").await;
    let note = |value: &str| reply_calls([("note", json!({"value": value}))]);
    let replies =
        [note("first"), reply_text("1"), note("second"), reply_text("2"), note("third"), reply_text("in short")];
    let (row, _) = run(&fleet, "wrapping", replies).await;
    assert_eq!(failure(&row), json!(["FAILED", "permanent", "max_retries_exceeded", "in short"]));
    let seen: Vec<_> =
        refuses.seen().into_iter().map(|seen| (seen.response, seen.scratchpad["note"].clone())).collect();
    let task = "the original task";
    assert_eq!(seen, [(format!("{task}: 1"), json!("first")), (format!("{task}: 2"), json!("second"))]);
    let left: Option<BTreeMap<String, Value>> = scratchpad.lock().unwrap().clone();
    assert_eq!(left.unwrap()["note"], "third");
    worker.drain().await;
}
