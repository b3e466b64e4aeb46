//! Behaviour of every HTTP client of the product.

use axum::{Router, http::HeaderMap, response::Redirect, routing::get};
use longhaul_guards::http::{HttpOptions, client};

use crate::support::{
    hello::Hello,
    wait::{SOON, within},
};

async fn server() -> String {
    let agent = async |headers: HeaderMap| headers["user-agent"].to_str().unwrap().to_owned();
    let router = Router::new().route("/agent", get(agent)).route("/moved", get(async || Redirect::temporary("/agent")));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

#[tokio::test]
async fn client_sends_its_user_agent() {
    let said = client(&HttpOptions::default()).unwrap().get(format!("{}/agent", server().await)).send().await.unwrap();
    assert!(said.text().await.unwrap().starts_with("longhaul/"));
}

#[tokio::test]
async fn redirects_are_followed_only_if_enabled() {
    let moved = format!("{}/moved", server().await);
    let answer = client(&HttpOptions::default()).unwrap().get(&moved).send().await.unwrap();
    assert_eq!(answer.status(), 307);
    let follows = HttpOptions { max_redirects: 1, ..HttpOptions::default() };
    let answer = client(&follows).unwrap().get(&moved).send().await.unwrap();
    assert_eq!(answer.status(), 200);
}

/// Over HTTP/2 all requests of a process to a host would share one connection and wait for each other.
#[tokio::test]
async fn no_client_offers_http_2() {
    for options in [HttpOptions::default(), HttpOptions { sends_once: true, ..HttpOptions::default() }] {
        let hello = Hello::listen().await;
        let request = client(&options).unwrap().get(&hello.url).send();
        let (offers, _) = within("the hello", SOON, async { tokio::join!(hello.offers_http2(), request) }).await;
        assert!(!offers, "{options:?}");
    }
    // Control: a default client does offer it.
    #[expect(clippy::disallowed_methods, reason = "a client that is not ours")]
    let other = reqwest::Client::builder().build().unwrap();
    let hello = Hello::listen().await;
    let request = other.get(&hello.url).send();
    assert!(within("the hello", SOON, async { tokio::join!(hello.offers_http2(), request) }).await.0);
}
