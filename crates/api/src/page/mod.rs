//! The status page: the data of the API for people, without scripts.

pub(crate) mod session;
mod templates;

use axum::{
    extract::State,
    response::{Html, IntoResponse, Response},
};
use longhaul_shared::domain::{ExecutionStatus, RequestKind, RequestState};
use longhaul_store::{
    executions::list_filter::ListFilter,
    history::{events::Cursor, read::Bodies},
    human_requests::HumanRequest,
};
use serde_json::{Value, json, value::RawValue};

use self::session::Viewer;
use crate::{
    error::{ApiError, ApiResult},
    extract::{ExecutionPath, Params},
    routes::executions::view::Execution,
    state::ApiState,
};

const ROWS: i64 = 100;
/// Statuses in the order in which people expect them.
const STATUSES: [ExecutionStatus; 4] =
    [ExecutionStatus::Pending, ExecutionStatus::InProgress, ExecutionStatus::Finished, ExecutionStatus::Failed];

/// `GET /`: counts and the latest executions.
pub(crate) async fn overview(State(state): State<ApiState>, viewer: Viewer, mut params: Params) -> ApiResult<Response> {
    let status = params.named("status", ExecutionStatus::parse);
    params.finish()?;
    let counts = state.store.count_executions(&viewer.reach).await?;
    let counts: Vec<Value> = STATUSES
        .iter()
        .map(|status| {
            let n = counts.iter().find(|(of, _)| of == status).map_or(0, |(_, n)| *n);
            json!({ "status": status.as_str(), "n": n })
        })
        .collect();
    let filter = ListFilter { status, limit: ROWS, ..ListFilter::default() };
    let now = state.store.now().await?;
    let found = state.store.list_executions(&viewer.reach, &filter).await?;
    let rows: Vec<Value> = found
        .into_iter()
        .map(|of| {
            let age = (of.finished_at.unwrap_or(now) - of.created_at).num_seconds().max(0);
            let mut row = serde_json::to_value(Execution::from(of)).unwrap_or_default();
            row["age"] = json!(readable_seconds(age));
            row
        })
        .collect();
    Ok(Html(templates::overview(json!({
        "counts": counts, "rows": rows, "chosen": status.map(ExecutionStatus::as_str), "viewer": viewer.label,
        "is_signed_in": viewer.is_signed_in,
    })))
    .into_response())
}

/// `GET /executions/{id}`: one execution with its timeline.
pub(crate) async fn detail(
    State(state): State<ApiState>,
    viewer: Viewer,
    ExecutionPath(id): ExecutionPath,
) -> ApiResult<Response> {
    let record = state.store.get_execution(&viewer.reach, id).await?.ok_or(ApiError::NotFound("execution"))?;
    let is_over = record.summary.status.is_terminal();
    let (input, output) = (pretty(Some(&record.input)), pretty(record.output.as_deref()));
    let detail = pretty(record.failure_detail.as_deref());
    let mut entries: Vec<(chrono::DateTime<chrono::Utc>, Value)> = Vec::new();
    for attempt in state.store.list_attempts(id, 0, 100).await? {
        let what = attempt.failure_summary.or(attempt.failure_code).or(attempt.wait_reason).unwrap_or_default();
        let text = format!("attempt {} {}", attempt.number, attempt.outcome);
        entries.push((attempt.ended_at, json!({ "type": "attempt", "name": text, "text": what })));
    }
    for step in state.store.list_steps(id, -1, 500, Bodies::Leave).await? {
        let name = step.name.map_or(step.kind.clone(), |name| format!("{} {name}", step.kind));
        let text = json!({ "type": "step", "name": format!("{name} ({})", step.state), "text": step.preview });
        entries.push((step.finished_at.unwrap_or(step.started_at), text));
    }
    let news = state.store.events_after(&[Cursor { execution: id, after: 0 }], 500).await?;
    for event in news.into_iter().flatten().flat_map(|news| news.events) {
        let text = event.data.map(|data| data.to_string()).unwrap_or_default();
        entries.push((event.at, json!({ "type": "event", "name": event.kind, "text": text })));
    }
    entries.sort_by_key(|(at, _)| *at);
    let timeline: Vec<Value> = entries
        .into_iter()
        .map(|(at, mut entry)| {
            entry["at"] = json!(at.format("%Y-%m-%d %H:%M:%S%.3f").to_string());
            entry
        })
        .collect();
    let requests = if is_over { Vec::new() } else { state.store.requests_of(id).await? };
    let waiting: Vec<Value> =
        requests.iter().filter(|request| request.state == RequestState::Waiting).map(wanted).collect();
    let children = match record.summary.children {
        0 => Vec::new(),
        _ => {
            let filter = ListFilter { parent: Some(id), limit: ROWS, ..ListFilter::default() };
            state.store.list_executions(&viewer.reach, &filter).await?.into_iter().map(Execution::from).collect()
        }
    };
    let execution = serde_json::to_value(Execution::from(record.summary)).map_err(|_| ApiError::Internal)?;
    Ok(Html(templates::detail(json!({
        "e": execution, "input": input, "output": output, "failure_detail": detail, "timeline": timeline,
        "children": children, "waiting": waiting, "is_over": is_over, "viewer": viewer.label, "is_signed_in": viewer.is_signed_in,
    })))
    .into_response())
}

/// A request to a person. The page only shows it: a decision needs a key with the scope for it.
fn wanted(request: &HumanRequest) -> Value {
    let what = match request.kind {
        RequestKind::Approval => format!("approval of {}", request.tool),
        RequestKind::Question => "answer".to_owned(),
        RequestKind::ToolCall => format!("result of {} from its caller", request.tool),
    };
    json!({
        "id": request.id.to_string(), "what": what, "shown": request.shown, "policy": request.policy,
        "since": readable(request.requested_at), "until": readable(request.expires_at),
    })
}

fn readable(at: chrono::DateTime<chrono::Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S").to_string()
}

fn pretty(raw: Option<&RawValue>) -> Option<String> {
    let raw = raw?;
    let value: Option<Value> = serde_json::from_str(raw.get()).ok();
    Some(value.and_then(|value| serde_json::to_string_pretty(&value).ok()).unwrap_or_else(|| raw.get().to_owned()))
}

fn readable_seconds(seconds: i64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}
