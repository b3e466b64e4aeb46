//! What every HTTP client of the product does and does not do by itself.

use axum::{Router, http::HeaderMap, response::Redirect, routing::get};
use longhaul_shared::http::{HttpOptions, client};

async fn server() -> String {
    let agent = async |headers: HeaderMap| headers["user-agent"].to_str().unwrap().to_owned();
    let router = Router::new().route("/agent", get(agent)).route("/moved", get(async || Redirect::temporary("/agent")));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

#[tokio::test]
async fn a_client_names_itself() {
    let said = client(&HttpOptions::default()).unwrap().get(format!("{}/agent", server().await)).send().await.unwrap();
    assert!(said.text().await.unwrap().starts_with("longhaul/"));
}

#[tokio::test]
async fn redirects_are_followed_only_when_asked_for() {
    let moved = format!("{}/moved", server().await);
    let answer = client(&HttpOptions::default()).unwrap().get(&moved).send().await.unwrap();
    assert_eq!(answer.status(), 307);
    let follows = HttpOptions { max_redirects: 1, ..HttpOptions::default() };
    let answer = client(&follows).unwrap().get(&moved).send().await.unwrap();
    assert_eq!(answer.status(), 200);
}
