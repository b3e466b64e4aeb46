//! The whole API in this process on a port of its own, over a database and a Redis prefix of the test's own, with a
//! client that holds a key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longhaul_api::{ApiDeps, ApiOptions, OidcProvider};
use longhaul_config::{Config, Sources};
use longhaul_domain::{ExecutionId, Price, Prices, ProviderPrices, TenantId};
use longhaul_files::Files;
use longhaul_guards::http::{HttpOptions, client};
use longhaul_queue::{hints::LookSubscriber, producer::WakeupPublisher};
use longhaul_retrieval::OwnIndexes;
use longhaul_sdk::spec::{AgentSpec, DefinitionSpec};
use longhaul_store::executions::submit::Submitter;
use longhaul_store::tenants::api_keys::{Pepper, Scope};
use longhaul_store::{Store, StoreOptions};
use longhaul_webhooks::{Channels, WebhookOptions};
use reqwest::Method;
use reqwest::header::HeaderMap;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::AbortOnDropHandle,
};

use super::{db::TestDb, documented, fleet::Fleet, redis::TestRedis};

/// Default scopes of a tenant's own key.
pub(crate) const EVERYDAY: &[Scope] =
    &[Scope::ExecutionsRead, Scope::ExecutionsWrite, Scope::DefinitionsRead, Scope::DefinitionsWrite];

/// One API process; stops on drop.
pub(crate) struct TestApi {
    pub(crate) db: Arc<TestDb>,
    pub(crate) redis: TestRedis,
    /// Store that the process itself uses.
    pub(crate) store: Store,
    /// Files that the process itself uses.
    pub(crate) files: Files,
    /// Caller with a key of tenant `acme`.
    pub(crate) acme: Caller,
    /// Tenant of the key in [`Self::acme`].
    pub(crate) tenant: TenantId,
    /// Publisher that the process itself uses.
    pub(crate) publisher: WakeupPublisher,
    pepper: Pepper,
    _stop: DropGuard,
}

/// A price for the default model of the default provider, and for no other.
fn prices() -> Prices {
    let usd = |text: &str| text.parse().unwrap();
    let price = Price { input: usd("1"), cached_input: usd("0.10"), cache_write_input: usd("1"), output: usd("4") };
    let scripted =
        ProviderPrices { default_model: Some("scripted".into()), models: [("scripted".into(), price)].into() };
    Prices { default_provider: "scripted".into(), providers: [("scripted".into(), scripted)].into() }
}

/// A client with the address of a process and, mostly, a key.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) url: String,
    pub(crate) client: reqwest::Client,
    pub(crate) key: Option<String>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    /// Null if it is not JSON.
    pub(crate) body: Value,
}

impl TestApi {
    /// Starts an API with the agent `clerk` and the definition `invoice`, shared by all tenants.
    pub(crate) async fn start() -> Self {
        Self::start_with(ApiOptions::default()).await
    }

    pub(crate) async fn start_with(options: ApiOptions) -> Self {
        Self::start_configured(options, BTreeMap::new()).await
    }

    /// Starts an API with settings as environment variables.
    pub(crate) async fn start_configured(options: ApiOptions, settings: BTreeMap<String, String>) -> Self {
        let (db, redis) = (Arc::new(TestDb::create().await), TestRedis::create().await);
        let api = Self::serve(db, redis, options, settings).await;
        api.store.put_shared_agent(&agent("clerk")).await.unwrap();
        api.store.put_shared_definition(&invoice()).await.unwrap();
        api
    }

    /// Another process over the same database and Redis.
    pub(crate) async fn beside(&self) -> Self {
        Self::serve(Arc::clone(&self.db), self.redis.clone(), ApiOptions::default(), BTreeMap::new()).await
    }

    /// A process over the database and the Redis of a fleet, with the settings of its workers.
    pub(crate) async fn over(fleet: &Fleet, options: ApiOptions) -> Self {
        Self::serve(fleet.db.clone(), fleet.redis.clone(), options, fleet.environment().clone()).await
    }

    async fn serve(db: Arc<TestDb>, redis: TestRedis, options: ApiOptions, settings: BTreeMap<String, String>) -> Self {
        let store = Store::open(StoreOptions::new(db.url.clone())).unwrap();
        let publisher = WakeupPublisher::start(&redis.options()).unwrap();
        let pepper = Pepper::from(SecretString::from("a pepper of the tests"));
        let sources = Sources { environment: settings, ..Sources::default() };
        let config = Config::load(&sources).unwrap();
        let files = Files::new(store.clone(), &config.files).unwrap();
        let deps = ApiDeps {
            prices: prices(),
            files: files.clone(),
            indexes: OwnIndexes::new(store.clone(), config.retrieval).unwrap(),
            store: store.clone(),
            submitter: Submitter::spawn(store.clone(), Duration::from_secs(10)),
            pepper: pepper.clone(),
            oidc: config.oidc.options().unwrap().map(|options| OidcProvider::new(options).unwrap()),
            publisher: publisher.clone(),
            redis: redis.options(),
            looks: LookSubscriber::start(&redis.options()).unwrap(),
            options,
        };
        let stop = CancellationToken::new();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(longhaul_api::serve(deps, listener, stop.clone()));
        let tenant = store.ensure_tenant("acme", None).await.unwrap().id;
        let client = client(&HttpOptions::default()).unwrap();
        let mut api = Self {
            db,
            redis,
            store,
            files,
            acme: Caller { url, client, key: None },
            tenant,
            publisher,
            pepper,
            _stop: stop.drop_guard(),
        };
        api.acme = api.caller("acme", EVERYDAY).await;
        api
    }

    /// A caller with a new key of an organisation.
    pub(crate) async fn caller(&self, org: &str, scopes: &[Scope]) -> Caller {
        let tenant = self.store.ensure_tenant(org, None).await.unwrap();
        let issued = self.store.issue_api_key(tenant.id, "test", scopes, &self.pepper).await.unwrap();
        Caller { key: Some(issued.key.expose_secret().to_owned()), ..self.acme.clone() }
    }

    /// A caller without a key.
    pub(crate) fn nobody(&self) -> Caller {
        Caller { key: None, ..self.acme.clone() }
    }

    /// Delivers to webhooks as the process does, until the returned guard is dropped.
    pub(crate) fn deliver(&self, options: WebhookOptions) -> AbortOnDropHandle<()> {
        self.deliver_to(options, Channels::default())
    }

    /// The same, to channels too.
    pub(crate) fn deliver_to(&self, options: WebhookOptions, channels: Channels) -> AbortOnDropHandle<()> {
        let (store, pepper) = (self.store.clone(), self.pepper.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            longhaul_webhooks::deliver(store, pepper, options, channels, CancellationToken::new()).await.unwrap();
        }))
    }

    /// Wake-ups that the process sent to a queue and that no worker has taken, in order.
    pub(crate) async fn woken(&self, queue: &str) -> Vec<ExecutionId> {
        self.publisher.flush().await;
        self.redis.woken(queue).await
    }

    /// Number of executions.
    pub(crate) async fn count(&self) -> i64 {
        sqlx::query_scalar("select count(*) from executions").fetch_one(&self.db.pool).await.unwrap()
    }

    /// Submits an invoice. Returns its id.
    pub(crate) async fn submit(&self) -> ExecutionId {
        self.submit_with(json!({})).await
    }

    /// Submits an invoice with further fields. Returns its id.
    pub(crate) async fn submit_with(&self, more: Value) -> ExecutionId {
        let mut body = json!({"definition": "invoice", "input": {"text": "total 12"}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = self.acme.post("/v1/executions", &body).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.body["id"].as_str().unwrap().parse().unwrap()
    }
}

impl Caller {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None, &[]).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, Some(body.to_string()), &[]).await
    }

    pub(crate) async fn post_as(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> Answer {
        self.send(Method::POST, path, Some(body.to_string()), headers).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, Some(body.to_string()), &[]).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, None, &[]).await
    }

    /// Sends `body` as `application/json`, even if it is not JSON.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = self.request(method.clone(), path);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = Answer::read(request.send().await.unwrap()).await;
        documented::check(&method, path, &answer);
        answer
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url)).timeout(Duration::from_secs(60));
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }
}

impl Answer {
    pub(crate) async fn read(response: reqwest::Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        Self { status, headers, body: serde_json::from_str(&text).unwrap_or(Value::Null), text }
    }

    /// Stable code of an error.
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// Status and code.
    pub(crate) fn error(&self) -> (u16, &str) {
        (self.status, self.code())
    }

    /// Paths of the violations.
    pub(crate) fn paths(&self) -> Vec<&str> {
        let errors = self.body["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
        errors.iter().filter_map(|error| error["path"].as_str()).collect()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

pub(crate) fn agent(key: &str) -> AgentSpec {
    serde_json::from_value(json!({"key": key, "name": key, "prompts": {"conversation": "You help."}})).unwrap()
}

/// `invoice`: a text, perhaps an amount, nothing else.
pub(crate) fn invoice() -> DefinitionSpec {
    let schema = json!({
        "type": "object",
        "required": ["text"],
        "additionalProperties": false,
        "properties": {"text": {"type": "string"}, "amount": {"type": "number"}},
    });
    DefinitionSpec { input_schema: schema, ..DefinitionSpec::new("invoice", "clerk") }
}
