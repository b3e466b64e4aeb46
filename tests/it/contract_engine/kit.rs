//! A platform played by the test (model, gateway, sandbox, embeddings and vector store over real HTTP) and runs
//! over it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use longhaul_contract::{
    ContractRun,
    steps::{Gathered, gather},
};
use longhaul_domain::{
    ExecutionId, ServeKey, noted::CallList, requirements::CONTRACT_REQUIREMENT, retrieval::RetrievalRequest,
};
use longhaul_sdk::AgentSpec;
use longhaul_store::{catalogue::definitions::AGENT_DEFINITION, history::body};
use serde_json::{Value, json};
use sqlx::Row;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::support::fleet::Fleet;
pub(crate) use longhaul_testkit::model::Gate;

/// Answer of a stub.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// A status and JSON.
    Json(u16, Value),
    /// A status and any text.
    Text(u16, &'static str),
    /// A status and a `retry-after` in seconds.
    Later(u16, u32),
    /// No answer, ever.
    Silence,
    /// The inner answer once the gate is open.
    Behind(Gate, Box<Answer>),
}

/// One request to a stub.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) raw: String,
}

impl Seen {
    pub(crate) fn body(&self) -> Value {
        serde_json::from_str(&self.raw).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

#[derive(Default)]
struct Inner {
    queue: VecDeque<Answer>,
    at: BTreeMap<String, Answer>,
    seen: Vec<Seen>,
}

/// A server with scripted answers: the queue first, then the answer of the path.
pub(crate) struct Stub {
    address: SocketAddr,
    inner: Arc<Mutex<Inner>>,
    _serving: AbortOnDropHandle<()>,
}

impl Stub {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, inner) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Inner::default())));
        let router = Router::new().fallback(handle).with_state(inner.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, inner, _serving: AbortOnDropHandle::new(serving) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Queues an answer for the next request to a path without an answer of its own.
    pub(crate) fn push(&self, answer: Answer) {
        self.inner.lock().unwrap().queue.push_back(answer);
    }

    pub(crate) fn json(&self, body: Value) {
        self.push(Answer::Json(200, body));
    }

    /// Sets the answer to every request to `path`.
    pub(crate) fn at(&self, path: &str, answer: Answer) {
        self.inner.lock().unwrap().at.insert(path.to_owned(), answer);
    }

    /// Returns every request so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.inner.lock().unwrap().seen.clone()
    }

    /// Returns the number of requests to one path.
    pub(crate) fn seen_at(&self, path: &str) -> usize {
        self.seen().iter().filter(|seen| seen.path == path).count()
    }
}

async fn handle(
    State(inner): State<Arc<Mutex<Inner>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let answer = {
        let mut inner = inner.lock().unwrap();
        let (path, raw) = (uri.path().to_owned(), String::from_utf8_lossy(&body).into_owned());
        inner.seen.push(Seen { method, path: path.clone(), headers, raw });
        let queued = if inner.at.contains_key(&path) { None } else { inner.queue.pop_front() };
        queued.or_else(|| inner.at.get(&path).cloned())
    };
    respond(answer.unwrap_or(Answer::Text(418, "the test did not expect this request"))).await
}

async fn respond(answer: Answer) -> Response {
    match answer {
        Answer::Json(status, body) => (StatusCode::from_u16(status).unwrap(), axum::Json(body)).into_response(),
        Answer::Text(status, text) => (StatusCode::from_u16(status).unwrap(), text).into_response(),
        Answer::Later(status, seconds) => {
            let headers = [("retry-after", seconds.to_string())];
            (StatusCode::from_u16(status).unwrap(), headers, axum::Json(json!({"error": "later"}))).into_response()
        }
        Answer::Silence => std::future::pending().await,
        Answer::Behind(gate, answer) => {
            gate.pass().await;
            Box::pin(respond(*answer)).await
        }
    }
}

/// A retrieval request from JSON.
pub(crate) fn searching(request: Value) -> Option<RetrievalRequest> {
    Some(serde_json::from_value(request).unwrap())
}

/// A reply of the model with text.
pub(crate) fn says(text: &str) -> Value {
    json!({"output": [{"content": [{"type": "text", "text": text}]}]})
}

/// A reply of the model with tool calls: id, name and arguments as text.
pub(crate) fn calls(calls: &[(&str, &str, &str)]) -> Value {
    let call = |(id, name, arguments): &(&str, &str, &str)| {
        json!({
            "id": id, "type": "function", "function": {"name": name, "arguments": arguments}
        })
    };
    let calls: Vec<Value> = calls.iter().map(call).collect();
    json!({"output": [{"content": [], "tool_calls": calls}]})
}

/// A sandbox's answer to code that ran.
pub(crate) fn printed(stdout: &str) -> Value {
    json!({"language": "python", "stdout": stdout, "stderr": "", "result": null, "error": null, "exit_code": 0,
        "timed_out": false})
}

/// A fleet and the platform that its runs use.
pub(crate) struct Engine {
    pub(crate) fleet: Fleet,
    pub(crate) model: Stub,
    pub(crate) gateway: Stub,
    pub(crate) sandbox: Stub,
    pub(crate) embeddings: Stub,
    pub(crate) vectors: Stub,
}

/// The model's id at the provider.
pub(crate) const PROVIDER_MODEL: &str = "org/model-default";

impl Engine {
    pub(crate) async fn start() -> Self {
        let fleet = Fleet::start().await;
        fleet.store.put_agent_definition().await.unwrap();
        fleet.store.put_shared_agent(&AgentSpec::new("agent.alpha", "Be brief.")).await.unwrap();
        Self {
            fleet,
            model: Stub::start().await,
            gateway: Stub::start().await,
            sandbox: Stub::start().await,
            embeddings: Stub::start().await,
            vectors: Stub::start().await,
        }
    }

    /// The seed's snapshot with the stubs' addresses.
    pub(crate) fn runtime(&self) -> Value {
        let model = |id: &str, provider: Option<&str>| {
            json!({"id": id, "resource_kind": "model", "ref_type": "managed_model", "managed_model_id": id,
                "provider_resource_id": provider, "display_name": id})
        };
        let bound = |slug: &str, key: &str, adapter: &str, url: String| {
            json!({"id": slug, "slug": slug, "provider_key": key, "adapter_kind": adapter, "endpoint_url": url,
                "enabled": true,
                "config": {}, "resources": [], "default_resource_id": null, "default_resource": null,
                "resource_policy": {},
                "binding_config": {}})
        };
        let mut llm = bound("vllm-local-gateway", "vllm_local", "openai_compatible_llm", self.model.url() + "/");
        llm["config"] = json!({"chat_completion_path": "/v1/chat/completions"});
        llm["resources"] =
            json!([model("model.alpha", Some("org/alpha")), model("model.default", Some(PROVIDER_MODEL))]);
        llm["default_resource_id"] = json!("model.default");
        llm["default_resource"] = model("model.default", Some(PROVIDER_MODEL));
        let embeddings_id = "local-vllm-embeddings-default";
        let (slug, key) = ("vllm-embeddings-local", "vllm_embeddings_local");
        let mut embeddings = bound(slug, key, "openai_compatible_embeddings", self.embeddings.url());
        embeddings["resources"] = json!([model(embeddings_id, Some("bge"))]);
        embeddings["default_resource_id"] = json!(embeddings_id);
        json!({
            "deployment_profile": {"id": "deployment-1", "slug": "local-default", "display_name": "Local Default"},
            "capabilities": {
                "llm_inference": llm,
                "embeddings": embeddings,
                "vector_store": bound("weaviate-local", "weaviate_local", "weaviate_http", self.vectors.url()),
                "mcp_runtime": bound("mcp-gateway-local", "mcp_gateway_local", "mcp_http", self.gateway.url()),
                "sandbox_execution": bound("sandbox-local", "sandbox_local", "sandbox_http", self.sandbox.url()),
            },
        })
    }

    /// A run without tools and retrieval.
    pub(crate) fn run(&self) -> ContractRun {
        serde_json::from_value(json!({
            "agent_ref": "agent.alpha", "agent_version": "v1", "runtime_profile": "offline",
            "requested_by_role": "user",
            "request_id": "r-1", "platform_runtime": self.runtime(),
        }))
        .unwrap()
    }

    /// A run with both tools of the catalogue.
    pub(crate) fn run_with_tools(&self) -> ContractRun {
        let tool = |name: &str, transport: &str, policy: Value| {
            json!({"tool_ref": format!("tool.{name}"), "tool_name": name, "description": format!("does {name}"),
                "transport": transport,
                "input_schema": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
                "safety_policy": policy, "effect": "side_effect"})
        };
        let policy = json!({"timeout_seconds": 5, "network_access": false, "allow_imports": false});
        let tools = json!([
            tool("python_exec", "sandbox_http", policy),
            tool("web_search", "mcp", json!({"timeout_seconds": 8}))
        ]);
        ContractRun { tools: serde_json::from_value(tools).unwrap(), ..self.run() }
    }

    /// Stores a run as the API would.
    pub(crate) async fn submit(&self, run: &ContractRun, input: Value) -> ExecutionId {
        let mut new = self.fleet.new_execution_with(AGENT_DEFINITION, Some("agent.alpha"), input).await;
        let needs = BTreeSet::from([CONTRACT_REQUIREMENT.to_owned()]);
        new.serve_key = ServeKey::of(&needs);
        self.fleet.store.put_serve_key(&new.serve_key, &needs.into_iter().collect::<Vec<_>>()).await.unwrap();
        new.overrides = Some(serde_json::to_string(&run.overrides().unwrap()).unwrap());
        self.fleet.submit_new(new).await
    }

    /// Waits for the end of an execution and returns the parts of its record.
    pub(crate) async fn ended(&self, id: ExecutionId) -> EndedExecution {
        let row = self.fleet.ended(id).await;
        let detail: Option<String> =
            sqlx::query_scalar("select failure_detail::text from execution_payloads where execution_id = $1")
                .bind(id.0)
                .fetch_one(&self.fleet.db.pool)
                .await
                .unwrap();
        let detail = detail.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap());
        EndedExecution { row, detail, gathered: self.gathered(id).await }
    }

    /// Returns the calls that the journal holds for the record.
    pub(crate) async fn gathered(&self, id: ExecutionId) -> Gathered {
        let rows = sqlx::query("select body from steps where execution_id = $1 order by seq")
            .bind(id.0)
            .fetch_all(&self.fleet.db.pool)
            .await
            .unwrap();
        let bodies: Vec<Vec<u8>> = rows.iter().map(|row| body::decode(row.get("body")).unwrap()).collect();
        gather(bodies.iter().map(Vec::as_slice))
    }
}

/// An execution that has ended.
pub(crate) struct EndedExecution {
    pub(crate) row: Value,
    pub(crate) detail: Value,
    pub(crate) gathered: Gathered,
}

impl EndedExecution {
    /// Returns the answer; the execution must have one.
    pub(crate) fn text(&self) -> &str {
        assert_eq!(self.row["status"], "FINISHED", "{} {}", self.row, self.detail);
        self.row["output"]["response"].as_str().unwrap()
    }

    /// Returns the failure code; the execution must have one.
    pub(crate) fn code(&self) -> &str {
        assert_eq!(self.row["status"], "FAILED", "{}", self.row);
        self.row["failure_code"].as_str().unwrap()
    }

    /// Returns the items of a list as JSON text.
    pub(crate) fn items(&self, list: CallList) -> Vec<&str> {
        self.gathered.calls.iter().filter(|call| call.list == list).map(|call| call.item.get()).collect()
    }

    /// Returns the statuses of a list's calls.
    pub(crate) fn statuses(&self, list: CallList) -> Vec<u64> {
        let status = |item: &&str| serde_json::from_str::<Value>(item).unwrap()["status_code"].as_u64().unwrap();
        self.items(list).iter().map(status).collect()
    }
}
