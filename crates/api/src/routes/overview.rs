//! `GET /v1/overview`: what a tenant's executions do now, and what its newest ones did.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use chrono::{DateTime, TimeDelta, Utc};
use longhaul_domain::ExecutionStatus;
use longhaul_sdk::Usd;
use longhaul_store::{
    executions::{list_filter::ListFilter, overview::WAITING_READ, read::ExecutionSummary},
    tenants::api_keys::Scope,
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::Reader,
    error::ApiResult,
    extract::{Params, take_reach},
    openapi::closed,
    state::ApiState,
};

/// Newest executions that the figures are of: a bound that does not depend on how many are stored.
const RECENT: i64 = 2_000;
/// Bars of the chart.
const BUCKETS: i32 = 40;
/// Most rows of the list of failures.
const MAX_FAILURES: usize = 20;

/// Counts of a tenant's executions by state, and its newest ones.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Overview {
    /// Number of executions by status.
    counts: BTreeMap<&'static str, i64>,
    /// Open executions by queue and reason, of the first 20,000 open ones.
    waiting: Vec<WaitingCount>,
    recent: Recent,
}

/// Executions of a queue that wait for the same.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WaitingCount {
    queue: String,
    #[schema(value_type = closed::WaitReason)]
    wait_reason: String,
    executions: i64,
    /// Submit of the oldest.
    oldest: DateTime<Utc>,
}

/// Figures of the newest executions, at most 2,000.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Recent {
    executions: usize,
    /// Submit of the oldest of them.
    since: Option<DateTime<Utc>>,
    /// From the submit to the first attempt.
    start_seconds: Percentiles,
    /// From the submit to the end.
    total_seconds: Percentiles,
    #[schema(value_type = f64)]
    cost_usd: Usd,
    /// Length of a bucket, in seconds.
    bucket_seconds: f64,
    /// Ended executions over time.
    buckets: Vec<Bucket>,
    /// Failures by definition and code, the most frequent first.
    failures: Vec<FailureCount>,
    /// Model calls by agent and model, the most expensive first.
    spend: Vec<SpendView>,
}

/// Percentiles of a duration; null without any.
#[derive(Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Percentiles {
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
}

/// Executions that ended in a span of time.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Bucket {
    /// Start of the span.
    at: DateTime<Utc>,
    ended: u32,
    /// Of these, the failed ones.
    failed: u32,
}

/// Executions that failed in the same way.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FailureCount {
    definition: String,
    code: String,
    #[schema(value_type = Option<closed::FailureClass>)]
    class: Option<String>,
    executions: u32,
}

/// Calls of a model by an agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SpendView {
    agent: String,
    model: String,
    calls: i64,
    input_tokens: i64,
    output_tokens: i64,
    /// Cost of the calls whose price is known.
    #[schema(value_type = f64)]
    cost_usd: Usd,
}

/// Counts executions, and summarises the newest: rate, times, failures and spend.
#[utoipa::path(get, operation_id = "getOverview", path = "/v1/overview", tag = "executions",
    params(("org_id" = Option<String>, Query, description = "Of this organisation; needs the scope `admin`"),
        ("group_id" = Option<String>, Query, description = "Of this group of the organisation"),
        ("all_tenants" = Option<bool>, Query, description = "Of all tenants; needs the scope `admin`"),
        ("recent" = Option<i64>, Query, description = "Newest executions to summarise, 0 to 2,000; 2,000 when absent")),
    responses((status = 200, description = "The overview", body = Overview)))]
pub(crate) async fn overview(
    State(state): State<ApiState>,
    principal: Reader,
    mut params: Params,
) -> ApiResult<Json<Overview>> {
    principal.need(Scope::ExecutionsRead)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    let limit = params.take("recent").unwrap_or(RECENT);
    if !(0..=RECENT).contains(&limit) {
        params.violation("recent", format!("must be between 0 and {RECENT}"));
    }
    params.finish()?;
    let filter = ListFilter { limit, ..ListFilter::default() };
    let (counts, waiting, newest) = tokio::try_join!(
        state.store.count_executions(&reach),
        state.store.waiting_by_queue(&reach),
        state.store.list_executions(&reach, &filter),
    )?;
    let counted = |status: ExecutionStatus| counts.iter().find(|(of, _)| *of == status).map_or(0, |(_, n)| *n);
    let counts = ExecutionStatus::ALL.iter().map(|status| (status.as_str(), counted(*status))).collect();
    let waiting = waiting.into_iter().map(|of| WaitingCount {
        queue: of.queue,
        wait_reason: of.wait_reason,
        executions: of.executions,
        oldest: of.oldest,
    });
    let ids: Vec<_> = newest.iter().map(|of| (of.id, of.agent_key.as_str())).collect();
    let spend = state.store.spend_of(&ids).await?;
    let spend = spend.into_iter().map(|of| SpendView {
        agent: of.agent,
        model: of.model,
        calls: of.calls,
        input_tokens: of.input_tokens,
        output_tokens: of.output_tokens,
        cost_usd: of.cost,
    });
    Ok(Json(Overview { counts, waiting: waiting.collect(), recent: recent(&newest, spend.collect()) }))
}

fn recent(newest: &[ExecutionSummary], spend: Vec<SpendView>) -> Recent {
    let since = newest.iter().map(|of| of.created_at).min();
    let spans = |end: fn(&ExecutionSummary) -> Option<DateTime<Utc>>| {
        let spans = newest.iter().filter_map(|of| Some(end(of)? - of.created_at));
        percentiles(spans.map(TimeDelta::as_seconds_f64).collect())
    };
    let ends = newest.iter().filter_map(|of| Some((of.finished_at?, of.status == ExecutionStatus::Failed)));
    let (bucket_seconds, buckets) = buckets(&ends.collect::<Vec<_>>());
    Recent {
        executions: newest.len(),
        since,
        start_seconds: spans(|of| of.started_at),
        total_seconds: spans(|of| of.finished_at),
        cost_usd: Usd::from_nanos(newest.iter().map(|of| of.cost.nanos()).sum()),
        bucket_seconds,
        buckets,
        failures: failures(newest),
        spend,
    }
}

/// The nearest-rank percentiles of durations in seconds.
fn percentiles(mut seconds: Vec<f64>) -> Percentiles {
    seconds.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let rank = (share * seconds.len() as f64).ceil() as usize;
        seconds.get(rank.saturating_sub(1)).copied()
    };
    Percentiles { p50: at(0.5), p95: at(0.95), p99: at(0.99) }
}

/// Cuts the time from the first to the last end into [`BUCKETS`] spans.
fn buckets(ends: &[(DateTime<Utc>, bool)]) -> (f64, Vec<Bucket>) {
    let times = || ends.iter().map(|(at, _)| *at);
    let (Some(first), Some(last)) = (times().min(), times().max()) else { return (0.0, Vec::new()) };
    let length = ((last - first) / BUCKETS).max(TimeDelta::seconds(1));
    let mut buckets: Vec<Bucket> =
        (0..BUCKETS).map(|i| Bucket { at: first + length * i, ended: 0, failed: 0 }).collect();
    for (at, has_failed) in ends {
        let i = ((*at - first).num_milliseconds() / length.num_milliseconds()).clamp(0, i64::from(BUCKETS - 1));
        if let Some(bucket) = usize::try_from(i).ok().and_then(|i| buckets.get_mut(i)) {
            bucket.ended += 1;
            bucket.failed += u32::from(*has_failed);
        }
    }
    (length.as_seconds_f64(), buckets)
}

fn failures(newest: &[ExecutionSummary]) -> Vec<FailureCount> {
    let mut counted: BTreeMap<(&str, &str, Option<&str>), u32> = BTreeMap::new();
    for of in newest {
        if let Some(code) = &of.failure_code {
            *counted.entry((&of.definition_key, code, of.failure_class.as_deref())).or_default() += 1;
        }
    }
    let mut counted: Vec<FailureCount> = counted
        .into_iter()
        .map(|((definition, code, class), executions)| FailureCount {
            definition: definition.to_owned(),
            code: code.to_owned(),
            class: class.map(str::to_owned),
            executions,
        })
        .collect();
    counted.sort_by_key(|of| std::cmp::Reverse(of.executions));
    counted.truncate(MAX_FAILURES);
    counted
}

const _: () = assert!(WAITING_READ == 20_000, "the documentation of `waiting` says 20,000");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let found = percentiles((1..=100).map(f64::from).collect());
        assert_eq!(found, Percentiles { p50: Some(50.0), p95: Some(95.0), p99: Some(99.0) });
        assert_eq!(percentiles(vec![7.0]), Percentiles { p50: Some(7.0), p95: Some(7.0), p99: Some(7.0) });
        assert_eq!(percentiles(Vec::new()), Percentiles::default());
    }

    #[test]
    fn each_end_falls_into_one_bucket() {
        let at = |second| DateTime::from_timestamp(second, 0).unwrap();
        let ends = [(at(0), true), (at(100), false), (at(400), true), (at(400), false)];
        let (seconds, found) = buckets(&ends);
        assert!((seconds - 10.0).abs() < f64::EPSILON);
        assert_eq!(found.len(), 40);
        assert_eq!((found[0].ended, found[10].ended, found[39].ended, found[39].failed), (1, 1, 2, 1));
    }
}
