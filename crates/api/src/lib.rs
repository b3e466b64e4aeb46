//! The HTTP surface: routes, authentication, event streams, OpenAPI, status page.
//!
//! What must hold: nothing is stored of a request that is refused; a 2xx submit is committed; a caller sees its own tenant
//! alone; every error is problem+json with a stable code; everything has a size limit (docs/api.md). Not here: SQL (it is in
//! `shared::store`) and Redis (hooks and hints come from the caller).

mod auth;
mod catalog;
mod error;
mod extract;
mod hub;
mod middleware;
mod openapi;
mod page;
mod paging;
mod platform_health;
mod router;
mod routes;
mod schema;
mod server;
mod state;
mod stream_places;
mod unread_body;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use server::ConnectionLimits;

pub use error::{Problem, Violation};
pub use openapi::openapi;
pub use routes::contract::options::{ContractOptions, EngineOptions, HealthOptions};
pub use state::{
    Announce, ApiDeps, ApiOptions, Hooks, Look, QueueState, RenderMetrics, ReportQueue, Traceparent, Wake,
};

/// Serves until `shutdown`, then finishes what is under way: streams end, held submits answer with what there is.
pub async fn serve(deps: ApiDeps, listener: TcpListener, shutdown: CancellationToken) {
    let limits = ConnectionLimits::new(deps.options.max_connections);
    server::serve(limits, router::router(deps, shutdown.clone()), listener, shutdown).await;
}

/// The router without a listener, for tests that call it in-process.
pub fn router(deps: ApiDeps, shutdown: CancellationToken) -> axum::Router {
    router::router(deps, shutdown)
}
