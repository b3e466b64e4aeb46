//! The table of dependency failures and their codes: every row, over real HTTP.

use longhaul_contract::{ContractRun, PlatformRuntime};
use longhaul_domain::{ExecutionId, noted::CallList};
use serde_json::{Value, json};

use super::kit::{Answer, EndedExecution, Engine, Stub, calls, says, searching};

const TIMEOUT: &str = "EXEC_TIMEOUT";
const UNAVAILABLE: &str = "EXEC_UPSTREAM_UNAVAILABLE";
const INTERNAL: &str = "EXEC_INTERNAL_ERROR";
/// No code: the model is told of the failure and the run continues.
const TOLD: &str = "told";
const KNOWLEDGE: &str = "Knowledge retrieval is currently unavailable.";

/// A failure of a dependency.
#[derive(Debug, Clone)]
enum Trouble {
    Refuses,
    Silent,
    Status(u16),
    Body(&'static str),
}

/// Binds a stub that fails this way to a capability of the run, with a timeout of half a second.
async fn bind(run: &mut ContractRun, capability: &str, trouble: &Trouble) -> Stub {
    let stub = Stub::start().await;
    let binding = &mut run.platform_runtime.0["capabilities"][capability];
    binding["endpoint_url"] = json!(stub.url());
    binding["config"] = json!({"request_timeout_seconds": 0.5});
    let answer = match trouble {
        Trouble::Refuses => {
            let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
            binding["endpoint_url"] = json!(format!("http://{closed}"));
            return stub;
        }
        Trouble::Silent => Answer::Silence,
        Trouble::Status(status) => Answer::Json(*status, json!({"error": "trouble", "message": "no"})),
        Trouble::Body(text) => Answer::Text(200, text),
    };
    for _ in 0..4 {
        stub.push(answer.clone());
    }
    stub
}

fn check(what: &Trouble, ended: &EndedExecution, expected: &str) {
    let (status, code) = (&ended.row["status"], ended.row["failure_code"].as_str().unwrap_or(TOLD));
    assert_eq!(code, expected, "{what:?}: {} {}", ended.row, ended.detail);
    let message = match expected {
        TIMEOUT => "Execution timed out",
        UNAVAILABLE => "Upstream LLM/tool dependency unavailable",
        INTERNAL => "Execution failed internally",
        _ => {
            assert_eq!(status, "FINISHED");
            return;
        }
    };
    if ended.row["failure_summary"] != KNOWLEDGE {
        assert_eq!(ended.row["failure_summary"], message, "{what:?}");
    }
    assert_eq!(ended.row["attempts"], 1, "{what:?}: nothing is retried");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_failures_have_their_codes() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    let table = [
        (Trouble::Refuses, UNAVAILABLE, 503),
        (Trouble::Silent, TIMEOUT, 504),
        (Trouble::Status(504), TIMEOUT, 504),
        (Trouble::Status(502), UNAVAILABLE, 502),
        (Trouble::Status(503), UNAVAILABLE, 503),
        (Trouble::Status(505), UNAVAILABLE, 505),
        (Trouble::Status(500), INTERNAL, 500),
        (Trouble::Status(501), INTERNAL, 501),
        (Trouble::Status(400), INTERNAL, 400),
        (Trouble::Status(401), INTERNAL, 401),
        (Trouble::Status(413), INTERNAL, 413),
        (Trouble::Status(429), INTERNAL, 429),
        (Trouble::Status(302), INTERNAL, 302),
        (Trouble::Body("<html>login</html>"), INTERNAL, 200),
        (Trouble::Body("[]"), INTERNAL, 200),
        (Trouble::Body("{}"), INTERNAL, 200),
        (Trouble::Body(r#"{"error": {"message": "overloaded"}}"#), INTERNAL, 200),
    ];
    for (trouble, expected, status) in table {
        let mut run = engine.run();
        let stub = bind(&mut run, "llm_inference", &trouble).await;
        let id = engine.submit(&run, json!({"prompt": "p"})).await;
        let ended = engine.ended(id).await;
        check(&trouble, &ended, expected);
        assert_eq!(ended.detail["provider_slug"], "vllm-local-gateway", "{trouble:?}");
        assert_eq!(ended.detail["status_code"], status, "{trouble:?}");
        assert_eq!(ended.statuses(CallList::ModelCalls), [status], "{trouble:?}: the call is on the record");
        assert!(stub.seen().len() <= 1, "{trouble:?}: sent {} times", stub.seen().len());
    }
}

/// Runs an execution whose only call fails this way.
async fn call_meets(
    engine: &Engine,
    (capability, tool): (&str, &str),
    trouble: &Trouble,
    expected: &str,
) -> (EndedExecution, Stub) {
    let mut run = engine.run_with_tools();
    let stub = bind(&mut run, capability, trouble).await;
    engine.model.json(calls(&[("a", tool, r#"{"code":"x"}"#)]));
    if expected == TOLD {
        // The model is told of the failure and answers.
        engine.model.json(says("so be it"));
    }
    let id = engine.submit(&run, json!({"prompt": "p"})).await;
    (engine.ended(id).await, stub)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_service_failures_have_codes_without_resending() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    let table = [
        (Trouble::Refuses, UNAVAILABLE, UNAVAILABLE, 503),
        (Trouble::Silent, TIMEOUT, TIMEOUT, 504),
        (Trouble::Status(504), TIMEOUT, TIMEOUT, 504),
        (Trouble::Status(502), UNAVAILABLE, UNAVAILABLE, 502),
        (Trouble::Status(503), UNAVAILABLE, UNAVAILABLE, 503),
        (Trouble::Status(507), UNAVAILABLE, UNAVAILABLE, 507),
        (Trouble::Status(500), INTERNAL, TOLD, 500),
        (Trouble::Status(501), INTERNAL, TOLD, 501),
        (Trouble::Status(400), INTERNAL, TOLD, 400),
        (Trouble::Status(429), INTERNAL, TOLD, 429),
        (Trouble::Status(307), INTERNAL, INTERNAL, 307),
        (Trouble::Body("not json"), TOLD, TOLD, 200),
    ];
    for (trouble, of_gateway, of_sandbox, status) in table {
        let services = [
            ("mcp_runtime", "web_search", of_gateway, "mcp-gateway-local"),
            ("sandbox_execution", "python_exec", of_sandbox, "sandbox-local"),
        ];
        for (capability, tool, expected, slug) in services {
            let (ended, stub) = call_meets(&engine, (capability, tool), &trouble, expected).await;
            check(&trouble, &ended, expected);
            if expected != TOLD {
                assert_eq!(ended.detail["provider_slug"], slug, "{trouble:?}");
                assert_eq!(ended.detail["status_code"], status, "{trouble:?}");
                assert_eq!(ended.statuses(CallList::ModelCalls), [200], "{trouble:?}");
            }
            assert_eq!(ended.statuses(CallList::ToolCalls), [status], "{trouble:?} of {tool}");
            assert!(stub.seen().len() <= 1, "{trouble:?}: sent {} times", stub.seen().len());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retrieval_failures_have_their_codes() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    engine.embeddings.at("/v1/embeddings", Answer::Json(200, json!({"data": [{"embedding": [0.5, 0.25]}]})));
    let table = [
        (Trouble::Refuses, UNAVAILABLE, UNAVAILABLE),
        (Trouble::Silent, TIMEOUT, TIMEOUT),
        (Trouble::Status(504), TIMEOUT, TIMEOUT),
        (Trouble::Status(503), UNAVAILABLE, UNAVAILABLE),
        (Trouble::Status(500), UNAVAILABLE, INTERNAL),
        (Trouble::Status(404), UNAVAILABLE, INTERNAL),
        (Trouble::Body(r#"{"errors": [{"message": "no"}]}"#), UNAVAILABLE, INTERNAL),
    ];
    for (trouble, of_embeddings, of_vectors) in table {
        for (capability, expected) in [("embeddings", of_embeddings), ("vector_store", of_vectors)] {
            let mut run = engine.run();
            run.retrieval = searching(json!({"index": "kb", "query": "q", "top_k": 1, "search_method": "semantic",
                "query_preprocessing": "none", "filters": {}}));
            let stub = bind(&mut run, capability, &trouble).await;
            let id = engine.submit(&run, json!({"prompt": "p"})).await;
            let ended = engine.ended(id).await;
            check(&trouble, &ended, expected);
            let embedded = usize::from(capability == "vector_store");
            assert_eq!(ended.items(CallList::EmbeddingCalls).len(), embedded, "{trouble:?}: what was done is kept");
            assert!(stub.seen().len() <= 1, "{trouble:?}: sent {} times", stub.seen().len());
        }
    }
    assert_eq!(engine.model.seen().len(), 0, "no model was asked without references");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_snapshot_ends_the_run_without_requests() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    type Change = fn(&mut ContractRun);
    fn llm(run: &mut ContractRun) -> &mut Value {
        &mut run.platform_runtime.0["capabilities"]["llm_inference"]
    }
    let table: [(&str, Change, &str, Value); 12] = [
        (
            "an unbound model",
            |run| run.model = Some("model.gone".into()),
            "EXEC_MODEL_NOT_ALLOWED",
            json!({"provider_slug": "vllm-local-gateway", "requested_model": "model.gone"}),
        ),
        ("no platform", |run| run.platform_runtime = PlatformRuntime::default(), INTERNAL, Value::Null),
        ("no model binding", |run| *llm(run) = Value::Null, INTERNAL, Value::Null),
        ("a model provider that is off", |run| llm(run)["enabled"] = json!(false), UNAVAILABLE, Value::Null),
        ("another protocol", |run| llm(run)["adapter_kind"] = json!("grpc"), INTERNAL, Value::Null),
        ("another format", |run| llm(run)["config"]["request_format"] = json!("xml"), INTERNAL, Value::Null),
        ("no address", |run| llm(run)["endpoint_url"] = json!(null), INTERNAL, Value::Null),
        ("an address that is none", |run| llm(run)["endpoint_url"] = json!("ftp://x"), INTERNAL, Value::Null),
        (
            "no default model",
            |run| {
                llm(run)["default_resource"] = Value::Null;
                llm(run)["default_resource_id"] = Value::Null;
            },
            INTERNAL,
            json!({"provider_slug": "vllm-local-gateway", "reason": "no_default_resource"}),
        ),
        (
            "a secret that is not set",
            |run| llm(run)["config"]["secret_refs"] = json!({"api_key": "env://LONGHAUL_SECRET_THAT_IS_NOT_SET"}),
            INTERNAL,
            json!({"provider_slug": "vllm-local-gateway", "reason": "secret_unresolved",
                "secret_ref": "env://LONGHAUL_SECRET_THAT_IS_NOT_SET"}),
        ),
        (
            "a secret of a foreign scheme",
            |run| llm(run)["config"]["secret_refs"] = json!({"api_key": "modelops://m"}),
            INTERNAL,
            json!({"provider_slug": "vllm-local-gateway", "reason": "secret_unresolved", "secret_ref": "modelops://m"}),
        ),
        (
            "a variable that bindings may not read",
            |run| llm(run)["config"]["secret_refs"] = json!({"api_key": "env://PATH"}),
            INTERNAL,
            json!({"provider_slug": "vllm-local-gateway", "reason": "secret_unresolved", "secret_ref": "env://PATH"}),
        ),
    ];
    for (what, change, code, detail) in table {
        let mut run = engine.run();
        change(&mut run);
        let ended = engine.ended(engine.submit(&run, json!({"prompt": "p"})).await).await;
        assert_eq!(ended.code(), code, "{what}: {}", ended.detail);
        if !detail.is_null() {
            assert_eq!(ended.detail, detail, "{what}");
        }
        assert!(ended.gathered.calls.is_empty(), "{what}");
    }
    for capability in ["mcp_runtime", "sandbox_execution"] {
        for missing in [Value::Null, json!({"slug": "s", "enabled": false})] {
            let mut run = engine.run_with_tools();
            run.platform_runtime.0["capabilities"][capability] = missing;
            let ended = engine.ended(engine.submit(&run, json!({"prompt": "p"})).await).await;
            assert_eq!(ended.code(), "EXEC_TOOL_NOT_ALLOWED", "{capability}");
            assert_eq!(ended.detail["runtime_capability"], capability);
        }
    }
    assert_eq!(engine.model.seen().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unserved_model_is_an_internal_error() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    let mut run = engine.run();
    run.platform_runtime.0["capabilities"]["llm_inference"]["default_resource"] = json!({"id": "m"});
    engine.model.at("/v1/models", Answer::Json(200, json!({"data": [{"id": "other"}]})));
    let ended = engine.ended(engine.submit(&run, json!({"prompt": "p"})).await).await;
    let detail = json!({"provider_slug": "vllm-local-gateway", "reason": "model_not_served", "served_model_id": "m"});
    assert_eq!((ended.code(), &ended.detail), (INTERNAL, &detail));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_breaker_fails_at_once_without_parking() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    engine.model.at("/v1/chat/completions", Answer::Json(503, json!({"error": "down"})));
    let mut ended: Vec<EndedExecution> = Vec::new();
    for _ in 0..12 {
        let id = engine.submit(&engine.run(), json!({"prompt": "p"})).await;
        ended.push(engine.ended(id).await);
        assert_eq!(waits(&engine, id).await, 0, "it never waited for its provider");
    }
    assert!(ended.iter().all(|ended| ended.code() == UNAVAILABLE));
    let asked = engine.model.seen_at("/v1/chat/completions");
    assert!(asked < ended.len(), "the breaker opened: {asked} of {} were sent", ended.len());
    let detail = json!({"provider_slug": "vllm-local-gateway", "status_code": 503, "reason": "provider_down"});
    assert_eq!(ended.last().unwrap().detail, detail);
}

async fn waits(engine: &Engine, id: ExecutionId) -> i64 {
    sqlx::query_scalar("select count(*) from attempts where execution_id = $1 and outcome = 'parked'")
        .bind(id.0)
        .fetch_one(&engine.fleet.db.pool)
        .await
        .unwrap()
}

/// The retry follows the failure's class, after the delay that the provider asks for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opted_in_agent_is_retried() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    for (status, class) in [(429, "transient"), (500, "llm_error"), (501, "llm_error"), (503, "llm_error")] {
        engine.model.push(Answer::Later(status, 300));
        engine.model.json(says("up again"));
        let id = engine.submit(&ContractRun { retries: true, ..engine.run() }, json!({"prompt": "p"})).await;
        engine.fleet.until(id, "it waits for its retry", |row| row["wait_reason"] == "retry_backoff").await;
        let waits = engine
            .fleet
            .json(
                "select jsonb_build_object('class', a.failure_class,
                    'seconds', round(extract(epoch from p.wait_until - a.ended_at) / 10) * 10)
                from parked p join attempts a using (execution_id)",
            )
            .await;
        assert_eq!(waits, json!({"class": class, "seconds": 300}), "{status}");
        engine.fleet.advance(std::time::Duration::from_secs(301)).await;
        let ended = engine.ended(id).await;
        assert_eq!(ended.text(), "up again", "{status}");
        assert_eq!(ended.statuses(CallList::ModelCalls), [status.into(), 200], "what failed is on the record, too");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_code_and_message_of_error_bodies_are_kept() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    let body = |key: &str| {
        json!({"error": "tool_backend_down", "message": format!("refused with {key}"), "trace": "at /srv/gateway.py:7",
            "request": {"headers": {"authorization": "Bearer abcdefgh"}}, "environment": {"PATH": "/bin"}})
    };
    let services = [
        ("web_search", &engine.gateway, "/v1/tools/invoke", 500),
        ("python_exec", &engine.sandbox, "/v1/execute", 503),
    ];
    for (tool, service, path, status) in services {
        service.at(path, Answer::Json(status, body("sk-0123456789abcdef")));
        engine.model.json(calls(&[("a", tool, r#"{"code":"x"}"#)]));
        let ended = engine.ended(engine.submit(&engine.run_with_tools(), json!({"prompt": "p"})).await).await;
        let told = json!({"code": "tool_backend_down", "message": "refused with [redacted]"});
        assert_eq!(ended.detail["upstream"], told, "{tool}: {}", ended.detail);
        // A message that is not a string is ignored.
        service.at(path, Answer::Json(status, json!({"error": {"code": {"deep": 1}, "message": ["x"]}, "more": 1})));
        engine.model.json(calls(&[("a", tool, r#"{"code":"x"}"#)]));
        let ended = engine.ended(engine.submit(&engine.run_with_tools(), json!({"prompt": "p"})).await).await;
        assert!(ended.detail.get("upstream").is_none(), "{tool}: {}", ended.detail);
    }
}
