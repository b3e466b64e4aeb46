//! Liveness, readiness and metrics of this process.

use std::time::Duration;

use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use longhaul_queue::watch::QueueState;
use longhaul_telemetry as telemetry;
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::state::ApiState;

const PING_LIMIT: Duration = Duration::from_secs(2);

/// Answer of `/readyz`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Readiness {
    /// True if requests can be served: Postgres answers and has the schema of this release.
    ready: bool,
    postgres: PostgresState,
    schema: SchemaState,
    redis: RedisState,
}

/// State of Postgres.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum PostgresState {
    Up,
    Down,
}

/// State of the database schema: `missing` before `longhaul migrate`, `unknown` while Postgres does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum SchemaState {
    Current,
    Missing,
    Unknown,
}

/// State of Redis. Reported, never required: without Redis, workers poll Postgres.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum RedisState {
    Up,
    Down,
    Unknown,
}

/// Checks that the process runs.
#[utoipa::path(
    get,
    operation_id = "getHealth",
    path = "/healthz",
    tag = "operation",
    security(()),
    responses((status = 200, description = "It lives", content_type = "text/plain", body = String)),
)]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Checks that the process can serve requests.
#[utoipa::path(
    get,
    operation_id = "getReadiness",
    path = "/readyz",
    tag = "operation",
    security(()),
    responses(
        (status = 200, description = "Ready", body = Readiness),
        (
            status = 503,
            description = "Postgres does not answer, or has not the schema of this release",
            body = Readiness,
        ),
    ),
)]
pub(crate) async fn readyz(State(state): State<ApiState>) -> Response {
    let (postgres, schema) = match timeout(PING_LIMIT, state.store.has_schema()).await {
        Ok(Ok(true)) => (PostgresState::Up, SchemaState::Current),
        Ok(Ok(false)) => (PostgresState::Up, SchemaState::Missing),
        Ok(Err(_)) | Err(_) => (PostgresState::Down, SchemaState::Unknown),
    };
    let ready = schema == SchemaState::Current;
    let redis = match state.queue.state() {
        QueueState::Up => RedisState::Up,
        QueueState::Down => RedisState::Down,
        QueueState::Unknown => RedisState::Unknown,
    };
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready, postgres, schema, redis })).into_response()
}

/// Returns the Prometheus metrics of this process.
#[utoipa::path(
    get,
    operation_id = "getMetrics",
    path = "/metrics",
    tag = "operation",
    security(()),
    responses((status = 200, description = "Prometheus text format", content_type = "text/plain", body = String)),
)]
pub(crate) async fn metrics() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], telemetry::metrics::render())
}
