//! The API over a platform that the test plays, with a service token and an API key.

use longhaul_api::ApiOptions;
use longhaul_cli::compose;
use longhaul_contract::catalogue::PlatformSpec;
use longhaul_domain::ExecutionId;
use longhaul_guards::http::{self, HttpOptions};
use longhaul_store::tenants::api_keys::Scope;
use reqwest::Method;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

pub(crate) use crate::support::api::Answer;
use crate::{
    contract_engine::kit::Engine,
    support::fleet::{Fleet, FleetWorker},
};

/// Service token of the backend.
pub(crate) const TOKEN: &str = "a-service-token-of-the-tests";
/// Path that executions are posted to.
pub(crate) const PATH: &str = "/v1/internal/agent-executions";

/// An API server with its engine, platform stubs and keys.
pub(crate) struct Backend {
    pub(crate) engine: Engine,
    pub(crate) url: String,
    /// API key of the tenant `test`, with the scopes to read and write executions.
    pub(crate) key: String,
    /// API key with every scope.
    pub(crate) operator: String,
    pub(crate) client: reqwest::Client,
    _serving: AbortOnDropHandle<anyhow::Result<()>>,
}

impl Backend {
    /// Starts with the agent `agent.alpha`, which has no tools.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// As [`start`](Self::start), with further environment variables.
    pub(crate) async fn start_with(environment: &[(&str, &str)]) -> Self {
        let mut engine = Engine::start().await;
        let fleet = &mut engine.fleet;
        let own = [
            ("LONGHAUL_API_KEY_PEPPER", "pepper of the test, thirty-two characters"),
            ("AGENT_ENGINE_SERVICE_TOKEN", TOKEN),
            ("LONGHAUL_SECRET_KEYS", "a key of the tests of thirty-two characters"),
        ];
        for (name, value) in own.iter().chain(environment) {
            fleet.set(name, value);
        }
        let config = fleet.config();
        let pepper = compose::pepper(&config).unwrap();
        let everyday = [Scope::ExecutionsRead, Scope::ExecutionsWrite];
        let key = fleet.store.issue_api_key(fleet.tenant, "test", &everyday, &pepper).await.unwrap().key;
        let operator = fleet.store.issue_api_key(fleet.tenant, "operator", Scope::ALL, &pepper).await.unwrap().key;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let store = fleet.store.clone();
        let serving = async move {
            compose::serve_api(&config, store, ApiOptions::default(), listener, CancellationToken::new()).await
        };
        Self {
            engine,
            url,
            key: key.expose_secret().to_owned(),
            operator: operator.expose_secret().to_owned(),
            client: http::client(&HttpOptions::default()).unwrap(),
            _serving: AbortOnDropHandle::new(tokio::spawn(serving)),
        }
    }

    pub(crate) fn fleet(&self) -> &Fleet {
        &self.engine.fleet
    }

    pub(crate) fn worker(&self) -> FleetWorker {
        self.engine.fleet.worker()
    }

    /// Stores a shared agent, `agent.alpha` unless `more` says otherwise. It goes through the API, which then drops
    /// its cached version.
    pub(crate) async fn put_agent(&self, more: Value) {
        let mut spec = json!({"key": "agent.alpha", "name": "Alpha", "prompts": {"conversation": "Be brief."}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let path = format!("/v1/agents/{}?shared=true", spec["key"].as_str().unwrap());
        let bearer = format!("Bearer {}", self.operator);
        let answer = self.send(Method::PUT, &path, Some(spec.to_string().into()), &[("authorization", &bearer)]).await;
        assert!(answer.status < 300, "{}", answer.text);
    }

    /// Stores a platform document.
    pub(crate) async fn put_platform(&self, document: Value) {
        let spec: PlatformSpec = serde_json::from_value(document).unwrap();
        assert_eq!(spec.problems(), []);
        self.fleet().store.put_platform(&spec).await.unwrap();
    }

    /// The seed's request with the endpoints of the test's stubs.
    pub(crate) fn seed(&self) -> Value {
        let mut request: Value = serde_json::from_str(include_str!("seed_request.json")).unwrap();
        let capabilities = &mut request["platform_runtime"]["capabilities"];
        for (capability, stub) in [
            ("llm_inference", &self.engine.model),
            ("embeddings", &self.engine.embeddings),
            ("vector_store", &self.engine.vectors),
            ("mcp_runtime", &self.engine.gateway),
            ("sandbox_execution", &self.engine.sandbox),
        ] {
            capabilities[capability]["endpoint_url"] = stub.url().into();
        }
        request
    }

    /// A request with a prompt and the seed's platform, without retrieval.
    pub(crate) fn request(&self, more: Value) -> Value {
        let mut request = self.seed();
        request["input"] = json!({"prompt": "hello"});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    }

    /// Sends any request.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        Answer::read(request.send().await.unwrap()).await
    }

    /// Submits an execution as the backend does.
    pub(crate) async fn post(&self, body: &Value) -> Answer {
        self.post_as(body, &[]).await
    }

    pub(crate) async fn post_as(&self, body: &Value, headers: &[(&str, &str)]) -> Answer {
        let headers = [&[("x-service-token", TOKEN)], headers].concat();
        self.send(Method::POST, PATH, Some(body.to_string().into()), &headers).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None, &[("x-service-token", TOKEN)]).await
    }

    /// Reads the record of an execution.
    pub(crate) async fn record(&self, id: &str) -> Value {
        let answer = self.get(&format!("{PATH}/{id}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body["execution"].clone()
    }

    /// Calls the public routes with the API key.
    pub(crate) async fn public(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let bearer = format!("Bearer {}", self.key);
        let body = body.map(|body| body.to_string().into_bytes());
        self.send(method, path, body, &[("authorization", &bearer)]).await
    }

    /// Calls the operator's routes with every scope.
    pub(crate) async fn operate(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let bearer = format!("Bearer {}", self.operator);
        self.send(method, path, body.map(|body| body.to_string().into_bytes()), &[("authorization", &bearer)]).await
    }

    pub(crate) async fn count(&self) -> i64 {
        sqlx::query_scalar("select count(*) from executions").fetch_one(&self.fleet().db.pool).await.unwrap()
    }

    /// Returns everything that Postgres stores of executions and the platform, as one text.
    pub(crate) async fn everything_stored(&self) -> String {
        let value = self
            .fleet()
            .json(
                "select jsonb_build_object(
                    'executions', (select jsonb_agg(to_jsonb(e)) from executions e),
                    'payloads', (select jsonb_agg(to_jsonb(p)) from execution_payloads p),
                    'events', (select jsonb_agg(to_jsonb(e)) from events e),
                    'steps', (select jsonb_agg(encode(s.body, 'escape') || coalesce(s.preview, '')) from steps s),
                    'messages', (
                        select jsonb_agg(encode(m.bytes, 'escape'))
                        from steps s cross join unnest(s.appends) as m (bytes)),
                    'providers', (select jsonb_agg(to_jsonb(p)) from platform_providers p))",
            )
            .await;
        value.to_string()
    }
}

/// Returns the execution id in the answer's header, after comparing it with the body.
pub(crate) fn named(answer: &Answer) -> ExecutionId {
    let id = answer.header("x-execution-id");
    assert!(!id.is_empty(), "{}", answer.text);
    let in_body = match answer.body["execution"]["id"].as_str() {
        Some(of_record) => of_record,
        None => answer.body["details"]["execution_id"].as_str().unwrap_or_default(),
    };
    assert_eq!(id, in_body, "{}", answer.text);
    id.parse().unwrap()
}
