//! The texts that a model gets for every kind of failed call, and the assembly of tool lists.

use longhaul_sdk::{AgentConfig, FailureClass, Tool, ToolOutput, async_trait};
use schemars::JsonSchema;
use serde::Deserialize;

use super::*;
use crate::{AllowedNetworks, FetchUrlSettings, ToolRegistry};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProbeArgs {
    /// The behaviour to simulate.
    mode: Mode,
    #[serde(default)]
    size: u32,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Echo,
    Fail,
    Panic,
    Hang,
    End,
    Nul,
}

struct Probe;

#[async_trait]
impl Tool for Probe {
    type Args = ProbeArgs;

    fn name(&self) -> &str {
        "probe"
    }

    fn description(&self) -> &str {
        "Does as told."
    }

    async fn call(&self, args: ProbeArgs, context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        context.scratchpad.record("probe", context.idempotency_key);
        match args.mode {
            Mode::Echo => Ok("x".repeat(args.size as usize).into()),
            Mode::Fail => Err("the disk is full".into()),
            Mode::Panic => panic!("probe panics, as it was told to"),
            Mode::Hang => std::future::pending().await,
            Mode::End => Err(ToolFailure::EndsRun(Failure::new(
                FailureClass::ToolError,
                FailureCode::TOOL_FAILED,
                "the licence expired",
            ))),
            Mode::Nul => Ok("a\0b".into()),
        }
    }
}

fn sources() -> ToolSources {
    let mut registry = ToolRegistry::with_builtin(FetchUrlSettings::default());
    registry.register(Probe).unwrap();
    ToolSources { registry, ..ToolSources::default() }
}

fn agent(tools: Value) -> AgentConfig {
    serde_json::from_value(json!({
        "prompt": "p",
        "model": {},
        "tools": tools,
        "mcp_servers": {},
        "limits": {"max_tool_result_bytes": 1_000, "tool_timeout_seconds": 5},
    }))
    .unwrap()
}

async fn toolbox() -> Toolbox {
    Toolbox::open(&agent(json!(["probe", "stop_execution"])), &sources(), AllowedNetworks::default()).await.unwrap()
}

async fn call(name: &str, arguments: &str) -> CallOutcome {
    toolbox().await.call(name, arguments, "key", Arc::default()).await
}

/// The error object shown to the model.
fn error(outcome: &CallOutcome) -> Value {
    serde_json::from_str(&outcome.text).unwrap_or_else(|_| panic!("not an error: {}", outcome.text))
}

#[tokio::test]
async fn call_returns_text_and_passes_idempotency_key() {
    let pad = Arc::new(ToolScratchpad::default());
    let outcome = toolbox().await.call("probe", r#"{"mode":"echo","size":3}"#, "key-1", Arc::clone(&pad)).await;
    assert_eq!((outcome.text.as_str(), outcome.error, outcome.ends_run.as_ref()), ("xxx", None, None));
    assert_eq!(outcome.effect, ToolEffect::SideEffect);
    assert_eq!(pad.read("probe"), Some(json!("key-1")));
}

#[tokio::test]
async fn an_unknown_tool_names_the_known_ones() {
    let outcome = call("prob", "{}").await;
    assert_eq!(outcome.error, Some(CallErrorKind::Structural));
    assert_eq!(outcome.effect, ToolEffect::ReadOnly);
    assert_eq!(
        error(&outcome),
        json!({
            "error": {
                "type": "structural",
                "message": "there is no tool named `prob`",
                "details": {"known_tools": ["probe", "stop_execution"]},
            },
            "call": {"_tool": "prob", "arguments": {}},
        })
    );
}

#[tokio::test]
async fn arguments_that_are_not_json_are_structural() {
    for text in ["{", "{'mode': 'echo'}", "{} {}", "nonsense"] {
        let outcome = call("probe", text).await;
        assert_eq!(outcome.error, Some(CallErrorKind::Structural), "{text}");
        let told = error(&outcome);
        assert!(told["error"]["message"].as_str().unwrap().starts_with("the arguments are not valid JSON"), "{told}");
        assert_eq!(told["call"]["arguments"], text);
    }
}

#[tokio::test]
async fn every_violation_is_listed_with_its_path() {
    let outcome = call("probe", r#"{"mode":"dance","size":"big","extra":1}"#).await;
    let told = error(&outcome);
    assert_eq!(told["error"]["type"], "structural");
    let mut paths: Vec<_> = told["error"]["details"]["violations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v["path"].as_str().unwrap())
        .collect();
    paths.sort_unstable();
    assert_eq!(paths, ["", "/mode", "/size"], "{told}");
    assert_eq!(told["error"]["details"]["more_violations"], false);
    assert_eq!(told["call"]["arguments"]["extra"], 1);
}

#[tokio::test]
async fn no_arguments_at_all_are_an_empty_object() {
    for text in ["", "  \n"] {
        let told = error(&call("probe", text).await);
        assert!(told["error"]["details"]["violations"][0]["message"].as_str().unwrap().contains("mode"), "{told}");
    }
    let told = error(&call("probe", "[]").await);
    assert_eq!(told["error"]["type"], "structural");
}

#[tokio::test]
async fn reported_tool_error_reaches_the_model() {
    let outcome = call("probe", r#"{"mode":"fail"}"#).await;
    assert_eq!(outcome.error, Some(CallErrorKind::Runtime));
    assert_eq!(
        error(&outcome),
        json!({
            "error": {"type": "runtime", "message": "the disk is full"},
            "call": {"_tool": "probe", "arguments": {"mode": "fail"}},
        })
    );
}

#[tokio::test]
async fn a_panic_stays_inside_the_call() {
    let outcome = call("probe", r#"{"mode":"panic"}"#).await;
    assert_eq!(outcome.error, Some(CallErrorKind::Runtime));
    assert_eq!(error(&outcome)["error"]["message"], "the tool failed unexpectedly");
}

#[tokio::test(start_paused = true)]
async fn hanging_tool_times_out() {
    let outcome = call("probe", r#"{"mode":"hang"}"#).await;
    assert_eq!(outcome.error, Some(CallErrorKind::Timeout));
    assert_eq!(outcome.duration.as_secs(), 5);
    assert_eq!(error(&outcome)["error"]["type"], "timeout");

    let own = agent(json!([{"name": "probe", "timeout_seconds": 90}]));
    let toolbox = Toolbox::open(&own, &sources(), AllowedNetworks::default()).await.unwrap();
    let outcome = toolbox.call("probe", r#"{"mode":"hang"}"#, "key", Arc::default()).await;
    assert_eq!(outcome.duration.as_secs(), 90);
}

#[tokio::test]
async fn a_tool_can_end_the_run() {
    let outcome = call("probe", r#"{"mode":"end"}"#).await;
    let failure = outcome.ends_run.clone().unwrap();
    assert_eq!((failure.class, failure.code), (FailureClass::ToolError, FailureCode::TOOL_FAILED));
    assert_eq!(error(&outcome)["error"]["message"], "the licence expired");
}

#[tokio::test]
async fn results_are_cut_to_limit_and_storable() {
    let outcome = call("probe", r#"{"mode":"echo","size":5000}"#).await;
    assert!(outcome.text.len() <= 1_000 && outcome.text.contains("of 5000 bytes left out"), "{}", outcome.text);
    assert!(!outcome.is_error());
    assert_eq!(call("probe", r#"{"mode":"nul"}"#).await.text, "a\u{fffd}b");
}

#[tokio::test]
async fn stop_tool_records_reason_without_ending_turn() {
    let pad = Arc::new(ToolScratchpad::default());
    let toolbox = toolbox().await;
    let outcome = toolbox.call("stop_execution", r#"{"stop_reason":""}"#, "key", Arc::clone(&pad)).await;
    assert_eq!((outcome.text.as_str(), outcome.error, outcome.ends_run), ("Execution stop registered.", None, None));
    assert_eq!(pad.read("stop_execution"), Some(json!("")));
    assert_eq!(toolbox.effect("stop_execution"), ToolEffect::Idempotent);
    let parameters = &toolbox.specs()[1].parameters;
    assert_eq!(parameters["required"], json!(["stop_reason"]));
    assert_eq!(parameters["properties"]["stop_reason"]["type"], "string");
    assert!(toolbox.call("stop_execution", "{}", "key", pad).await.is_error());
}

#[tokio::test]
async fn list_keeps_agent_order_and_later_definition() {
    let agent = agent(json!(["stop_execution", {"name": "probe", "effect": "read_only"}, "fetch_url",
            {"name": "stop_execution", "effect": "side_effect"}]));
    let toolbox = Toolbox::open(&agent, &sources(), AllowedNetworks::default()).await.unwrap();
    let list: Vec<_> = toolbox.specs().iter().map(|spec| (spec.name.as_str(), spec.effect)).collect();
    assert_eq!(
        list,
        [
            ("stop_execution", ToolEffect::SideEffect),
            ("probe", ToolEffect::ReadOnly),
            ("fetch_url", ToolEffect::ReadOnly)
        ]
    );
    assert!(!toolbox.is_dynamic());
    let again = Toolbox::open(&agent, &sources(), AllowedNetworks::default()).await.unwrap();
    assert_eq!(serde_json::to_vec(again.specs()).unwrap(), serde_json::to_vec(toolbox.specs()).unwrap());
}

#[tokio::test]
async fn unknown_tool_or_setting_is_invalid_definition() {
    let open =
        async |tools: Value| Toolbox::open(&agent(tools), &sources(), AllowedNetworks::default()).await.unwrap_err();
    for (tools, expected) in [
        (json!(["nope"]), "`nope` is not registered"),
        (json!([{"name": "fetch_url", "settings": {"x": 1}}]), "settings of tool `fetch_url`"),
    ] {
        let failure = open(tools).await;
        assert_eq!((failure.class, failure.code), (FailureClass::Permanent, FailureCode::INVALID_DEFINITION));
        assert!(failure.summary.contains(expected), "{}", failure.summary);
    }
    let mut both = agent(json!([]));
    both.mcp_servers.insert("a__b".into(), serde_json::from_value(json!({"url": "http://h/"})).unwrap());
    let failure = Toolbox::open(&both, &sources(), AllowedNetworks::default()).await.unwrap_err();
    assert_eq!(failure.code, FailureCode::INVALID_DEFINITION);
}

#[tokio::test]
async fn pinned_list_wins_over_current_tools() {
    let agent = agent(json!(["probe"]));
    let mut pinned = Toolbox::open(&agent, &sources(), AllowedNetworks::default()).await.unwrap().specs().to_vec();
    pinned[0].description = "as it was".into();
    pinned[0].effect = ToolEffect::Idempotent;
    let toolbox = Toolbox::pinned(&agent, pinned.clone(), &sources(), AllowedNetworks::default()).unwrap();
    assert_eq!(toolbox.specs(), pinned);
    assert_eq!(toolbox.effect("probe"), ToolEffect::Idempotent);

    for gone in ["removed", "mcp__server__tool"] {
        pinned[0].name = gone.into();
        let failure = Toolbox::pinned(&agent, pinned.clone(), &sources(), AllowedNetworks::default()).unwrap_err();
        assert_eq!(failure.code, FailureCode::INVALID_DEFINITION, "{gone}");
        assert!(failure.summary.contains(gone), "{}", failure.summary);
    }
}
