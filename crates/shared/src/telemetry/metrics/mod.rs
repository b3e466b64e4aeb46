//! Every metric of the product, one function each; [`METRICS`] describes them and a test holds the two together.
//!
//! Names are `longhaul_<area>_<name>_<unit>`, counters end in `_total`. Labels come from closed sets: enums, providers of
//! the configuration, and queue names up to a limit. Never a tenant, an execution, a worker or a model's free text.

mod labels;
mod recorder;
mod table;

use std::{
    collections::BTreeMap,
    sync::{LazyLock, Mutex, PoisonError},
    time::Duration,
};

use longhaul_sdk::FailureClass;
use metrics::{counter, gauge, histogram};

use self::labels::QueueLabels;
pub(super) use self::recorder::{install, upkeep};
pub use self::{
    labels::{CallOutcome, ClaimReason, ModelOutcome, RefusalSubject, StoreBatch, TokenKind, WakeupDrop},
    recorder::render,
    table::{Kind, METRICS, Metric},
};
use crate::domain::WaitReason;

// Queue: what waits.

/// What waits in one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueBacklog {
    pub queue: String,
    /// Executions that are due and wait for a worker.
    pub due: u64,
    /// The age of the oldest of those that were counted.
    pub oldest: Duration,
}

/// All queues that have something due. A queue that was among them before and is not now is shown as empty.
pub fn queue_backlogs(backlogs: &[QueueBacklog]) {
    static LABELS: LazyLock<Mutex<QueueLabels>> = LazyLock::new(Mutex::default);
    let mut labels = LABELS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut by_label: BTreeMap<String, (u64, Duration)> = BTreeMap::new();
    for backlog in backlogs {
        let (due, oldest) = by_label.entry(labels.label(&backlog.queue)).or_default();
        *due += backlog.due;
        *oldest = backlog.oldest.max(*oldest);
    }
    for label in labels.given() {
        let (due, oldest) = by_label.get(label).copied().unwrap_or_default();
        gauge!("longhaul_queue_depth_executions", "queue" => label.clone()).set(due as f64);
        gauge!("longhaul_queue_oldest_age_seconds", "queue" => label.clone()).set(oldest.as_secs_f64());
    }
}

/// Unfinished executions that wait, by reason.
pub fn executions_waiting(reason: WaitReason, count: u64) {
    gauge!("longhaul_executions_waiting", "reason" => reason.as_str()).set(count as f64);
}

/// From the submit to the first claim.
pub fn start_latency(waited: Duration) {
    histogram!("longhaul_executions_start_latency_seconds").record(waited.as_secs_f64());
}

// Wake-ups and claims.

pub fn wakeups_published(count: usize) {
    counter!("longhaul_queue_wakeups_published_total").increment(count as u64);
}

pub fn wakeups_republished(count: usize) {
    counter!("longhaul_queue_wakeups_republished_total").increment(count as u64);
}

pub fn wakeups_dropped(why: WakeupDrop, count: usize) {
    if count > 0 {
        counter!("longhaul_queue_wakeups_dropped_total", "reason" => why.as_str()).increment(count as u64);
    }
}

pub fn looks_dropped(count: usize) {
    if count > 0 {
        counter!("longhaul_queue_looks_dropped_total").increment(count as u64);
    }
}

/// One claim and what it found. Empty claims after a wake-up are doubled wake-ups.
pub fn claims(reason: ClaimReason, found: usize) {
    let result = if found == 0 { "empty" } else { "found" };
    counter!("longhaul_queue_claims_total", "reason" => reason.as_str(), "result" => result).increment(1);
    counter!("longhaul_queue_claimed_executions_total").increment(found as u64);
}

pub fn unstarted_released(count: usize) {
    counter!("longhaul_queue_unstarted_released_total").increment(count as u64);
}

/// Whether the consumer hears Redis.
pub fn redis_away(away: bool) {
    gauge!("longhaul_queue_redis_away").set(f64::from(u8::from(away)));
}

pub fn handler_panics() {
    counter!("longhaul_queue_handler_panics_total").increment(1);
}

// Executions and attempts.

/// Executions stored, however they came: submits, retries, forks and children.
pub fn executions_submitted(count: u64) {
    counter!("longhaul_executions_submitted_total").increment(count);
}

/// Executions ended, as the store has said; `failure` is `None` when they are FINISHED.
pub fn executions_ended(failure: Option<FailureClass>, count: usize) {
    if count > 0 {
        let class = failure.map_or("none", FailureClass::as_str);
        counter!("longhaul_executions_ended_total", "failure_class" => class).increment(count as u64);
    }
}

pub fn attempts_started(count: u64) {
    counter!("longhaul_attempts_started_total").increment(count);
}

/// Attempts this process runs now.
pub fn attempts_running(count: usize) {
    gauge!("longhaul_attempts_running").set(count as f64);
}

pub fn retry_scheduled(class: FailureClass) {
    counter!("longhaul_executions_retries_total", "failure_class" => class.as_str()).increment(1);
}

/// An attempt stopped because its lease was no longer its own.
pub fn lease_lost() {
    counter!("longhaul_worker_leases_lost_total").increment(1);
}

/// A lease of this worker that no attempt of it holds was handed back: its claim did not come home.
pub fn unheld_lease() {
    counter!("longhaul_worker_leases_unheld_total").increment(1);
}

/// A journal of a newer release was left to a worker of it.
pub fn journals_handed_on() {
    counter!("longhaul_worker_journals_handed_on_total").increment(1);
}

/// A duty of the sweep failed.
pub fn sweep_failed(duty: &'static str) {
    counter!("longhaul_worker_sweep_failures_total", "duty" => duty).increment(1);
}

/// Executions taken from dead workers.
pub fn executions_reaped(count: u64) {
    counter!("longhaul_worker_reaped_executions_total").increment(count);
}

// Models and tools.

/// One model call. `provider` is a name of the configuration.
pub fn model_call(provider: &str, outcome: ModelOutcome, took: Duration) {
    let provider = provider.to_owned();
    counter!("longhaul_model_calls_total", "provider" => provider.clone(), "outcome" => outcome.as_str()).increment(1);
    histogram!("longhaul_model_call_duration_seconds", "provider" => provider).record(took.as_secs_f64());
}

pub fn tokens(provider: &str, kind: TokenKind, count: u64) {
    counter!("longhaul_model_tokens_total", "provider" => provider.to_owned(), "kind" => kind.as_str())
        .increment(count);
}

/// A breaker opened. `provider` is a name of the configuration.
pub fn breaker_opened(provider: &str) {
    counter!("longhaul_model_breaker_openings_total", "provider" => provider.to_owned()).increment(1);
}

/// Breakers of a provider that are not closed.
pub fn breakers_open(provider: &str, count: u32) {
    gauge!("longhaul_model_breakers_open", "provider" => provider.to_owned()).set(f64::from(count));
}

/// The breaker of an endpoint could not be tended: its probes and releases are late.
pub fn breaker_tending_failed(provider: &str) {
    counter!("longhaul_model_breaker_tending_failures_total", "provider" => provider.to_owned()).increment(1);
}

/// An execution parked before or after a model call, for a provider or a rate.
pub fn model_wait(reason: WaitReason) {
    counter!("longhaul_model_waits_total", "reason" => reason.as_str()).increment(1);
}

/// A call that went to a model which the agent falls back to.
pub fn model_fallback(provider: &str) {
    counter!("longhaul_model_fallbacks_total", "provider" => provider.to_owned()).increment(1);
}

pub fn tool_call(outcome: CallOutcome, took: Duration) {
    counter!("longhaul_tool_calls_total", "outcome" => outcome.as_str()).increment(1);
    histogram!("longhaul_tool_call_duration_seconds").record(took.as_secs_f64());
}

/// Providers of the platform that are asked whether they are well: up, down, and not asked yet.
pub fn platform_providers([up, down, unknown]: [i64; 3]) {
    for (health, count) in [("up", up), ("down", down), ("unknown", unknown)] {
        gauge!("longhaul_platform_providers", "health" => health).set(count as f64);
    }
}

// Store and API.

/// One group commit: how many writes shared it, and how long it took.
pub fn store_batch(batch: StoreBatch, writes: usize, took: Duration) {
    histogram!("longhaul_store_batch_writes", "batch" => batch.as_str()).record(writes as f64);
    histogram!("longhaul_store_batch_duration_seconds", "batch" => batch.as_str()).record(took.as_secs_f64());
}

/// A statement that the database refused, or did not get.
pub fn store_refused(subject: RefusalSubject) {
    counter!("longhaul_store_refusals_total", "subject" => subject.as_str()).increment(1);
}

/// Writers of this process that repeat statements until the database takes them.
pub fn store_in_trouble(writers: usize) {
    gauge!("longhaul_store_writers_in_trouble").set(writers as f64);
}

/// The age of the oldest snapshot that a session of the server holds, as far as this process may see sessions.
pub fn oldest_snapshot(age: Duration, sees_all: bool) {
    gauge!("longhaul_store_oldest_snapshot_seconds").set(age.as_secs_f64());
    gauge!("longhaul_store_snapshots_unseen").set(if sees_all { 0.0 } else { 1.0 });
}

/// One request. `route` is the pattern of the router, `method` one of a closed set.
pub fn api_request(route: &str, method: &'static str, status: u16, took: Duration) {
    let labels = [("route", route.to_owned()), ("method", method.to_owned()), ("status", status.to_string())];
    histogram!("longhaul_api_request_duration_seconds", &labels).record(took.as_secs_f64());
}

/// Event streams, and held submits, that this process follows.
pub fn streams_open(count: usize) {
    gauge!("longhaul_events_streams_open").set(count as f64);
}

#[cfg(test)]
mod tests;
