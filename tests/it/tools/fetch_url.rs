//! `fetch_url` against a web server on this machine: refused unless allowed, and bounded in size and redirects.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::{StatusCode, header},
    response::{IntoResponse, Redirect},
    routing::get,
};
use longhaul_domain::CallErrorKind;
use longhaul_tools::{AllowedNetworks, CallOutcome, FetchUrlSettings, ToolRegistry, ToolSources, Toolbox};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::message;

struct Web {
    address: SocketAddr,
    _serving: AbortOnDropHandle<()>,
}

impl Web {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let html = || async { ([(header::CONTENT_TYPE, "text/html")], "<h1>Hi</h1><script>x</script><p>there</p>") };
        let latin =
            || async { ([(header::CONTENT_TYPE, "text/plain; charset=iso-8859-1")], Body::from(&b"caf\xe9"[..])) };
        let endless = || async {
            let chunks = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(bytes::Bytes::from(vec![b'z'; 1024])));
            ([(header::CONTENT_TYPE, "text/plain")], Body::from_stream(chunks))
        };
        let picture = || async { ([(header::CONTENT_TYPE, "image/png")], vec![0_u8; 10]) };
        let missing = || async { (StatusCode::NOT_FOUND, "no such page").into_response() };
        let router = Router::new()
            .route("/html", get(html))
            .route("/latin", get(latin))
            .route("/endless", get(endless))
            .route("/picture", get(picture))
            .route("/missing", get(missing))
            .route("/hop", get(|| async { Redirect::temporary("html") }))
            .route("/loop", get(|| async { Redirect::temporary("/loop") }))
            .route("/to-file", get(|| async { Redirect::temporary("file:///etc/passwd") }))
            .route("/to-login", get(|| async { Redirect::temporary("http://user:pass@127.0.0.1/") }));
        let serving = AbortOnDropHandle::new(tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }));
        Self { address, _serving: serving }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

async fn fetch_with(worker: FetchUrlSettings, settings: Value, url: &str) -> CallOutcome {
    let sources = ToolSources { registry: ToolRegistry::with_builtin(worker), ..ToolSources::default() };
    let mut agent = super::agent(json!({}));
    agent.tools =
        serde_json::from_value(json!([{"name": "fetch_url", "settings": settings, "timeout_seconds": 20}])).unwrap();
    let toolbox = Toolbox::open(&agent, &sources, AllowedNetworks::default()).await.unwrap();
    toolbox.call("fetch_url", &json!({ "url": url }).to_string(), "key", Arc::default()).await
}

const ANYWHERE: FetchUrlSettings = FetchUrlSettings { allow_private_addresses: true, max_bytes: 1 << 20 };

async fn fetch(url: &str) -> CallOutcome {
    fetch_with(ANYWHERE, Value::Null, url).await
}

#[tokio::test]
async fn page_is_returned_as_readable_text() {
    let web = Web::start().await;
    assert_eq!(fetch(&web.url("/html")).await.text, "Hi\nthere");
    assert_eq!(fetch(&web.url("/latin")).await.text, "café");
    assert_eq!(fetch(&web.url("/hop")).await.text, "Hi\nthere", "through a redirect");
    let picture = fetch(&web.url("/picture")).await;
    assert!(!picture.is_error() && picture.text.ends_with("is not text: [image/png, 10 bytes]"), "{}", picture.text);
}

#[tokio::test]
async fn private_addresses_are_refused_unless_the_worker_allows_them() {
    let web = Web::start().await;
    let port = web.address.port();
    for host in ["127.0.0.1", "localhost", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "[::1]", "169.254.169.254"] {
        // The agent's settings cannot lift the refusal.
        for settings in [json!({}), json!({"allow_private_addresses": true})] {
            let url = format!("http://{host}:{port}/html");
            let outcome = fetch_with(FetchUrlSettings::default(), settings, &url).await;
            assert_eq!(outcome.error, Some(CallErrorKind::Runtime), "{host}: {}", outcome.text);
            assert!(message(&outcome).contains("is not on the public internet"), "{host}: {}", outcome.text);
        }
    }
    assert_eq!(fetch(&format!("http://localhost:{port}/html")).await.text, "Hi\nthere");
}

#[tokio::test]
async fn redirects_are_checked_and_bounded() {
    let web = Web::start().await;
    for (path, expected) in [
        ("/loop", "it redirects more than 5 times"),
        ("/to-file", "only http and https URLs can be fetched, not `file`"),
        ("/to-login", "a URL with a user name or password cannot be fetched"),
    ] {
        assert_eq!(message(&fetch(&web.url(path)).await), expected);
    }
}

#[tokio::test]
async fn endless_page_is_cut_at_the_cap() {
    let web = Web::start().await;
    let outcome = fetch_with(ANYWHERE, json!({"max_bytes": 1_500}), &web.url("/endless")).await;
    assert!(outcome.text.ends_with("z\n[only the first 1500 bytes of the document were read]"), "{}", outcome.text);
}

#[tokio::test]
async fn fetch_errors_are_told_to_the_model() {
    let web = Web::start().await;
    let missing = fetch(&web.url("/missing")).await;
    assert!(message(&missing).ends_with("answered HTTP 404 Not Found: no such page"), "{}", missing.text);
    assert!(message(&fetch("not a url").await).starts_with("`url` is not an absolute URL"));
    let address = web.address;
    drop(web);
    let closed = fetch(&format!("http://{address}/html?key=abc")).await;
    assert!(message(&closed).starts_with("the connection failed"), "{}", closed.text);
    assert!(!message(&closed).contains("abc"));
}
