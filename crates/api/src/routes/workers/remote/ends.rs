//! `POST /v1/workers/{id}/ends`: ends of leases. The worker says how its function ended; the definition's retry policy
//! and its output schema decide here what follows, as they do in a worker of the installation.

use std::{sync::Arc, time::Duration};

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use futures::future::join_all;
use longhaul_domain::{ExecutionId, RetryPolicy, WaitReason};
use longhaul_sdk::{Failure, FailureClass, FailureCode};
use longhaul_store::{
    executions::outcomes::{Concluded, LeaseEnd, LeaseKey, MAX_OUTPUT_BYTES},
    fleet::remote::LeaseFacts,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use utoipa::ToSchema;

use super::{ItemError, MAX_ITEMS, UUID, announce::announce_end, execution, token, worker_of, writes::LastWrite};
use crate::{
    auth::Principal,
    body::{BATCH_LIMIT, NO_NUL, read_json},
    error::{ApiError, ApiResult},
    extract::Path,
    openapi::closed,
    remote::Remote,
    schema,
    state::ApiState,
    wire::place::run_of,
};

/// Characters of a failure's summary that are kept.
const MAX_SUMMARY: usize = 4_000;
/// Bytes of a failure's detail.
const MAX_DETAIL: usize = 64 * 1024;
/// Longest wait that a park names, in seconds: longer than any execution lives.
const MAX_SECONDS: f64 = 2_592_000.0;

/// Ends of leases.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndsBody {
    #[schemars(length(min = 1, max = MAX_ITEMS))]
    ends: Vec<HeldEnd>,
}

/// The end of a lease.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HeldEnd {
    #[schemars(regex(pattern = UUID))]
    execution: String,
    #[schemars(regex(pattern = UUID))]
    token: String,
    /// A last write, committed together with the end.
    write: Option<LastWrite>,
    outcome: OutcomeBody,
}

/// The way in which a function ended. The fields beside `type` are those of docs/reference/worker-protocol.md.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OutcomeBody {
    r#type: OutcomeType,
    /// Output of `finish`.
    #[schemars(with = "Option<Value>")]
    output: Option<Box<RawValue>>,
    /// Class of the failure of `fail`; `permanent` when absent.
    class: Option<ClassBody>,
    /// Code of the failure.
    #[schemars(regex(pattern = "^[a-zA-Z0-9._-]{1,128}$"))]
    code: Option<String>,
    /// Text of the failure, for people.
    #[serde(default)]
    #[schemars(regex(pattern = NO_NUL))]
    summary: String,
    /// Facts about the failure, for machines.
    detail: Option<Value>,
    /// Least time until the next attempt after a failure.
    #[schemars(range(min = 0, max = MAX_SECONDS))]
    retry_after_seconds: Option<f64>,
    /// Cause of the wait of `park`.
    reason: Option<ParkReason>,
    /// Longest wait; until the deadline when absent.
    #[schemars(range(min = 0, max = MAX_SECONDS))]
    seconds: Option<f64>,
    /// Newest wake counter that was known before the worker looked if the wait is over.
    #[serde(default)]
    wake_seq: i32,
}

/// Kind of an end.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OutcomeType {
    /// FINISHED with an output.
    Finish,
    /// Retried by the definition's policy for the class, else FAILED.
    Fail,
    /// Waits for a wake, or for so long.
    Park,
    /// Runnable again at once.
    Release,
    /// Runnable again at once, because the worker shuts down.
    Drain,
    /// FAILED `cancelled`.
    Cancelled,
    /// FAILED `deadline_exceeded`: the attempt had no time left.
    TimedOut,
}

/// Class of a failure.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ClassBody {
    Permanent,
    Transient,
    ToolError,
    LlmError,
}

/// Cause of a wait.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ParkReason {
    Sleep,
    Signal,
    Children,
    Approval,
    Question,
}

impl ParkReason {
    fn reason(self) -> WaitReason {
        match self {
            Self::Sleep => WaitReason::Scheduled,
            Self::Signal | Self::Question => WaitReason::Input,
            Self::Children => WaitReason::Children,
            Self::Approval => WaitReason::Approval,
        }
    }
}

impl From<ClassBody> for FailureClass {
    fn from(class: ClassBody) -> Self {
        match class {
            ClassBody::Permanent => Self::Permanent,
            ClassBody::Transient => Self::Transient,
            ClassBody::ToolError => Self::ToolError,
            ClassBody::LlmError => Self::LlmError,
        }
    }
}

/// Results of ends, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EndsView {
    results: Vec<EndResult>,
}

/// State of an execution after the end of its lease, or the reason for which it did not end.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EndResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = closed::ExecutionStatus, required = false)]
    status: Option<&'static str>,
    /// Cause of the wait of an execution that has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = closed::WaitReason, required = false)]
    wait_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ItemError, required = false)]
    error: Option<ItemError>,
}

/// Ends leases. An end that was made before changes nothing.
#[utoipa::path(
    post,
    operation_id = "endLeases",
    path = "/v1/workers/{id}/ends",
    tag = "worker protocol",
    request_body = ref("#/components/schemas/EndsBody"),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "One result for each end, in order", body = EndsView)),
)]
pub(crate) async fn ends(
    State(state): State<ApiState>,
    principal: Principal,
    Path(worker): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<EndsView>> {
    let remote = worker_of(&state, &principal, &worker).await?;
    let body: EndsBody = read_json(&headers, body, BATCH_LIMIT).await?;
    let mut ids = Vec::with_capacity(body.ends.len());
    for end in &body.ends {
        ids.push(execution(&end.execution)?);
    }
    let facts = state.store.lease_facts(remote.id, &ids).await?;
    let mut ends = Vec::with_capacity(ids.len());
    for (index, (end, id)) in body.ends.into_iter().zip(&ids).enumerate() {
        let facts = facts.iter().find(|facts| facts.id == *id);
        let stops = matches!(end.outcome.r#type, OutcomeType::Cancelled | OutcomeType::TimedOut);
        if stops && facts.is_some() {
            // Its model calls under way are not wanted any more.
            state.store.cancel_run(remote.tenant, &run_of(*id)).await?;
        }
        ends.push((decided(&state, end, facts, &format!("/ends/{index}")).await?, facts));
    }
    let results = join_all(ends.into_iter().map(|(end, facts)| conclude(&state, &remote, end, facts))).await;
    Ok(Json(EndsView { results }))
}

/// The end as the store makes it. Without facts the lease is lost or ended before, and the store tells which.
async fn decided(state: &ApiState, end: HeldEnd, facts: Option<&LeaseFacts>, at: &str) -> ApiResult<LeaseEnd> {
    let HeldEnd { execution: id, token: text, write, outcome } = end;
    let lease = LeaseKey { id: execution(&id)?, token: token(&text)? };
    let write = write.map(|write| write.under(&id, &text).write(&format!("{at}/write"))).transpose()?;
    let missing = |field: &str| ApiError::invalid(format!("{at}/outcome/{field}"), "is required");
    let after = |seconds: Option<f64>| seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let ended = match outcome.r#type {
        OutcomeType::Finish => {
            finished(state, lease, outcome.output.as_ref().map_or("null", |of| of.get()), facts).await?
        }
        OutcomeType::Fail => {
            if outcome.detail.as_ref().is_some_and(|detail| detail.to_string().len() > MAX_DETAIL) {
                return Err(ApiError::invalid(format!("{at}/outcome/detail"), format!("is over {MAX_DETAIL} bytes")));
            }
            let code = outcome.code.ok_or_else(|| missing("code"))?;
            let code = FailureCode::custom(code).map_err(|_| ApiError::Internal)?;
            let summary: String = outcome.summary.chars().take(MAX_SUMMARY).collect();
            let class = outcome.class.unwrap_or(ClassBody::Permanent);
            let failure = Failure { detail: outcome.detail, ..Failure::new(class.into(), code, summary) };
            failed(state, lease, &failure, after(outcome.retry_after_seconds), facts).await?
        }
        OutcomeType::Park => {
            let reason = outcome.reason.ok_or_else(|| missing("reason"))?.reason();
            lease.park(reason, after(outcome.seconds), outcome.wake_seq)
        }
        OutcomeType::Release => lease.release(),
        OutcomeType::Drain => lease.drain(),
        OutcomeType::Cancelled => lease.cancel(),
        OutcomeType::TimedOut => {
            lease.fail(&Failure::permanent(FailureCode::DEADLINE_EXCEEDED, "the execution ran longer than it may"))
        }
    };
    Ok(ended.with(write.map(Arc::new)))
}

/// FINISHED, unless the definition's schema refuses the output.
async fn finished(state: &ApiState, lease: LeaseKey, text: &str, facts: Option<&LeaseFacts>) -> ApiResult<LeaseEnd> {
    let invalid = |summary: String| lease.fail(&Failure::permanent(FailureCode::VALIDATION_FAILED, summary));
    if text.len() > MAX_OUTPUT_BYTES {
        return Ok(lease.finish(text.to_owned()));
    }
    let Some(facts) = facts else { return Ok(lease.finish(text.to_owned())) };
    let definition = state.remotes.definition(facts.definition, facts.agent).await?;
    if let Some(schema) = &definition.output {
        let Ok(value) = serde_json::from_str::<Value>(text) else {
            return Ok(invalid("the output cannot be read as JSON".into()));
        };
        if let Some(one) = schema::violations(schema, &value, "").await?.first() {
            return Ok(invalid(format!("the output does not fit its schema at `{}`: {}", one.path, one.message)));
        }
    }
    Ok(lease.finish(text.to_owned()))
}

/// Retried after a delay, or FAILED.
async fn failed(
    state: &ApiState,
    lease: LeaseKey,
    failure: &Failure,
    retry_after: Option<Duration>,
    facts: Option<&LeaseFacts>,
) -> ApiResult<LeaseEnd> {
    let Some(facts) = facts else { return Ok(lease.fail(failure)) };
    let definition = state.remotes.definition(facts.definition, facts.agent).await?;
    let policy = RetryPolicy::from(&definition.retry);
    let delay = policy.delay(failure.class, facts.retries, retry_after, lease.token.chance());
    Ok(match delay {
        Some(delay) => lease.retry(failure, delay, facts.wake_seq),
        None => lease.fail(failure),
    })
}

/// Commits and announces an end.
async fn conclude(state: &ApiState, remote: &Remote, end: LeaseEnd, facts: Option<&LeaseFacts>) -> EndResult {
    let id: ExecutionId = end.id();
    match remote.writer.conclude(end).await {
        Ok(concluded) => {
            announce_end(state, remote, (id, facts), &concluded).await;
            let Concluded { status, wait_reason, .. } = concluded;
            EndResult { status: Some(status.as_str()), wait_reason: wait_reason.map(WaitReason::as_str), error: None }
        }
        Err(error) => EndResult { status: None, wait_reason: None, error: Some(ItemError::of(&error)) },
    }
}
