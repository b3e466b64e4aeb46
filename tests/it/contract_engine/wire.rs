//! Requests on the wire, byte for byte.

use longhaul_contract::ContractRun;
use longhaul_domain::noted::CallList;
use serde_json::json;

use super::kit::{Answer, Engine, calls, printed, says};

const TOOLS: &str = concat!(
    r#""tools":[{"type":"function","function":{"name":"python_exec","description":"does python_exec","parameters":"#,
    r#"{"properties":{"code":{"type":"string"}},"required":["code"],"type":"object"}}},"#,
    r#"{"type":"function","function":{"name":"web_search","description":"does web_search","parameters":"#,
    r#"{"properties":{"code":{"type":"string"}},"required":["code"],"type":"object"}}}]"#,
);

#[tokio::test]
async fn prompt_makes_one_request_in_responses_format() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    engine.model.json(says(" Hello. "));
    let id = engine.submit(&engine.run(), json!({"prompt": "hello"})).await;
    assert_eq!(engine.ended(id).await.text(), "Hello.");
    let [request] = &engine.model.seen()[..] else { panic!("one request") };
    let body = concat!(
        r#"{"model":"org/model-default","input":[{"role":"system","content":[{"type":"text","text":"Be brief."}]},"#,
        r#"{"role":"user","content":[{"type":"text","text":"hello"}]}]}"#,
    );
    assert_eq!(
        (request.method.as_str(), request.path.as_str(), request.raw.as_str()),
        ("POST", "/v1/chat/completions", body)
    );
    assert_eq!(request.header("accept"), Some("application/json"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("authorization"), None);
    assert!(request.header("idempotency-key").is_some());
}

#[tokio::test]
async fn listed_model_is_requested_by_its_provider_name() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    engine.model.json(says("x"));
    let run = ContractRun { model: Some("model.alpha".into()), ..engine.run() };
    let ended = engine.submit(&run, json!({"prompt": "hello"})).await;
    let ended = engine.ended(ended).await;
    assert_eq!(engine.model.seen()[0].body()["model"], "org/alpha");
    assert_eq!(ended.gathered.model_ref.as_deref(), Some("model.alpha"));
    let item = concat!(
        r#"{"provider_slug":"vllm-local-gateway","provider_key":"vllm_local","#,
        r#""deployment_profile_slug":"local-default","#,
        r#""requested_model":"model.alpha","status_code":200}"#,
    );
    assert_eq!(ended.items(CallList::ModelCalls), [item]);
}

#[tokio::test]
async fn model_without_provider_name_is_looked_up() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    let mut run = engine.run();
    let llm = &mut run.platform_runtime.0["capabilities"]["llm_inference"];
    llm["default_resource"] =
        json!({"id": "m", "provider_resource_id": "none", "local_path": "/models/m", "name": "M"});
    engine.model.at("/v1/models", Answer::Json(200, json!({"data": [{"id": "other"}, {"id": "M"}]})));
    engine.model.json(says("x"));
    let id = engine.submit(&run, json!({"prompt": "hello"})).await;
    assert_eq!(engine.ended(id).await.text(), "x");
    let seen = engine.model.seen();
    assert_eq!((seen[0].method.as_str(), seen[0].path.as_str()), ("GET", "/v1/models"));
    assert_eq!(seen[1].body()["model"], "M");
}

/// Returns the second request of a run whose first reply called both tools.
async fn after_tools(format: &str) -> (Engine, String) {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    let mut run = engine.run_with_tools();
    run.platform_runtime.0["capabilities"]["llm_inference"]["config"]["request_format"] = json!(format);
    let code = r#"{"code": "print(2 + 2)"}"#;
    engine.model.json(calls(&[("c1", "python_exec", code), ("c2", "web_search", r#"{"query":"q","top_k":2}"#)]));
    engine.model.json(says("4"));
    engine.sandbox.json(printed("4\n"));
    let found = json!({"query": "q", "results": [{"title": "é", "rank": 1}]});
    engine.gateway.json(json!({"tool_name": "web_search", "result": found, "error": null}));
    let input = json!({"messages": [
        {"role": "system", "content": "S"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]});
    let id = engine.submit(&run, input).await;
    assert_eq!(engine.ended(id).await.text(), "4");
    let second = engine.model.seen()[1].raw.clone();
    (engine, second)
}

#[tokio::test]
async fn calls_and_results_use_the_responses_format() {
    let (_, second) = after_tools("responses_api").await;
    let body = concat!(
        r#"{"model":"org/model-default","input":[{"role":"system","content":[{"type":"text","text":"Be brief."}]},"#,
        r#"{"role":"system","content":[{"type":"text","text":"S"}]},"#,
        r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},"#,
        r#"{"role":"assistant","content":[],"tool_calls":[{"id":"c1","type":"function","#,
        r#""function":{"name":"python_exec","arguments":"{\"code\": \"print(2 + 2)\"}"}},"#,
        r#"{"id":"c2","type":"function","function":{"name":"web_search","#,
        r#""arguments":"{\"query\":\"q\",\"top_k\":2}"}}]},"#,
        r#"{"role":"tool","tool_call_id":"c1","content":[{"type":"text","#,
        r#""text":"{\"error\":null,\"result\":null,\"stderr\":\"\",\"stdout\":\"4\\n\"}"}]},"#,
        r#"{"role":"tool","tool_call_id":"c2","content":[{"type":"text","#,
        r#""text":"{\"query\":\"q\",\"results\":[{\"rank\":1,\"title\":\"\\u00e9\"}]}"}]}],"#,
    );
    assert_eq!(second, format!("{body}{TOOLS}}}"));
}

#[tokio::test]
async fn calls_and_results_use_the_chat_format() {
    let (_, second) = after_tools("openai_chat").await;
    let body = concat!(
        r#"{"model":"org/model-default","messages":[{"role":"system","content":"Be brief."},{"role":"system","#,
        r#""content":"S"},"#,
        r#"{"role":"user","content":"a\nb"},"#,
        r#"{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","#,
        r#""function":{"name":"python_exec","arguments":"{\"code\": \"print(2 + 2)\"}"}},"#,
        r#"{"id":"c2","type":"function","function":{"name":"web_search","#,
        r#""arguments":"{\"query\":\"q\",\"top_k\":2}"}}]},"#,
        r#"{"role":"tool","tool_call_id":"c1","content":"{\"error\":null,\"result\":null,"#,
        r#"\"stderr\":\"\",\"stdout\":\"4\\n\"}"},"#,
        r#"{"role":"tool","tool_call_id":"c2","content":"{\"query\":\"q\","#,
        r#"\"results\":[{\"rank\":1,\"title\":\"\\u00e9\"}]}"}],"#,
    );
    assert_eq!(second, format!("{body}{TOOLS}}}"));
}

#[tokio::test]
async fn gateway_and_sandbox_get_one_request_each() {
    let (engine, _) = after_tools("responses_api").await;
    let [invocation] = &engine.gateway.seen()[..] else { panic!("one invocation") };
    let body = concat!(
        r#"{"tool_name":"web_search","arguments":{"query":"q","top_k":2},"#,
        r#""request_metadata":{"tool_ref":"tool.web_search"}}"#
    );
    assert_eq!((invocation.path.as_str(), invocation.raw.as_str()), ("/v1/tools/invoke", body));
    let [job] = &engine.sandbox.seen()[..] else { panic!("one job") };
    let body = concat!(
        r#"{"language":"python","code":"print(2 + 2)","input":null,"timeout_seconds":5,"#,
        r#""policy":{"allow_imports":false,"network_access":false,"timeout_seconds":5}}"#,
    );
    assert_eq!((job.path.as_str(), job.raw.as_str()), ("/v1/execute", body));
    for request in [invocation, job] {
        assert_eq!(request.header("accept"), Some("application/json"));
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!(request.header("authorization"), None);
        assert!(request.header("idempotency-key").is_some());
    }
}

/// For a null the platform's sandbox would run the text `None`.
#[tokio::test]
async fn call_without_code_sends_an_empty_text() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    engine.model.json(calls(&[("c1", "python_exec", ""), ("c2", "python_exec", r#"{"code":null}"#)]));
    engine.model.json(says("done"));
    engine.sandbox.json(printed(""));
    engine.sandbox.json(printed(""));
    let id = engine.submit(&engine.run_with_tools(), json!({"prompt": "p"})).await;
    assert_eq!(engine.ended(id).await.text(), "done");
    let sent: Vec<_> = engine.sandbox.seen().iter().map(|job| job.body()["code"].clone()).collect();
    assert_eq!(sent, [json!(""), json!("")]);
}

#[tokio::test]
async fn calls_send_their_timeout_to_the_bound_path() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    let mut run = engine.run_with_tools();
    let capabilities = &mut run.platform_runtime.0["capabilities"];
    capabilities["sandbox_execution"]["config"]["execute_path"] = json!("/run");
    capabilities["mcp_runtime"]["config"]["invoke_path"] = json!("invoke");
    let code = r#"{"code":"x","input":{"b":1},"timeout_seconds":12}"#;
    engine.model.json(calls(&[("c1", "python_exec", code), ("c2", "web_search", "")]));
    engine.model.json(says("done"));
    engine.sandbox.json(printed(""));
    engine.gateway.json(json!({"result": [], "error": null}));
    let id = engine.submit(&run, json!({"prompt": "p"})).await;
    assert_eq!(engine.ended(id).await.text(), "done");
    let job = &engine.sandbox.seen()[0];
    assert_eq!(
        (job.path.as_str(), &job.body()["timeout_seconds"], &job.body()["input"]),
        ("/run", &json!(12), &json!({"b": 1}))
    );
    let invocation = &engine.gateway.seen()[0];
    assert_eq!((invocation.path.as_str(), &invocation.body()["arguments"]), ("/invoke", &json!({})));
}
