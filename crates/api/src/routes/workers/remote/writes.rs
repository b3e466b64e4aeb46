//! `POST /v1/workers/{id}/writes`: steps and events of many executions.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use futures::future::join_all;
use longhaul_store::history::journal::{JournalWrite, StepState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    ItemError, MAX_ITEMS, UUID, execution,
    step::{EventBody, StepBody},
    token, worker_of,
};
use crate::{
    auth::Principal,
    body::{BATCH_LIMIT, read_json},
    error::ApiResult,
    extract::Path,
    state::ApiState,
};

/// Steps of one write.
const MAX_STEPS: usize = 500;
/// Events of one write.
const MAX_EVENTS: usize = 100;

/// Writes under leases.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WritesBody {
    #[schemars(length(min = 1, max = MAX_ITEMS))]
    writes: Vec<HeldWrite>,
}

/// A write under a lease.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeldWrite {
    #[schemars(regex(pattern = UUID))]
    execution: String,
    #[schemars(regex(pattern = UUID))]
    token: String,
    /// Number of the write under the lease, from 1.
    #[schemars(range(min = 1))]
    write: i32,
    #[serde(default)]
    #[schemars(length(max = MAX_STEPS))]
    steps: Vec<StepBody>,
    #[serde(default)]
    #[schemars(length(max = MAX_EVENTS))]
    events: Vec<EventBody>,
}

/// A last write under a lease, which is committed with its end.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LastWrite {
    /// Number of the write under the lease, from 1.
    #[schemars(range(min = 1))]
    write: i32,
    #[serde(default)]
    #[schemars(length(max = MAX_STEPS))]
    steps: Vec<StepBody>,
    #[serde(default)]
    #[schemars(length(max = MAX_EVENTS))]
    events: Vec<EventBody>,
}

impl LastWrite {
    pub(super) fn under(self, execution: &str, token: &str) -> HeldWrite {
        let Self { write, steps, events } = self;
        HeldWrite { execution: execution.to_owned(), token: token.to_owned(), write, steps, events }
    }
}

/// Results of writes, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WritesView {
    results: Vec<WriteResult>,
}

/// State of an execution after a write, or the reason for which it was not made.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct WriteResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = i32, required = false)]
    wake_seq: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = bool, required = false)]
    cancel_requested: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ItemError, required = false)]
    error: Option<ItemError>,
}

/// Records steps and events. A write that was made before changes nothing.
#[utoipa::path(
    post,
    operation_id = "recordSteps",
    path = "/v1/workers/{id}/writes",
    tag = "worker protocol",
    request_body = ref("#/components/schemas/WritesBody"),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "One result for each write, in order", body = WritesView)),
)]
pub(crate) async fn writes(
    State(state): State<ApiState>,
    principal: Principal,
    Path(worker): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<WritesView>> {
    let remote = worker_of(&state, &principal, &worker).await?;
    let body: WritesBody = read_json(&headers, body, BATCH_LIMIT).await?;
    let mut writes = Vec::with_capacity(body.writes.len());
    for (index, write) in body.writes.into_iter().enumerate() {
        writes.push(write.write(&format!("/writes/{index}"))?);
    }
    let ids: Vec<_> = writes.iter().map(|write| write.id).collect();
    let recorded = join_all(writes.into_iter().map(|write| remote.writer.record(write))).await;
    state.publisher.look(ids);
    let results = recorded.into_iter().map(|recorded| match recorded {
        Ok(recorded) => WriteResult {
            wake_seq: Some(recorded.wake_seq),
            cancel_requested: Some(recorded.cancel_requested),
            error: None,
        },
        Err(error) => WriteResult { error: Some(ItemError::of(&error)), ..WriteResult::default() },
    });
    Ok(Json(WritesView { results: results.collect() }))
}

impl HeldWrite {
    /// The write as the store makes it. `at` is its place in the body.
    ///
    /// # Errors
    /// A value is too large.
    pub(super) fn write(self, at: &str) -> ApiResult<JournalWrite> {
        let id = execution(&self.execution)?;
        let name = id.to_string();
        let mut steps = Vec::with_capacity(self.steps.len());
        for (index, step) in self.steps.into_iter().enumerate() {
            steps.push(step.step(&name, &format!("{at}/steps/{index}"))?);
        }
        let mut events = Vec::with_capacity(self.events.len());
        for (index, event) in self.events.into_iter().enumerate() {
            events.push(event.event(&format!("{at}/events/{index}"))?);
        }
        let done = steps.iter().filter(|step| step.state == StepState::Live).count();
        Ok(JournalWrite {
            id,
            token: token(&self.token)?,
            write: self.write,
            steps,
            events,
            turns: 0,
            calls: i32::try_from(done).unwrap_or(i32::MAX),
            settlements: Vec::new(),
        })
    }
}
