//! `POST /v1/workers/{id}/heartbeat`.

use std::{collections::HashSet, time::Duration};

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use chrono::{DateTime, Utc};
use longhaul_store::executions::outcomes::LeaseKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{UUID, announce::hand_back, execution, token, worker_of};
use crate::{auth::Principal, body::read_json, error::ApiResult, extract::Path, state::ApiState};

/// Age at which a lease that the worker does not know counts as leaked: its claim's answer has arrived by then.
const CLAIM_GRACE: Duration = Duration::from_secs(7);
/// Leases that a heartbeat names at most.
const MAX_HELD: usize = 10_000;
/// Body limit, in bytes.
const LIMIT: usize = 2 * 1024 * 1024;

/// A worker's sign of life.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeartbeatBody {
    /// The leases that it knows of.
    #[schemars(length(max = MAX_HELD))]
    held: Vec<HeldBody>,
    /// Resident memory of its process.
    #[schemars(range(min = 0))]
    memory_bytes: Option<i64>,
    /// True if its process was not suspended since the last heartbeat.
    #[serde(default)]
    was_awake: bool,
}

/// A lease.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeldBody {
    #[schemars(regex(pattern = UUID))]
    execution: String,
    #[schemars(regex(pattern = UUID))]
    token: String,
}

/// The answer to a sign of life.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HeartbeatView {
    /// `live`, or `draining`: claim nothing more, end what runs, and sign off.
    state: &'static str,
    /// Executions to be ended with `cancelled`.
    cancel: Vec<String>,
    /// Executions that the worker does not hold any more.
    lost: Vec<String>,
    lease_seconds: f64,
    /// Time of the database, by which waits are counted.
    now: DateTime<Utc>,
}

/// Renews a worker's lease, and compares the leases that it knows with those that it has.
#[utoipa::path(
    post,
    operation_id = "renewWorker",
    path = "/v1/workers/{id}/heartbeat",
    tag = "worker protocol",
    request_body = ref("#/components/schemas/HeartbeatBody"),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "The lease is renewed", body = HeartbeatView)),
)]
pub(crate) async fn heartbeat(
    State(state): State<ApiState>,
    principal: Principal,
    Path(worker): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<HeartbeatView>> {
    let remote = worker_of(&state, &principal, &worker).await?;
    let body: HeartbeatBody = read_json(&headers, body, LIMIT).await?;
    let drains = state.remotes.renew(&remote, body.memory_bytes, body.was_awake).await?;
    let mut known = HashSet::new();
    for held in &body.held {
        known.insert((execution(&held.execution)?, token(&held.token)?));
    }
    let leases = state.store.leases_of(remote.id, CLAIM_GRACE).await?;
    let (mut cancel, mut leaked) = (Vec::new(), Vec::new());
    for lease in &leases {
        if !known.remove(&(lease.id, lease.token)) {
            leaked.extend(lease.is_settled.then_some(LeaseKey { id: lease.id, token: lease.token }));
        } else if lease.cancel_requested {
            cancel.push(lease.id.to_string());
        }
    }
    for lease in leaked {
        hand_back(&state, &remote, lease.release()).await;
    }
    Ok(Json(HeartbeatView {
        state: if drains { "draining" } else { "live" },
        cancel,
        lost: known.into_iter().map(|(id, _)| id.to_string()).collect(),
        lease_seconds: state.remotes.times.lease.as_secs_f64(),
        now: state.store.now().await?,
    }))
}
