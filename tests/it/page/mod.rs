//! The page: signing in, every screen, what it refuses.

mod browser;
mod oidc;
mod screens;
mod sign_in;

use reqwest::Method;

use crate::support::api::{Answer, Caller, TestApi};

/// A browser that is signed in with a key.
struct Visitor {
    caller: Caller,
    cookie: String,
}

impl Visitor {
    async fn sign_in(api: &TestApi, key: &str) -> Self {
        let welcome = post_key(&api.nobody(), key, "/").await;
        assert_eq!((welcome.status, welcome.header("location")), (303, "/"), "{}", welcome.text);
        let cookie = welcome.header("set-cookie").split(';').next().unwrap().to_owned();
        Self { caller: api.nobody(), cookie }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None, &[]).await
    }

    /// Sends a request as a script of the page does, with further headers.
    async fn send(&self, method: Method, path: &str, body: Option<String>, headers: &[(&str, &str)]) -> Answer {
        let headers: Vec<(&str, &str)> = [("cookie", self.cookie.as_str())].iter().chain(headers).copied().collect();
        self.caller.send(method, path, body, &headers).await
    }
}

async fn post_key(caller: &Caller, key: &str, next: &str) -> Answer {
    let form = caller
        .request(Method::POST, "/login")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(format!("key={key}&next={next}"));
    Answer::read(form.send().await.unwrap()).await
}
