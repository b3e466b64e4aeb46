//! A receiver of webhooks that takes everything and keeps what it was told.

use std::sync::Arc;

use axum::{Json, Router, extract::State, http::HeaderMap, routing::post};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use crate::http_server::{HttpServer, Protocol, StartError};

/// A request that the receiver answered with 200.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// Header `webhook-id`.
    pub id: String,
    pub body: Value,
}

/// The running receiver, stopped when dropped.
pub struct Receiver {
    server: HttpServer,
    told: Log,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Told>>>);

impl Log {
    fn lock(&self) -> MutexGuard<'_, Vec<Told>> {
        self.0.lock()
    }
}

impl Receiver {
    /// Starts on a free port of the loopback.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn start() -> Result<Self, StartError> {
        let told = Log::default();
        let router = Router::new().route("/hook", post(receive)).with_state(told.clone());
        Ok(Self { server: HttpServer::start(Protocol::Http1, router).await?, told })
    }

    /// Address of the endpoint.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}/hook", self.server.url())
    }

    /// All requests so far.
    #[must_use]
    pub fn told(&self) -> Vec<Told> {
        self.told.lock().clone()
    }
}

async fn receive(State(log): State<Log>, headers: HeaderMap, Json(body): Json<Value>) {
    let id = headers.get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
    log.lock().push(Told { id: id.to_owned(), body });
}
