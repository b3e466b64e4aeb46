//! `POST /v1/workers/{id}/claim`: the next executions, or the wait for them.

use std::{collections::HashMap, time::Duration};

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use chrono::{DateTime, Utc};
use longhaul_store::executions::claims::{ClaimFor, ClaimRequest, Claimed, Lane};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::{
    journal::{JournalPage, page},
    worker_of,
};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, read_json},
    error::{ApiError, ApiResult},
    extract::Path,
    remote::{Remote, WorkerError},
    state::ApiState,
};

const MAX_CLAIM: i32 = 100;
const MAX_WAIT: u32 = 30;
/// Suspects that one process holds at most (docs/design/lease.md).
const MAX_SUSPECTS: i32 = 4;
/// Wait of a worker that holds as many executions as it may, or drains.
const FULL_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of journals that one answer has, beside its last step.
const JOURNAL_BYTES: usize = 8 * 1024 * 1024;

/// A claim.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimBody {
    /// Most executions.
    #[schemars(range(min = 1, max = MAX_CLAIM))]
    max: i32,
    /// Longest wait for the first one.
    #[serde(default)]
    #[schemars(range(min = 0, max = MAX_WAIT))]
    wait_seconds: u32,
    /// Most executions that were held at two deaths of workers or more.
    #[serde(default)]
    #[schemars(range(min = 0, max = MAX_SUSPECTS))]
    suspects: i32,
    /// True if the worker holds no such execution, and may take one that must be alone.
    #[serde(default)]
    may_take_alone: bool,
}

/// Leased executions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimView {
    executions: Vec<ClaimedView>,
    /// Time of the database, by which waits are counted.
    now: DateTime<Utc>,
}

/// A leased execution.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimedView {
    id: String,
    /// Token of the lease, which every request about the execution names.
    token: String,
    /// Key of the definition.
    definition: String,
    /// Number of its version.
    version: i32,
    queue: String,
    /// `normal`, `suspect` or `alone`.
    lane: &'static str,
    /// Number of the attempt, from 1.
    attempt: i32,
    wake_seq: i32,
    cancel_requested: bool,
    /// Time that the attempt has.
    active_seconds: f64,
    deadline_at: DateTime<Utc>,
    created_at: DateTime<Utc>,
    /// Topmost execution of its tree.
    root: String,
    /// Levels below that.
    depth: i16,
    /// W3C trace context of the submit.
    traceparent: Option<String>,
    #[schema(value_type = Object)]
    metadata: Value,
    #[schema(value_type = Value)]
    input: Box<RawValue>,
    #[serde(flatten)]
    journal: JournalPage,
}

/// Leases the next executions of the worker's definitions; waits for them if there are none.
#[utoipa::path(
    post,
    operation_id = "claimExecutions",
    path = "/v1/workers/{id}/claim",
    tag = "worker protocol",
    request_body = ref("#/components/schemas/ClaimBody"),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "Executions, or none in the time to wait", body = ClaimView)),
)]
pub(crate) async fn claim(
    State(state): State<ApiState>,
    principal: Principal,
    Path(worker): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<ClaimView>> {
    let remote = worker_of(&state, &principal, &worker).await?;
    let body: ClaimBody = read_json(&headers, body, BODY_LIMIT).await?;
    let claimed = claimed(&state, &remote, &body).await?;
    let ids: Vec<_> = claimed.iter().map(|one| one.id).collect();
    let mut metadata = if ids.is_empty() { HashMap::new() } else { state.store.metadata_of(&ids).await? };
    let mut room = JOURNAL_BYTES;
    let mut executions = Vec::with_capacity(claimed.len());
    for one in claimed {
        let version = state.remotes.definition(one.definition_version_id, one.agent_version_id).await?;
        // Without history there is nothing to read.
        let journal = match one.has_history {
            true => page(&state, one.id, 0, &mut room).await?,
            false => JournalPage::default(),
        };
        let metadata = metadata.remove(&one.id).unwrap_or_default();
        executions.push(view(one, (&version.key, version.number), (metadata, journal))?);
    }
    Ok(Json(ClaimView { executions, now: state.store.now().await? }))
}

/// Claims until there is something, or the time is over.
async fn claimed(state: &ApiState, remote: &Remote, body: &ClaimBody) -> ApiResult<Vec<Claimed>> {
    let mut waiter = remote.waiter.try_lock().map_err(|_| WorkerError::ClaimUnderWay)?;
    let until = Instant::now() + Duration::from_secs(body.wait_seconds.into());
    loop {
        let max = room(state, remote, body.max).await?;
        if max == 0 {
            tokio::time::sleep_until(until.min(Instant::now() + FULL_PAUSE)).await;
            return Ok(Vec::new());
        }
        let serves = remote.serving.now(&state.store, (remote.id, &remote.build)).await?;
        let request = ClaimRequest {
            worker: remote.id,
            queues: &remote.queues,
            serves: &serves,
            tenants: ClaimFor::AnyTenant,
            max,
            suspects: body.suspects.min(MAX_SUSPECTS),
            may_take_alone: body.may_take_alone,
        };
        let claims = state.store.claim(&request, &remote.bounds).await?;
        state.publisher.runnable(&claims.woken);
        waiter.claimed(claims.claimed.len(), usize::try_from(max).unwrap_or_default()).await;
        if !claims.claimed.is_empty() {
            state.publisher.look(claims.claimed.iter().map(|one| one.id));
            return Ok(claims.claimed);
        }
        let is_woken = tokio::select! {
            is_woken = waiter.wait(usize::try_from(max).unwrap_or_default(), until) => is_woken,
            () = state.shutdown.cancelled() => false,
        };
        if !is_woken {
            return Ok(Vec::new());
        }
    }
}

/// Executions that a worker may claim, of those that it asks for.
///
/// # Errors
/// It is dead, or Postgres is unavailable.
async fn room(state: &ApiState, remote: &Remote, wanted: i32) -> ApiResult<i32> {
    let Some(standing) = state.store.standing(remote.id).await? else {
        state.remotes.forget(remote.id);
        return Err(WorkerError::WorkerDead.into());
    };
    let free = if standing.is_draining { 0 } else { i64::from(remote.concurrency) - standing.held };
    Ok(i32::try_from(free.clamp(0, wanted.into())).unwrap_or_default())
}

fn view(
    claimed: Claimed,
    (key, version): (&str, i32),
    (metadata, journal): (Value, JournalPage),
) -> ApiResult<ClaimedView> {
    Ok(ClaimedView {
        id: claimed.id.to_string(),
        token: claimed.token.to_string(),
        definition: key.to_owned(),
        version,
        lane: match claimed.lane {
            Lane::Normal => "normal",
            Lane::Suspect => "suspect",
            Lane::Alone => "alone",
        },
        attempt: claimed.attempt,
        wake_seq: claimed.wake_seq,
        cancel_requested: claimed.cancel_requested,
        active_seconds: (claimed.active_until - claimed.claimed_at).as_seconds_f64().max(0.0),
        deadline_at: claimed.deadline_at,
        created_at: claimed.created_at,
        root: claimed.root.to_string(),
        depth: claimed.depth,
        traceparent: claimed.traceparent,
        metadata,
        input: RawValue::from_string(claimed.input).map_err(|_| ApiError::Internal)?,
        queue: claimed.queue,
        journal,
    })
}
