//! `GET /v1/executions/{id}/waiting`: explains why an execution waits and what ends the wait.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionStatus, RequestKind, WaitReason};
use longhaul_sdk::failure::FailureCode;
use longhaul_store::{
    tenants::api_keys::Scope,
    waiting::{COUNT_CAP, EndpointStanding, LimitStanding, OpenChild, OpenRequest, SessionTurn, Waiting},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{advice::advice, budget::BudgetView};
use crate::{
    auth::Reader,
    error::{ApiError, ApiResult},
    extract::{ExecutionPath, Params, take_reach},
    openapi::{closed, params::Id},
    routes::quarantine::view::GroupView,
    state::ApiState,
};

/// Place in a line.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlaceView {
    /// Executions of the same tenant before it; counted up to 1000.
    ahead: i64,
    /// True if there may be more than `ahead`.
    is_at_least: bool,
    /// Other tenants that wait in the same line. Tenants take turns by their usage.
    other_tenants: i64,
}

/// Live workers that could run it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LiveWorkersView {
    count: i64,
    /// Maximum number of executions that they run at a time.
    permits: i64,
    free: i64,
}

/// A concurrency limit of which it needs a slot.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NeededLimitView {
    /// Key that groups executions, with this execution's value.
    #[schema(example = "metadata.customer:acme")]
    key: String,
    #[schema(value_type = closed::LimitSource)]
    source: String,
    /// Definition or agent that has the limit.
    subject: Option<String>,
    limit: i32,
    held: i64,
    /// Executions of the same tenant that hold slots; at most twenty.
    holders: Vec<String>,
    /// Slots held by other tenants.
    held_by_others: i64,
    /// True if the execution waits for this limit.
    is_waited_for: bool,
}

/// A request to a person or its caller that it waits for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OpenRequestView {
    id: String,
    /// `tool_call`: its caller runs the call.
    #[schema(value_type = closed::RequestKind)]
    kind: String,
    call_id: String,
    tool: String,
    expires_at: DateTime<Utc>,
}

/// An execution that it started and that is not over.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OpenChildView {
    id: String,
    #[schema(value_type = closed::ExecutionStatus)]
    status: String,
    #[schema(value_type = Option<closed::WaitReason>)]
    wait_reason: Option<String>,
}

/// Failure of its last attempt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LastFailureView {
    attempt: i32,
    #[schema(value_type = Option<closed::FailureClass>)]
    class: Option<String>,
    code: Option<String>,
    summary: Option<String>,
}

/// Model endpoint that it waits for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AwaitedEndpointView {
    provider: String,
    model: String,
    /// State of the circuit breaker: `closed`, `open`, `half_open` (one execution probes the endpoint) or
    /// `recovering` (waiting executions are released in portions).
    state: String,
    /// Cause while it is not closed.
    #[schema(value_type = Option<closed::BreakerCause>)]
    cause: Option<String>,
    /// Time of the next probe, while it is open.
    until: Option<DateTime<Utc>>,
    /// True if the provider itself stated `until`.
    is_stated: bool,
    /// Time at which the execution asks another model, or fails.
    give_up_at: DateTime<Utc>,
    /// Concurrent calls that the endpoint takes, as far as the fleet has learned.
    concurrency: Option<i32>,
    /// Calls per second that it takes, as far as the fleet has learned.
    calls_per_second: Option<f64>,
    /// Calls that it answered per second lately: how fast the line moves.
    served_per_second: Option<f64>,
    /// Executions of its tenant before it; counted up to 1000. Null if it stands in no line.
    ahead: Option<i64>,
    /// True if there may be more than `ahead`.
    is_at_least: bool,
    /// Other tenants in the line, which take turns. Null if it stands in no line.
    other_tenants: Option<i64>,
}

/// An execution that no live worker can run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UnservedView {
    definition: String,
    version: Option<i32>,
    queue: String,
    /// Requirements for a worker, beyond those that every worker meets.
    requirements: Vec<String>,
}

/// The hold on new executions of the same version.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HoldingView {
    definition: String,
    version: Option<i32>,
    /// Executions of this version in quarantine, because they killed their workers.
    quarantined: i64,
    /// Their quarantine group.
    group: GroupView,
}

/// Estimate of the remaining time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EstimateView {
    /// Seconds from now; null if unknown.
    seconds: Option<f64>,
    /// Basis of the estimate, or the reason why there is none.
    basis: String,
}

/// Explanation of an execution's current state.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WaitingView {
    execution_id: String,
    #[schema(value_type = closed::ExecutionStatus)]
    status: &'static str,
    /// Null while a worker holds the execution and when it is over.
    #[schema(value_type = Option<closed::WaitReason>)]
    wait_reason: Option<&'static str>,
    /// One sentence for people.
    summary: String,
    /// Event that ends the wait.
    ends_when: Option<&'static str>,
    since: DateTime<Utc>,
    /// Latest end of the wait.
    until: Option<DateTime<Utc>>,
    /// Time by which the execution must have ended.
    deadline_at: DateTime<Utc>,
    /// Worker that holds it.
    worker_id: Option<String>,
    place: Option<PlaceView>,
    workers: Option<LiveWorkersView>,
    limits: Vec<NeededLimitView>,
    requests: Vec<OpenRequestView>,
    open_children: i32,
    /// Open children, at most twenty.
    children: Vec<OpenChildView>,
    last_failure: Option<LastFailureView>,
    endpoint: Option<AwaitedEndpointView>,
    session: Option<SessionTurnView>,
    budget: Option<BudgetView>,
    unserved: Option<UnservedView>,
    holding: Option<HoldingView>,
    /// Advice for the failure of a failed execution, as docs/reference/failures.md has it.
    advice: Option<&'static str>,
    estimate: EstimateView,
}

/// Explains what an execution waits for: since when, until when, its place in line and an estimate.
#[utoipa::path(
    get,
    operation_id = "getWaiting",
    path = "/v1/executions/{id}/waiting",
    tag = "executions",
    params(Id),
    responses((status = 200, description = "Reason of its state", body = WaitingView)),
)]
pub(crate) async fn waiting(
    State(state): State<ApiState>,
    principal: Reader,
    ExecutionPath(id): ExecutionPath,
    mut params: Params,
) -> ApiResult<Json<WaitingView>> {
    principal.need(Scope::ExecutionsRead)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    params.finish()?;
    let found = state.store.explain_waiting(&reach, id).await?.ok_or(ApiError::NotFound("execution"))?;
    let budget = match found.reason {
        Some(WaitReason::Budget) => state.store.read_budget(&reach, id).await?.map(BudgetView::from),
        Some(_) | None => None,
    };
    Ok(Json(view(id.to_string(), found, budget)))
}

fn view(execution_id: String, found: Waiting, budget: Option<BudgetView>) -> WaitingView {
    let is_unserved = match found.reason {
        Some(WaitReason::NoWorker) => true,
        Some(WaitReason::Worker) => found.workers.is_some_and(|workers| workers.count == 0),
        Some(_) | None => false,
    };
    let advice = found.failure_code.as_deref().filter(|_| found.status == ExecutionStatus::Failed).and_then(advice);
    let unserved = is_unserved.then(|| UnservedView {
        definition: found.definition_key.clone(),
        version: found.definition_version,
        queue: found.queue.clone(),
        requirements: found.requirements.clone(),
    });
    let (summary, ends_when) = (summary(&found), ends_when(&found));
    let holding = found.holding.map(|holding| HoldingView {
        definition: found.definition_key,
        version: found.definition_version,
        quarantined: holding.quarantined,
        group: holding.group.into(),
    });
    WaitingView {
        execution_id,
        status: found.status.as_str(),
        wait_reason: found.reason.map(WaitReason::as_str),
        summary,
        ends_when,
        since: found.since,
        until: found.until,
        deadline_at: found.deadline_at,
        worker_id: found.worker.map(|worker| worker.to_string()),
        place: found.place.map(|place| PlaceView {
            ahead: place.ahead,
            is_at_least: place.ahead >= COUNT_CAP,
            other_tenants: place.other_tenants,
        }),
        workers: found.workers.map(|workers| LiveWorkersView {
            count: workers.count,
            permits: workers.permits,
            free: workers.free,
        }),
        limits: found.limits.into_iter().map(NeededLimitView::from).collect(),
        requests: found.requests.into_iter().map(OpenRequestView::from).collect(),
        open_children: found.open_children,
        children: found.children.into_iter().map(OpenChildView::from).collect(),
        last_failure: found.last_failure.map(|last| LastFailureView {
            attempt: last.attempt,
            class: last.class,
            code: last.code,
            summary: last.summary,
        }),
        endpoint: found.endpoint.map(AwaitedEndpointView::from),
        session: found.turn.map(SessionTurnView::from),
        budget,
        unserved,
        holding,
        advice,
        estimate: EstimateView { seconds: found.estimate.seconds, basis: found.estimate.basis },
    }
}

impl From<EndpointStanding> for AwaitedEndpointView {
    fn from(of: EndpointStanding) -> Self {
        Self {
            is_at_least: of.ahead.is_some_and(|ahead| ahead >= COUNT_CAP),
            provider: of.provider,
            model: of.model,
            state: of.state,
            cause: of.cause,
            until: of.until,
            is_stated: of.is_stated,
            give_up_at: of.give_up_at,
            concurrency: of.concurrency,
            calls_per_second: of.calls_per_second,
            served_per_second: of.served_per_second,
            ahead: of.ahead,
            other_tenants: of.other_tenants,
        }
    }
}

impl From<OpenRequest> for OpenRequestView {
    fn from(of: OpenRequest) -> Self {
        let OpenRequest { id, kind, call_id, tool, expires_at } = of;
        Self { id: id.to_string(), kind, call_id, tool, expires_at }
    }
}

impl From<OpenChild> for OpenChildView {
    fn from(of: OpenChild) -> Self {
        Self { id: of.id.to_string(), status: of.status, wait_reason: of.wait_reason }
    }
}

impl From<LimitStanding> for NeededLimitView {
    fn from(of: LimitStanding) -> Self {
        Self {
            key: of.key.to_string(),
            source: of.source,
            subject: of.subject,
            limit: of.max,
            held: of.held,
            holders: of.holders.iter().map(ToString::to_string).collect(),
            held_by_others: of.held_by_others,
            is_waited_for: of.is_waited_for,
        }
    }
}

/// Words of a failed execution: of the validator that refused its last answer, before the model's own.
fn failed(found: &Waiting) -> String {
    let code = found.failure_code.as_deref().unwrap_or("unknown");
    let words = found.failure.clone().unwrap_or_default();
    let refused = words.validator.zip(words.feedback);
    let said = refused.map(|(validator, feedback)| format!("`{validator}` refused the last answer: {feedback}"));
    match said.or(words.summary) {
        Some(said) => format!("it failed with `{code}`: {said}"),
        None => format!("it failed with `{code}`"),
    }
}

/// One sentence that says what the execution does or waits for.
fn summary(found: &Waiting) -> String {
    let Some(reason) = found.reason else {
        return match (found.status, &found.worker) {
            (ExecutionStatus::Finished, _) => "it is finished".into(),
            (ExecutionStatus::Failed, _) => failed(found),
            (ExecutionStatus::Pending | ExecutionStatus::InProgress, Some(worker)) if found.starting.is_empty() => {
                format!("worker {worker} runs it")
            }
            (ExecutionStatus::Pending | ExecutionStatus::InProgress, Some(worker)) => {
                format!("worker {worker} starts its tool servers: {}", found.starting.join(", "))
            }
            (ExecutionStatus::Pending | ExecutionStatus::InProgress, None) => "it is between two states".into(),
        };
    };
    match reason {
        WaitReason::Worker => {
            let free = found.workers.map_or(0, |workers| workers.free);
            let live = found.workers.map_or(0, |workers| workers.count);
            if live == 0 {
                return format!(
                    "no live worker of the queue `{}` serves it; workers look again within seconds, and then it waits \
                     with no_worker",
                    found.queue
                );
            }
            let ahead = found.place.map_or(0, |place| place.ahead);
            format!(
                "it waits for a worker: {ahead} of its tenant before it, {free} permits free on {live} live workers"
            )
        }
        WaitReason::ConcurrencyLimit => limit_summary(found),
        WaitReason::Scheduled => "its time has not come".into(),
        WaitReason::RetryBackoff => {
            let code = found.last_failure.as_ref().and_then(|last| last.code.as_deref()).unwrap_or("unknown");
            format!("its last attempt failed ({code}) and is tried again")
        }
        WaitReason::Approval => format!("{} of its calls wait for a person", count(found, RequestKind::Approval)),
        WaitReason::Input => input_summary(found),
        WaitReason::Children => format!("{} executions it started are not over", found.open_children),
        WaitReason::RateLimit => rate_summary(found.endpoint.as_ref()),
        WaitReason::ProviderDown => provider_summary(found.endpoint.as_ref()),
        WaitReason::Budget => "its budget does not allow the next model call".into(),
        WaitReason::QueuePaused => {
            let version = found.definition_version.map_or_else(String::new, |version| format!(" version {version}"));
            match &found.holding {
                Some(holding) => format!(
                    "new executions of {}{version} are held back: {} of them killed their workers",
                    found.definition_key, holding.quarantined
                ),
                None => format!("new executions of {}{version} were held back, and are let go", found.definition_key),
            }
        }
        WaitReason::NoWorker => {
            let version = found.definition_version.map_or_else(String::new, |version| format!(" version {version}"));
            format!("no live worker serves {}{version} in the queue {}", found.definition_key, found.queue)
        }
    }
}

fn count(found: &Waiting, kind: RequestKind) -> usize {
    found.requests.iter().filter(|request| request.kind == kind.as_str()).count()
}

fn input_summary(found: &Waiting) -> String {
    let (questions, calls) = (count(found, RequestKind::Question), count(found, RequestKind::ToolCall));
    match (questions, calls) {
        (_, 0) => format!("it asked its caller {questions} questions"),
        (0, _) => format!("its caller has yet to post the results of {calls} calls"),
        (_, _) => format!("it asked its caller {questions} questions, and {calls} calls need results from its caller"),
    }
}

fn limit_summary(found: &Waiting) -> String {
    if let Some(turn) = found.turn {
        return format!("{} earlier messages of its session are answered first", turn.ahead);
    }
    match found.limits.iter().find(|limit| limit.is_waited_for) {
        Some(limit) => format!("the limit {} is full: {} of {} run", limit.key, limit.held, limit.max),
        None => "its concurrency limit has just changed".into(),
    }
}

/// Place of a message in its session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionTurnView {
    session_id: String,
    /// Execution that answers a message now.
    running: Option<String>,
    /// Messages that are answered before it.
    ahead: i64,
}

impl From<SessionTurn> for SessionTurnView {
    fn from(of: SessionTurn) -> Self {
        Self { session_id: of.session.to_string(), running: of.running.map(|id| id.to_string()), ahead: of.ahead }
    }
}

fn rate_summary(endpoint: Option<&EndpointStanding>) -> String {
    let Some(of) = endpoint else { return "a rate limit of its model provider is spent".into() };
    let mut summary = format!("{} of {} is asked as much as it may be", of.model, of.provider);
    if let Some(ahead) = of.ahead {
        summary.push_str(&format!(": {ahead} of its tenant before it"));
    }
    match of.other_tenants {
        Some(0) | None => {}
        Some(1) => summary.push_str(", one other tenant in the line"),
        Some(others) => summary.push_str(&format!(", {others} other tenants in the line")),
    }
    if let Some(speed) = of.served_per_second {
        summary.push_str(&format!(", {speed:.1} calls a second are answered"));
    }
    summary
}

fn provider_summary(endpoint: Option<&EndpointStanding>) -> String {
    let Some(of) = endpoint else { return "its model provider is known to be down".into() };
    match (of.state.as_str(), of.cause.as_deref()) {
        ("closed", _) => format!("{} of {} is well again", of.model, of.provider),
        ("half_open", _) => {
            format!("one execution tries {} of {}, and the others wait for what it is told", of.model, of.provider)
        }
        ("recovering", _) => {
            format!("{} of {} is well again, and those that wait for it are let go in portions", of.model, of.provider)
        }
        _ if of.failure_code.as_deref() == Some(FailureCode::MODEL_REQUEST_REFUSED.as_str()) => format!(
            "{} of {} refuses the workers' key (401 or 403): give them the right one, then `longhaul providers reset`",
            of.model, of.provider
        ),
        (_, Some("quota")) => format!("the quota of {} of {} is spent", of.model, of.provider),
        _ => format!("{} of {} is known to be down", of.model, of.provider),
    }
}

/// The event that ends a wait. The deadline, a cancel and `until`, if set, end it too.
fn ends_when(found: &Waiting) -> Option<&'static str> {
    let another_build =
        "a worker of a build that they have not killed starts, or a person releases them, and the first ends well";
    Some(match found.reason? {
        WaitReason::Worker => "a worker with a free permit takes it",
        WaitReason::Scheduled => "its run_at comes",
        WaitReason::RetryBackoff => "the delay before the retry is over",
        WaitReason::Approval => "somebody decides, or the request expires",
        WaitReason::Children => "the last execution it started ends",
        WaitReason::ConcurrencyLimit if found.turn.is_some() => "the execution of the message before it ends",
        WaitReason::ConcurrencyLimit => "whoever holds a slot ends or waits, and its turn comes",
        WaitReason::RateLimit => "the endpoint takes more calls, and its turn comes",
        WaitReason::Budget => "its budget is raised, or something reserved comes back",
        WaitReason::ProviderDown => "the provider answers again",
        WaitReason::QueuePaused => match found.holding.as_ref().map(|holding| holding.group.state.as_str()) {
            Some("canary") => "the one that is tried ends without killing its worker",
            Some("releasing") => "no worker of a build that they killed is left",
            Some(_) => another_build,
            None => "the next sweep",
        },
        WaitReason::Input => "its caller answers or posts results, or the time for that is over",
        WaitReason::NoWorker => "a worker starts that serves it",
    })
}
