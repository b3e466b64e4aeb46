//! `web_search` with each kind of service, as stubs over HTTP: requests as the services document them, and every way
//! in which a search fails.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use longhaul_config::{Config, Sources, WebSearchConfig};
use longhaul_domain::CallErrorKind;
use longhaul_sdk::ToolEffect;
use longhaul_testkit::mcp::HttpMcp;
use longhaul_tools::{AllowedNetworks, CallOutcome, McpPool, ToolRegistry, ToolSources, Toolbox, WebSearch};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use tracing_subscriber::fmt::MakeWriter;

use super::{TOKEN, message, settings};
use crate::support::wait::SOON;

const KEY: &str = "brave-key-of-the-tests";

type Respond = fn() -> Response;

/// A search service on this machine that answers every request in the same way.
struct Service {
    address: SocketAddr,
    /// Path with query, `x-subscription-token` and `authorization` of each request.
    requests: Arc<Mutex<Vec<(String, String, String)>>>,
    _serving: AbortOnDropHandle<()>,
}

impl Service {
    async fn start(answer: impl Fn() -> Response + Clone + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let serve = get(move |request: Request| {
            let header =
                |name: &str| request.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
            let seen_now = (request.uri().to_string(), header("x-subscription-token"), header("authorization"));
            seen.lock().unwrap().push(seen_now);
            let answer = answer();
            async move { answer }
        });
        let router = Router::new().fallback_service(serve);
        let serving = AbortOnDropHandle::new(tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }));
        Self { address, requests, _serving: serving }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn request(&self) -> (String, String, String) {
        self.requests.lock().unwrap().last().expect("no request came").clone()
    }
}

/// What is logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

fn config(backend: &str, url: &str, more: &[(&str, &str)]) -> WebSearchConfig {
    let given = [("backend", backend), ("url", url), ("allow_private_addresses", "true")];
    let flags = given.iter().chain(more).map(|(key, value)| (format!("tools.web_search.{key}"), (*value).to_owned()));
    let sources = Sources { flags: flags.collect(), ..Sources::default() };
    Config::load(&sources).unwrap().tools.web_search
}

fn brave(service: &Service) -> WebSearchConfig {
    config("brave", &service.url(), &[("api_key", KEY)])
}

async fn search(config: &WebSearchConfig, arguments: Value) -> CallOutcome {
    let mcp = McpPool::new(settings());
    let mut registry = ToolRegistry::default();
    registry.add_web_search(WebSearch::new(config, &mcp).unwrap().unwrap());
    let sources = ToolSources { registry, mcp, ..ToolSources::default() };
    let mut agent = super::agent(json!({}));
    agent.tools = serde_json::from_value(json!(["web_search"])).unwrap();
    let toolbox = Toolbox::open(&agent, &sources, AllowedNetworks::default()).await.unwrap();
    assert_eq!(toolbox.effect("web_search"), ToolEffect::ReadOnly);
    toolbox.call("web_search", &arguments.to_string(), "key", Arc::default()).await
}

fn found(outcome: &CallOutcome) -> Value {
    assert!(!outcome.is_error(), "{}", outcome.text);
    serde_json::from_str(&outcome.text).unwrap()
}

#[tokio::test]
async fn brave_is_asked_as_documented() {
    let results: Vec<Value> = (0..30)
        .map(|n| json!({"url": format!("https://{n}.example/"), "title": "T", "description": "<b>D</b>"}))
        .collect();
    let answer = json!({"type": "search", "web": {"type": "search", "results": results}}).to_string();
    let service = Service::start(move || answer.clone().into_response()).await;
    let outcome = search(&brave(&service), json!({"query": "tea & biscuits", "count": 3})).await;
    let expected = json!({"title": "T", "url": "https://0.example/", "text": "D"});
    assert_eq!(found(&outcome)["results"].as_array().unwrap().len(), 3);
    assert_eq!(found(&outcome)["results"][0], expected);
    let (uri, key, _) = service.request();
    assert_eq!(uri, "/res/v1/web/search?q=tea+%26+biscuits&count=3&text_decorations=false");
    assert_eq!(key, KEY);
    // The worker's maximum restricts the call, and Brave's restricts the request.
    let few = config("brave", &service.url(), &[("api_key", KEY), ("max_results", "2")]);
    assert_eq!(found(&search(&few, json!({"query": "tea", "count": 9})).await)["results"].as_array().unwrap().len(), 2);
    let many = config("brave", &service.url(), &[("api_key", KEY), ("max_results", "50")]);
    search(&many, json!({"query": "tea", "count": 40})).await;
    assert!(service.request().0.contains("count=20&"), "{}", service.request().0);
}

#[tokio::test]
async fn searxng_is_asked_for_json() {
    let answer = json!({"query": "tea", "number_of_results": 0, "results": [
        {"url": "https://a.example/", "title": "A < B", "content": "Vec<T>", "publishedDate": "2026-01-02T00:00:00"},
    ]});
    let service = Service::start(move || answer.to_string().into_response()).await;
    let outcome = search(&config("searxng", &service.url(), &[]), json!({"query": "tea"})).await;
    let expected =
        json!({"title": "A < B", "url": "https://a.example/", "text": "Vec<T>", "published": "2026-01-02T00:00:00"});
    assert_eq!(found(&outcome), json!({ "results": [expected] }));
    assert_eq!(service.request(), ("/search?q=tea&format=json".into(), String::new(), String::new()));
    search(&config("searxng", &service.url(), &[("api_key", KEY)]), json!({"query": "tea"})).await;
    assert_eq!(service.request().2, format!("Bearer {KEY}"));
}

#[tokio::test]
async fn tool_of_an_mcp_server_searches() {
    let server = HttpMcp::start().await.unwrap();
    let with = |tool: &str| {
        let more = [
            ("mcp_tool", tool),
            ("mcp_query_argument", "text"),
            ("mcp_count_argument", ""),
            ("api_key", "env://TOKEN"),
            ("max_bytes", "500"),
        ];
        config("mcp", &server.url(), &more)
    };
    assert_eq!(search(&with("echo"), json!({"query": "tea"})).await.text, "tea");
    let long = search(&with("echo"), json!({"query": "x".repeat(400)})).await;
    assert_eq!(long.text.len(), 400);
    let leaked = search(&with("echo"), json!({ "query": TOKEN })).await;
    assert_eq!(leaked.text, "[redacted]");
    let unknown = search(&with("no_such_tool"), json!({"query": "tea"})).await;
    assert_eq!(unknown.error, Some(CallErrorKind::Runtime), "{}", unknown.text);
    let address = server.url();
    drop(server);
    let more = [("mcp_tool", "echo"), ("mcp_query_argument", "text"), ("mcp_count_argument", "")];
    let gone = search(&config("mcp", &address, &more), json!({"query": "tea"})).await;
    assert!(gone.ends_run.is_none() && message(&gone).contains("could not be reached"), "{}", gone.text);
}

#[tokio::test]
async fn rate_limit_is_an_error_with_its_time() {
    for (name, value, remaining, expected) in [
        ("x-ratelimit-reset", "1, 1419704", "0, 14523", "try again in 1 s"),
        ("x-ratelimit-reset", "1, 1419704", "1, 0", "try again in 1419704 s"),
        ("x-ratelimit-reset", "1, 1419704", "0, 0", "try again in 1419704 s"),
        ("x-ratelimit-reset", "1, 1419704", "1, 14523", "try again later"),
        ("x-ratelimit-reset", "1, soon", "0, 0", "try again in 1 s"),
        ("retry-after", "30", "", "try again in 30 s"),
        ("x-other", "1", "", "try again later"),
    ] {
        let limited = move || {
            let headers = [(name, value), ("x-ratelimit-remaining", remaining)];
            (StatusCode::TOO_MANY_REQUESTS, headers, "slow down").into_response()
        };
        let service = Service::start(limited).await;
        for config in [brave(&service), config("searxng", &service.url(), &[])] {
            let outcome = search(&config, json!({"query": "tea"})).await;
            assert_eq!(outcome.error, Some(CallErrorKind::Runtime));
            assert!(message(&outcome).ends_with(expected), "{}", outcome.text);
        }
    }
}

#[tokio::test]
async fn failed_searches_are_errors_without_the_key() {
    let echo = || (StatusCode::UNAUTHORIZED, format!("the token {KEY} is not valid")).into_response();
    let service = Service::start(echo).await;
    let refused = search(&brave(&service), json!({"query": "tea"})).await;
    let expected = "the search service answered HTTP 401 Unauthorized: the token [redacted] is not valid";
    assert_eq!(message(&refused), expected);
    let answers: [(Respond, &str); 4] = [
        (|| "<html>".into_response(), "answered something else than its results"),
        (|| "x".repeat(5_000).into_response(), "is larger than 4000 bytes"),
        (|| Redirect::temporary("http://169.254.169.254/").into_response(), "answered HTTP 307"),
        (|| (StatusCode::BAD_GATEWAY, "z".repeat(3_000)).into_response(), "bytes left out]"),
    ];
    for (answer, expected) in answers {
        let service = Service::start(answer).await;
        let config = config("brave", &service.url(), &[("api_key", KEY), ("max_bytes", "4000")]);
        let outcome = search(&config, json!({"query": "tea"})).await;
        assert!(message(&outcome).contains(expected), "{}", outcome.text);
        assert!(!outcome.text.contains(KEY));
    }
    let results = json!({"web": {"results": [{"url": "https://a.example/", "title": KEY}]}}).to_string();
    let service = Service::start(move || results.clone().into_response()).await;
    assert!(!search(&brave(&service), json!({"query": "tea"})).await.text.contains(KEY));
}

#[tokio::test]
async fn refused_key_is_logged_without_it() {
    for status in [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::BAD_REQUEST] {
        let service = Service::start(move || (status, format!("the token {KEY} is not valid")).into_response()).await;
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
        let default = tracing::subscriber::set_default(subscriber);
        assert!(search(&brave(&service), json!({"query": "tea"})).await.is_error());
        drop(default);
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let is_logged = log.contains("search service refused the key");
        assert_eq!(is_logged, status != StatusCode::BAD_REQUEST, "{log}");
        assert!(!log.contains(KEY), "{log}");
    }
}

#[tokio::test]
async fn silent_service_and_private_addresses_end_the_search() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let silent = config("searxng", &url, &[("timeout_seconds", "0.2")]);
    let outcome = tokio::time::timeout(SOON, search(&silent, json!({"query": "tea"}))).await.unwrap();
    assert_eq!(message(&outcome), "the search service did not answer within 0.2 s");
    for backend in ["brave", "searxng", "mcp"] {
        for host in ["127.0.0.1", "localhost"] {
            let url = url.replace("127.0.0.1", host);
            let more = [("allow_private_addresses", "false"), ("api_key", "env://TOKEN"), ("mcp_tool", "echo")];
            let more = if backend == "mcp" { &more[..] } else { &[more[0], ("api_key", KEY)][..] };
            let outcome = search(&config(backend, &url, more), json!({"query": "tea"})).await;
            assert!(message(&outcome).contains("is not on the public internet"), "{backend} {host}: {}", outcome.text);
        }
    }
}

#[tokio::test]
async fn arguments_beyond_the_bounds_are_refused() {
    let service = Service::start(|| "{}".into_response()).await;
    for arguments in
        [json!({}), json!({"query": ""}), json!({"query": "x".repeat(401)}), json!({"query": "x", "count": 0})]
    {
        let outcome = search(&brave(&service), arguments.clone()).await;
        assert!(outcome.is_error(), "{arguments}");
    }
    assert!(service.requests.lock().unwrap().is_empty());
}

#[test]
fn settings_without_their_service_do_not_start() {
    let load = |given: &[(&str, &str)]| {
        let flags = given.iter().map(|(key, value)| (format!("tools.web_search.{key}"), (*value).to_owned()));
        Config::load(&Sources { flags: flags.collect(), ..Sources::default() })
    };
    for (given, expected) in [
        (&[("backend", "brave")][..], "api_key must be set"),
        (&[("backend", "searxng")], "url must be set"),
        (&[("backend", "mcp"), ("url", "http://h/")], "mcp_tool"),
        (&[("backend", "mcp"), ("url", "http://h/"), ("mcp_tool", "t"), ("api_key", "secret")], "must be a reference"),
        (&[("url", "ftp://h/")], "must be an http or https URL"),
        (&[("max_results", "51")], "must be 1 to 50"),
    ] {
        let error = load(given).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(load(&[]).is_ok());
    let set = load(&[("backend", "brave"), ("api_key", KEY)]).unwrap();
    assert!(!format!("{set:?}{:?}", set.settings()).contains(KEY));
}
