//! The specification's tables on validators, the stop tool and the scratchpad, row by row.

use std::sync::Arc;

use longhaul_guards::json_schema::SchemaCache;
use longhaul_sdk::{
    DefinitionSpec, FailureCode, IsValidJson, ToolScratchpad, Validation, Validator, ValidatorResponse, answer,
    async_trait,
    spec::{ValidatorRef, ValidatorSettings},
};
use longhaul_tools::STOP_EXECUTION;
use serde_json::{Value, json};

use super::*;

fn registry() -> ValidatorRegistry {
    ValidatorRegistry::with_builtin(SchemaCache::default())
}

fn validation<'a>(response: &'a str, scratchpad: &'a ToolScratchpad) -> Validation<'a> {
    Validation { response, input: &Value::Null, scratchpad, output_schema: None }
}

async fn judge(validator: &dyn Validator, response: &str) -> ValidatorResponse {
    validator.validate(validation(response, &ToolScratchpad::default())).await
}

fn definition(validators: &[&str], output_schema: Option<Value>) -> DefinitionSpec {
    let mut spec = DefinitionSpec::new("d", "a");
    spec.validators = validators.iter().map(|name| ValidatorRef::Name((*name).into())).collect();
    spec.output_schema = output_schema;
    spec
}

fn names(validators: &[Arc<dyn Validator>]) -> Vec<&str> {
    validators.iter().map(|validator| validator.name()).collect()
}

// is_valid_json

#[tokio::test]
async fn json_value_passes_fenced_or_with_bom() {
    for response in [
        "{}",
        "[1, 2]",
        "\"str\"",
        "  12\n",
        "true",
        "null",
        "-0.0",
        "1e2",
        "```json\n{\"a\": 1}\n```",
        "```\n[]\n```",
        "\u{feff}{}",
        "{\"a\":1,\"a\":2}",
    ] {
        assert_eq!(judge(&IsValidJson, response).await, ValidatorResponse::success(), "{response}");
    }
    assert_eq!(answer::output("{\"a\":1,\"a\":2}"), json!({"a": 2}), "of a repeated key the last value counts");
}

#[tokio::test]
async fn invalid_or_unstorable_json_asks_for_correction() {
    let huge = "1".repeat(4_301);
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    for response in [
        "NaN",
        "Infinity",
        "-Infinity",
        "{\"a\": [NaN]}",
        "\"\\u0000\"",
        "{\"\\u0000\": 1}",
        "\"\\ud800\"",
        &huge,
        &deep,
        "{\"a\": 1} as you asked",
        "Here you are: {\"a\": 1}",
        "",
        " \n",
        "{'a': 1}",
        "[1,]",
        "{\"a\": 1,}",
        "// c\n{}",
        "{a: 1}",
        "```json\n{}\n``` done",
    ] {
        let verdict = judge(&IsValidJson, response).await;
        let shown = &response[..response.len().min(40)];
        assert!(!verdict.validation_successful && verdict.retry_needed, "{shown}");
        assert!(verdict.feedback.unwrap().starts_with("The response is not valid JSON"), "{shown}");
        assert_eq!(verdict.failure_code, None, "{shown}");
    }
}

// stop_execution

#[tokio::test]
async fn recorded_stop_reason_fails_without_retry() {
    for reason in ["no customer number", ""] {
        let pad = ToolScratchpad::default();
        pad.record(STOP_EXECUTION, reason);
        let verdict = StopExecutionValidator.validate(validation("{}", &pad)).await;
        assert_eq!(verdict, ValidatorResponse::stop(Some(reason.into()), None));
        assert!(!verdict.retry_needed);
    }
}

#[tokio::test]
async fn answer_passes_without_recorded_stop_reason() {
    let pad = ToolScratchpad::default();
    assert!(StopExecutionValidator.validate(validation("x", &pad)).await.validation_successful);
    pad.record(STOP_EXECUTION, "r");
    pad.clear();
    assert!(StopExecutionValidator.validate(validation("x", &pad)).await.validation_successful);
}

#[tokio::test]
async fn stop_validator_wins_only_if_listed_first() {
    let pad = ToolScratchpad::default();
    pad.record(STOP_EXECUTION, "enough");
    for (order, expected) in [
        (["stop_execution", "is_valid_json"], "stop_execution"),
        (["is_valid_json", "stop_execution"], "is_valid_json"),
    ] {
        let validators = effective_validators(&definition(&order, None), &registry()).unwrap();
        let failed = first_failure(&validators, validation("not json", &pad)).await.unwrap();
        assert_eq!(failed.validator, expected);
    }
}

#[tokio::test]
async fn stop_call_is_ignored_without_stop_validator() {
    let pad = ToolScratchpad::default();
    pad.record(STOP_EXECUTION, "enough");
    let validators = effective_validators(&DefinitionSpec::new("d", "a"), &registry()).unwrap();
    assert_eq!(names(&validators), ["is_valid_json"], "the default list");
    assert_eq!(first_failure(&validators, validation("{}", &pad)).await, None);
}

// The scratchpad

#[test]
fn last_scratchpad_write_of_a_tool_wins() {
    let pad = ToolScratchpad::default();
    assert_eq!(pad.read("t"), None);
    pad.record("t", 1);
    pad.record("t", 2);
    pad.record("u", Value::Null);
    assert_eq!(pad.snapshot().into_iter().collect::<Vec<_>>(), [("t".into(), json!(2)), ("u".into(), Value::Null)]);
    pad.clear();
    assert!(pad.snapshot().is_empty());
}

// ValidatorResponse

#[test]
fn response_asks_for_retry_by_default() {
    assert!(ValidatorResponse::success().retry_needed);
    assert!(ValidatorResponse::retry("f").retry_needed);
    let stop = ValidatorResponse::stop(None, Some(FailureCode::CANCELLED));
    assert!(!stop.validation_successful && !stop.retry_needed);
    assert_eq!((stop.feedback, stop.failure_code), (None, Some(FailureCode::CANCELLED)));
}

// json_schema

fn schema() -> Value {
    json!({
        "type": "object",
        "required": ["total", "lines"],
        "properties": {"total": {"type": "number"}, "lines": {"type": "array", "items": {"type": "string"}}},
        "additionalProperties": false,
    })
}

async fn judge_schema(response: &str, output_schema: Option<&Value>, settings: &Value) -> ValidatorResponse {
    let validator = registry().resolve("json_schema", settings).unwrap();
    let pad = ToolScratchpad::default();
    validator.validate(Validation { output_schema, ..validation(response, &pad) }).await
}

#[tokio::test]
async fn schema_violations_are_listed_with_paths() {
    let schema = schema();
    let ok = "```json\n{\"total\": 1.5, \"lines\": [\"a\"]}\n```";
    assert_eq!(judge_schema(ok, Some(&schema), &Value::Null).await, ValidatorResponse::success());

    let verdict =
        judge_schema("{\"total\": \"1\", \"lines\": [\"a\", 2], \"x\": 0}", Some(&schema), &Value::Null).await;
    assert!(verdict.retry_needed);
    let feedback = verdict.feedback.unwrap();
    for line in [
        "- at /total: \"1\" is not of type \"number\"",
        "- at /lines/1: 2 is not of type \"string\"",
        "- at the top level: ",
    ] {
        assert!(feedback.contains(line), "{feedback}");
    }
    let feedback = judge_schema("nope", Some(&schema), &Value::Null).await.feedback.unwrap();
    assert!(feedback.starts_with("The response is not valid JSON ("), "{feedback}");
}

#[tokio::test]
async fn schema_in_settings_overrides_output_schema() {
    let verdict = judge_schema("[]", Some(&schema()), &json!({"schema": {"type": "array"}})).await;
    assert!(verdict.validation_successful);
    let verdict = judge_schema("[]", None, &Value::Null).await;
    assert!(!verdict.validation_successful && !verdict.retry_needed, "no schema at all: no answer could pass");
}

// Selection of validators

#[test]
fn output_schema_follows_leading_built_in_validators() {
    let effective = |listed: &[&str], output_schema: Option<Value>| {
        let mut registry = registry();
        registry.register(Says("own", ValidatorResponse::success())).unwrap();
        let validators = effective_validators(&definition(listed, output_schema), &registry).unwrap();
        names(&validators).join(" ")
    };
    let schema = || Some(schema());
    assert_eq!(effective(&["is_valid_json"], None), "is_valid_json");
    assert_eq!(effective(&[], None), "");
    assert_eq!(effective(&[], schema()), "json_schema");
    assert_eq!(
        effective(&["stop_execution", "is_valid_json", "own"], schema()),
        "stop_execution is_valid_json json_schema own"
    );
    assert_eq!(effective(&["own", "is_valid_json"], schema()), "json_schema own is_valid_json");
    assert_eq!(effective(&["own", "json_schema"], schema()), "own json_schema");
}

#[test]
fn unusable_validators_make_definition_invalid() {
    for (spec, expected) in [
        (definition(&["nope"], None), "`nope` is not registered"),
        (definition(&["json_schema"], None), "needs `schema`"),
        (definition(&[], Some(json!({"type": "nonsense"}))), "output schema is not a valid schema"),
    ] {
        let failure = effective_validators(&spec, &registry()).err().unwrap();
        assert_eq!(failure.code, FailureCode::INVALID_DEFINITION);
        assert!(failure.summary.contains(expected), "{}", failure.summary);
    }
    let mut spec = definition(&[], None);
    let settings = json!({"schema": {"type": "string"}});
    spec.validators = vec![ValidatorRef::WithSettings(ValidatorSettings { name: "json_schema".into(), settings })];
    assert_eq!(names(&effective_validators(&spec, &registry()).unwrap()), ["json_schema"]);
}

struct Says(&'static str, ValidatorResponse);

#[async_trait]
impl Validator for Says {
    fn name(&self) -> &str {
        self.0
    }

    async fn validate(&self, _validation: Validation<'_>) -> ValidatorResponse {
        self.1.clone()
    }
}

struct NeverAsked;

#[async_trait]
impl Validator for NeverAsked {
    fn name(&self) -> &str {
        "never_asked"
    }

    async fn validate(&self, _validation: Validation<'_>) -> ValidatorResponse {
        panic!("a validator after the first failing one ran")
    }
}

#[tokio::test]
async fn validators_stop_at_the_first_failure() {
    let pad = ToolScratchpad::default();
    let long = ValidatorResponse::retry("f".repeat(1 << 20));
    let validators: Vec<Arc<dyn Validator>> = vec![
        Arc::new(Says("first", ValidatorResponse::success())),
        Arc::new(Says("second", long)),
        Arc::new(NeverAsked),
    ];
    let failed = first_failure(&validators, validation("x", &pad)).await.unwrap();
    assert_eq!(failed.validator, "second");
    let feedback = failed.response.feedback.unwrap();
    assert!(feedback.len() <= 16 * 1024 && feedback.ends_with("bytes left out]"), "{}", feedback.len());
    assert_eq!(first_failure(&[], validation("x", &pad)).await, None, "no validators: every answer passes");
}
