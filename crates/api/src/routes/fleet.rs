//! `GET /v1/fleet/demand`, the number to scale workers on, and `GET /v1/fleet/offers`, the names that workers know.

use axum::{Json, extract::State};
use longhaul_domain::{Offers, QueueName};
use longhaul_store::{fleet::demand::Demand, tenants::api_keys::Scope};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{auth::Reader, error::ApiResult, extract::Params, fleet_watch::assumed, state::ApiState};

/// Most queues of one request.
const MAX_QUEUES: usize = 64;
/// Most executions that one worker runs at a time, as in its setting.
const MAX_CONCURRENCY: u64 = 100_000;

/// The work that waits for or runs on workers, and the number of workers that it takes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FleetDemand {
    /// Workers that run everything due and held at once; never fewer than `busy_workers`.
    workers_wanted: u64,
    /// Executions that wait for a worker, counted to 100,000.
    due: u64,
    /// Executions under a lease.
    held: u64,
    /// Workers that show signs of life.
    live_workers: u64,
    /// Workers that hold a lease.
    busy_workers: u64,
    /// Executions that a worker runs at a time, as assumed for `workers_wanted`.
    concurrency: u64,
}

/// Lists the names of tools, validators, providers and models that records may use.
///
/// Needs the scope `definitions:write`. `longhaul apply` compares files with it.
#[utoipa::path(
    get,
    operation_id = "getFleetOffers",
    path = "/v1/fleet/offers",
    tag = "definitions",
    responses(
        (
            status = 200,
            description = "The names, in order; all lists are empty while no worker lives",
            body = ref("#/components/schemas/Offers"),
        ),
    ),
)]
pub(crate) async fn offers(
    State(state): State<ApiState>,
    principal: Reader,
    params: Params,
) -> ApiResult<Json<Offers>> {
    principal.need(Scope::DefinitionsWrite)?;
    params.finish()?;
    Ok(Json(Offers::read(&state.store.offers().await?)))
}

/// Counts the workers that the work takes, for a scaler.
///
/// Needs the scope `admin`. Without `concurrency`, workers are taken to be as large as the live ones are on average, or
/// as `worker.concurrency` says if none lives.
#[utoipa::path(get, operation_id = "getFleetDemand", path = "/v1/fleet/demand", tag = "operation",
    params(("queues" = Option<String>, Query, description = "Names of queues, separated by commas; all if absent"),
        ("concurrency" = Option<u64>, Query, description = "Executions that one worker runs at a time")),
    responses((status = 200, description = "The demand", body = FleetDemand)))]
pub(crate) async fn demand(
    State(state): State<ApiState>,
    principal: Reader,
    mut params: Params,
) -> ApiResult<Json<FleetDemand>> {
    principal.need(Scope::Admin)?;
    let queues: Vec<String> =
        params.text("queues").map(|names| names.split(',').map(str::to_owned).collect()).unwrap_or_default();
    if queues.len() > MAX_QUEUES || queues.iter().any(|name| QueueName::new(name).is_err()) {
        params.violation("queues", format!("must be at most {MAX_QUEUES} names of queues, separated by commas"));
    }
    let concurrency: Option<u64> = params.take("concurrency");
    if concurrency.is_some_and(|concurrency| !(1..=MAX_CONCURRENCY).contains(&concurrency)) {
        params.violation("concurrency", format!("must be between 1 and {MAX_CONCURRENCY}"));
    }
    params.finish()?;
    let demand = state.store.demand(&queues).await?;
    let concurrency = concurrency.unwrap_or_else(|| assumed(&demand, state.options.worker_concurrency));
    let Demand { due, held, live_workers, busy_workers, .. } = demand;
    let workers_wanted = demand.workers_wanted(concurrency);
    Ok(Json(FleetDemand { workers_wanted, due, held, live_workers, busy_workers, concurrency }))
}
