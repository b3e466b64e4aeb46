//! The HTTP API: routes, authentication, event streams, OpenAPI, and the page over them.
//!
//! Invariants: a refused request stores nothing; a submit answered 2xx is committed; a caller sees only its own
//! tenant; every error is problem+json with a stable code; every input has a size limit (docs/reference/api.md). SQL
//! lives in `store`, Redis in `queue`.

mod audit;
mod auth;
mod body;
mod catalog;
mod catalog_error;
mod error;
mod event_stream;
mod extract;
mod fleet_watch;
mod idempotency_error;
mod kept_answers;
mod key_cache;
mod key_uses;
mod keyed_answer;
mod known_models;
mod middleware;
mod oidc_session;
mod openapi;
mod options;
mod paced_writes;
mod page_session;
mod paging;
mod platform_health;
mod problem;
mod reads;
pub mod records;
mod remote;
mod router;
mod routes;
mod schema;
mod sealed_cookie;
mod server;
mod session_cookie;
mod session_watch;
mod state;
mod traceparent;
mod unread_body;
mod wire;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use server::ConnectionLimits;
use state::ApiState;

pub use longhaul_oidc::Provider as OidcProvider;
pub use longhaul_page::PageOptions;
pub use options::{ApiOptions, WireOptions};
pub use problem::{Problem, Violation};
pub use remote::LeaseTimes;
pub use routes::contract::options::{ContractOptions, EngineOptions, HealthOptions};
pub use state::ApiDeps;

/// The OpenAPI document.
#[must_use]
pub fn openapi() -> serde_json::Value {
    openapi::complete(router::described().into_openapi())
}

/// Serves until `shutdown`, then completes open requests: streams end, held submits answer with the current record.
pub async fn serve(deps: ApiDeps, listener: TcpListener, shutdown: CancellationToken) {
    let limits = ConnectionLimits::new(deps.options.max_connections);
    let state = ApiState::new(deps, shutdown.clone());
    server::serve(limits, router::router(state.clone()), listener, shutdown).await;
    state.audit.close().await;
}

/// Returns the router without a listener, for tests that call it in-process.
pub fn router(deps: ApiDeps, shutdown: CancellationToken) -> axum::Router {
    router::router(ApiState::new(deps, shutdown))
}
