//! Rounds of a run and its end: the round limit, calls that cannot run, inputs without a prompt.

use longhaul_contract::{ContractRun, PlatformRuntime};
use longhaul_domain::noted::CallList;
use serde_json::{Value, json};

use super::kit::{Engine, calls, printed, says};

fn python(id: &str) -> Value {
    calls(&[(id, "python_exec", r#"{"code":"x"}"#)])
}

#[tokio::test]
async fn third_tool_round_ends_the_run_without_calls() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    for id in ["a", "b", "c"] {
        engine.model.json(python(id));
        engine.sandbox.json(printed(id));
    }
    let id = engine.submit(&engine.run_with_tools(), json!({"prompt": "p"})).await;
    let ended = engine.ended(id).await;
    assert_eq!((ended.code(), &ended.detail), ("EXEC_INTERNAL_ERROR", &json!({"reason": "tool_round_limit_exceeded"})));
    assert_eq!(ended.row["failure_summary"], "Execution failed internally");
    assert_eq!((engine.model.seen().len(), engine.sandbox.seen().len()), (3, 2));
    assert_eq!(ended.statuses(CallList::ModelCalls), [200, 200, 200]);
    assert_eq!(ended.statuses(CallList::ToolCalls), [200, 200], "what the earlier rounds did is kept");
    // The requests hold only the conversation: no notice of a last turn, and every tool in every request.
    let third = engine.model.seen()[2].body();
    let roles: Vec<&Value> = third["input"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "tool"]);
    assert_eq!(third["tools"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn third_answer_may_be_text() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    for reply in [python("a"), python("b"), says("at last")] {
        engine.model.json(reply);
        engine.sandbox.json(printed(""));
    }
    let id = engine.submit(&engine.run_with_tools(), json!({"prompt": "p"})).await;
    assert_eq!(engine.ended(id).await.text(), "at last");
}

#[tokio::test]
async fn unknown_tool_call_blocks_the_whole_reply() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    engine.model.json(calls(&[("a", "python_exec", r#"{"code":"x"}"#), ("b", "rm_rf", "{}")]));
    let id = engine.submit(&engine.run_with_tools(), json!({"prompt": "p"})).await;
    let ended = engine.ended(id).await;
    assert_eq!((ended.code(), &ended.detail), ("EXEC_TOOL_NOT_ALLOWED", &json!({"tool_name": "rm_rf"})));
    assert_eq!((engine.sandbox.seen().len(), engine.model.seen().len()), (0, 1));
    assert_eq!(ended.statuses(CallList::ModelCalls), [200]);
}

#[tokio::test]
async fn invalid_arguments_are_told_to_model_and_record() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    let wrong = [("a", "python_exec", "{oops"), ("b", "web_search", "[1]"), ("c", "python_exec", r#"{"code":"x"}"#)];
    engine.model.json(calls(&wrong));
    engine.model.json(says("sorry"));
    engine.sandbox.json(printed("x"));
    let id = engine.submit(&engine.run_with_tools(), json!({"prompt": "p"})).await;
    let ended = engine.ended(id).await;
    assert_eq!(ended.text(), "sorry");
    assert_eq!((engine.sandbox.seen().len(), engine.gateway.seen().len()), (1, 0));
    let head = concat!(
        r#""runtime_capability":"sandbox_execution","provider_slug":"sandbox-local","provider_key":"sandbox_local","#,
        r#""deployment_profile_slug":"local-default","status_code":400,"arguments":{},"#,
    );
    let invalid = format!(
        concat!(
            r#"{{"tool_ref":"tool.python_exec","tool_name":"python_exec","transport":"sandbox_http",{head}"#,
            r#""error":{{"code":"invalid_arguments","message":"Model returned invalid tool arguments","#,
            r#""raw_arguments":"{{oops"}}}}"#
        ),
        head = head
    );
    assert_eq!(ended.items(CallList::ToolCalls)[0], invalid);
    let second: Value = serde_json::from_str(ended.items(CallList::ToolCalls)[1]).unwrap();
    assert_eq!(
        (&second["arguments"], &second["error"]["message"]),
        (&json!([1]), &json!("Model returned non-object tool arguments"))
    );
    assert_eq!(ended.statuses(CallList::ToolCalls), [400, 400, 200], "in the order of the calls");
    let told = &engine.model.seen()[1].body()["input"][3]["content"][0]["text"];
    let expected =
        r#"{"code":"invalid_arguments","message":"Model returned invalid tool arguments","raw_arguments":"{oops"}"#;
    assert_eq!(told, expected);
}

#[tokio::test]
async fn empty_input_is_answered_without_a_model() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    let run = ContractRun { platform_runtime: PlatformRuntime::default(), ..engine.run_with_tools() };
    for input in [json!({}), json!({"prompt": null, "messages": []})] {
        let id = engine.submit(&run, input).await;
        let ended = engine.ended(id).await;
        assert_eq!(ended.text(), "Agent 'agent.alpha' executed in offline profile");
        assert!(ended.gathered.calls.is_empty());
    }
}

#[tokio::test]
async fn empty_model_answer_is_accepted() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    engine.model.json(json!({"output": []}));
    let id = engine.submit(&engine.run(), json!({"prompt": "p"})).await;
    assert_eq!(engine.ended(id).await.text(), "");
    assert_eq!(engine.model.seen().len(), 1);
}

#[tokio::test]
async fn call_errors_go_to_the_model_without_ending() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    engine.model.json(calls(&[
        ("a", "web_search", "{}"),
        ("b", "python_exec", r#"{"code":"1/0"}"#),
        ("c", "python_exec", "{}"),
    ]));
    engine.model.json(says("ok"));
    engine.gateway.json(json!({"result": null, "error": {"code": "search_timeout", "message": "slow"}}));
    let error = json!({"type": "ZeroDivisionError", "message": "division by zero"});
    let failed =
        json!({"stdout": "a", "stderr": "b", "result": null, "error": error, "exit_code": 1, "timed_out": false});
    engine.sandbox.push(super::kit::Answer::Json(400, failed));
    engine.sandbox.push(super::kit::Answer::Json(400, json!({"error": "invalid_code", "message": "code is required"})));
    let id = engine.submit(&engine.run_with_tools(), json!({"prompt": "p"})).await;
    let ended = engine.ended(id).await;
    assert_eq!(ended.text(), "ok");
    assert_eq!(ended.statuses(CallList::ToolCalls), [200, 400, 400]);
    let items: Vec<Value> =
        ended.items(CallList::ToolCalls).iter().map(|item| serde_json::from_str(item).unwrap()).collect();
    assert_eq!(items[0]["error"], json!({"code": "search_timeout", "message": "slow"}));
    assert_eq!(items[0].get("result"), None, "a result or an error, never both");
    assert_eq!(items[1]["result"], json!({"stdout": "a", "stderr": "b", "result": null, "error": error}));
    assert_eq!(items[2]["error"], json!({"code": "invalid_code", "message": "code is required"}));
    let told = engine.model.seen()[1].body()["input"].clone();
    let text = |at: usize| serde_json::from_str::<Value>(told[at]["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(
        (text(3), text(4), text(5)),
        (items[0]["error"].clone(), items[1]["result"].clone(), items[2]["error"].clone())
    );
}

#[tokio::test]
async fn capped_result_stays_valid_json() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    engine.model.json(python("a"));
    engine.model.json(says("ok"));
    engine.sandbox.json(printed(&"é\n".repeat(200_000)));
    let id = engine.submit(&engine.run_with_tools(), json!({"prompt": "p"})).await;
    let ended = engine.ended(id).await;
    assert_eq!(ended.text(), "ok");
    let told = engine.model.seen()[1].body()["input"][3]["content"][0]["text"].as_str().unwrap().to_owned();
    let told_result: Value = serde_json::from_str(&told).unwrap();
    assert!(told.len() <= 65_536, "{} bytes", told.len());
    assert!(told_result["stdout"].as_str().unwrap().ends_with("bytes left out]"));
    let item: Value = serde_json::from_str(ended.items(CallList::ToolCalls)[0]).unwrap();
    assert_eq!(item["result"], told_result, "the record has what the model was told");
}
