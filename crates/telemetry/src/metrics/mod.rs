//! All metrics of the product, one function each. [`METRICS`] describes them; a test compares both.
//!
//! Names are `longhaul_<area>_<name>_<unit>`; counters end in `_total`. What the `GenAI` conventions of OpenTelemetry
//! name has that name, in the spelling of Prometheus (ADR 58), and what every process has is `process_*`. Labels come
//! from closed sets: enums, configured providers, and a bounded number of names of queues, models and tools. Never a
//! tenant, an execution, a worker or free text of a model.

mod labels;
mod process;
mod recorder;
mod table;

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use longhaul_sdk::{FailureClass, FailureCode, Usd};
use metrics::{counter, gauge, histogram};
use parking_lot::Mutex;

use self::labels::BoundedLabel;
pub(super) use self::recorder::{install, upkeep};
pub use self::{
    labels::{
        CallOutcome, ClaimReason, FilePlace, FileRefusal, ModelOutcome, RefusalSubject, StoreBatch, TokenKind,
        WakeupDrop,
    },
    recorder::render,
    table::{Kind, METRICS, Metric},
};
use longhaul_domain::WaitReason;

// Queue: backlog.

/// Backlog of one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueBacklog {
    pub queue: String,
    /// Executions that are due and wait for a worker.
    pub due: u64,
    /// Age of the oldest counted execution.
    pub oldest: Duration,
}

/// Sets the backlog of all queues with due executions; parts of one queue are added up. A queue reported earlier and
/// missing now is set to zero.
pub fn queue_backlogs(backlogs: &[QueueBacklog]) {
    static QUEUES: LazyLock<Mutex<BoundedLabel>> = LazyLock::new(Mutex::default);
    let mut labels = QUEUES.lock();
    let mut by_label: BTreeMap<String, (u64, Duration)> = BTreeMap::new();
    for backlog in backlogs {
        let (due, oldest) = by_label.entry(labels.of(&backlog.queue)).or_default();
        *due += backlog.due;
        *oldest = backlog.oldest.max(*oldest);
    }
    for label in labels.given() {
        let (due, oldest) = by_label.get(label).copied().unwrap_or_default();
        gauge!("longhaul_queue_depth_executions", "queue" => label.clone()).set(due as f64);
        gauge!("longhaul_queue_oldest_age_seconds", "queue" => label.clone()).set(oldest.as_secs_f64());
    }
}

/// Workers that everything due and held takes.
pub fn workers_wanted(count: u64) {
    gauge!("longhaul_fleet_workers_wanted").set(count as f64);
}

/// Unfinished waiting executions, by reason.
pub fn executions_waiting(reason: WaitReason, count: u64) {
    gauge!("longhaul_executions_waiting", "reason" => reason.as_str()).set(count as f64);
}

/// Time from submit to first claim.
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

/// Counts a claim and its executions. An empty claim after a wake-up indicates a doubled wake-up.
pub fn claims(reason: ClaimReason, found: usize) {
    let result = if found == 0 { "empty" } else { "found" };
    counter!("longhaul_queue_claims_total", "reason" => reason.as_str(), "result" => result).increment(1);
    counter!("longhaul_queue_claimed_executions_total").increment(found as u64);
}

pub fn unstarted_released(count: usize) {
    counter!("longhaul_queue_unstarted_released_total").increment(count as u64);
}

/// 1 while the consumer gets no reply from Redis.
pub fn redis_away(away: bool) {
    gauge!("longhaul_queue_redis_away").set(f64::from(u8::from(away)));
}

pub fn handler_panics() {
    counter!("longhaul_queue_handler_panics_total").increment(1);
}

// Executions and attempts.

/// Stored executions of any origin: submits, retries, forks and children.
pub fn executions_submitted(count: u64) {
    counter!("longhaul_executions_submitted_total").increment(count);
}

/// Ended executions, as reported by the store. `failure` is `None` for FINISHED.
pub fn executions_ended(failure: Option<FailureClass>, count: usize) {
    if count > 0 {
        let class = failure.map_or("none", FailureClass::as_str);
        counter!("longhaul_executions_ended_total", "failure_class" => class).increment(count as u64);
    }
}

pub fn attempts_started(count: u64) {
    counter!("longhaul_attempts_started_total").increment(count);
}

/// Attempts running in this process.
pub fn attempts_running(count: usize) {
    gauge!("longhaul_attempts_running").set(count as f64);
}

/// Attempts that a worker of this process runs at a time.
pub fn permits(count: usize) {
    gauge!("longhaul_worker_permits").set(count as f64);
    gauge!("longhaul_worker_permits_in_use").increment(0.0);
}

/// Counts a permit as in use until it is dropped.
#[derive(Debug)]
pub struct PermitInUse(());

impl PermitInUse {
    #[must_use]
    pub fn new() -> Self {
        gauge!("longhaul_worker_permits_in_use").increment(1.0);
        Self(())
    }
}

impl Default for PermitInUse {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for PermitInUse {
    fn drop(&mut self) {
        gauge!("longhaul_worker_permits_in_use").decrement(1.0);
    }
}

pub fn retry_scheduled(class: FailureClass) {
    counter!("longhaul_executions_retries_total", "failure_class" => class.as_str()).increment(1);
}

/// An attempt stopped because its lease was lost.
pub fn lease_lost() {
    counter!("longhaul_worker_leases_lost_total").increment(1);
}

/// A lease of this worker without an attempt was released: the reply to its claim was lost.
pub fn unheld_lease() {
    counter!("longhaul_worker_leases_unheld_total").increment(1);
}

/// A journal in a newer format was left to a worker of a newer release.
pub fn journals_handed_on() {
    counter!("longhaul_worker_journals_handed_on_total").increment(1);
}

pub fn sweep_failed(duty: &'static str) {
    counter!("longhaul_worker_sweep_failures_total", "duty" => duty).increment(1);
}

/// An item that a duty, or a run of `prune`, could not handle. `what` names it, from a closed set.
pub fn item_set_aside(what: &str) {
    counter!("longhaul_store_items_set_aside_total", "what" => what.to_owned()).increment(1);
}

/// Executions reclaimed from dead workers.
pub fn executions_reaped(count: u64) {
    counter!("longhaul_worker_reaped_executions_total").increment(count);
}

// Models and tools.

/// The model that a call asks. `provider` is a configured name, `model` is an agent's choice.
#[derive(Debug, Clone, Copy)]
pub struct AskedModel<'a> {
    pub provider: &'a str,
    pub model: &'a str,
}

impl AskedModel<'_> {
    fn model_label(self) -> String {
        static MODELS: LazyLock<Mutex<BoundedLabel>> = LazyLock::new(Mutex::default);
        MODELS.lock().of(self.model)
    }

    /// Labels by the conventions.
    fn labels(self) -> [(&'static str, String); 3] {
        [
            ("gen_ai_operation_name", "chat".to_owned()),
            ("gen_ai_provider_name", self.provider.to_owned()),
            ("gen_ai_request_model", self.model_label()),
        ]
    }

    /// Labels by the conventions, and one more.
    fn labels_with(self, name: &'static str, value: String) -> [(&'static str, String); 4] {
        let [operation, provider, model] = self.labels();
        [operation, provider, model, (name, value)]
    }
}

/// A model call. `code` is that of a failure of the model, absent with [`ModelOutcome::Ok`].
pub fn model_call(asked: AskedModel<'_>, outcome: ModelOutcome, code: Option<&FailureCode>, took: Duration) {
    let provider = asked.provider.to_owned();
    counter!("longhaul_model_calls_total", "provider" => provider, "outcome" => outcome.as_str()).increment(1);
    // An empty label is none, for Prometheus.
    let labels = asked.labels_with("error_type", code.map(ToString::to_string).unwrap_or_default());
    histogram!("gen_ai_client_inference_duration_seconds", &labels).record(took.as_secs_f64());
}

/// A reply began to stream.
pub fn first_chunk(asked: AskedModel<'_>, took: Duration) {
    histogram!("gen_ai_client_inference_time_to_first_chunk_seconds", &asked.labels()).record(took.as_secs_f64());
}

pub fn tokens(asked: AskedModel<'_>, kind: TokenKind, count: u64) {
    let name = match kind {
        TokenKind::Input => "gen_ai_client_inference_usage_input_tokens_total",
        TokenKind::Output => "gen_ai_client_inference_usage_output_tokens_total",
        TokenKind::CachedInput => "gen_ai_client_inference_usage_cache_read_input_tokens_total",
        TokenKind::CacheWriteInput => "gen_ai_client_inference_usage_cache_write_input_tokens_total",
    };
    // No provider counts the tokens of pictures and documents apart in every reply.
    counter!(name, &asked.labels_with("gen_ai_token_modality", "unknown".to_owned())).increment(count);
}

/// The cost of a model call whose model has a price.
pub fn model_cost(asked: AskedModel<'_>, cost: Usd) {
    let (provider, model) = (asked.provider.to_owned(), asked.model_label());
    counter!("longhaul_model_cost_usd_total", "provider" => provider, "model" => model)
        .increment(u64::try_from(cost.nanos()).unwrap_or_default());
}

/// A circuit breaker opened. `provider` is a configured name.
pub fn breaker_opened(provider: &str) {
    counter!("longhaul_model_breaker_openings_total", "provider" => provider.to_owned()).increment(1);
}

/// Circuit breakers of a provider that are open or half-open.
pub fn breakers_open(provider: &str, count: u32) {
    gauge!("longhaul_model_breakers_open", "provider" => provider.to_owned()).set(f64::from(count));
}

/// Maintenance of an endpoint's circuit breaker failed; its probes and releases are late.
pub fn breaker_tending_failed(provider: &str) {
    counter!("longhaul_model_breaker_tending_failures_total", "provider" => provider.to_owned()).increment(1);
}

/// An execution parked before or after a model call, for a provider outage or a rate limit.
pub fn model_wait(reason: WaitReason) {
    counter!("longhaul_model_waits_total", "reason" => reason.as_str()).increment(1);
}

/// A call to a fallback model.
pub fn model_fallback(provider: &str) {
    counter!("longhaul_model_fallbacks_total", "provider" => provider.to_owned()).increment(1);
}

/// A tool call. `took` is absent if it did not run, or not to an end.
pub fn tool_call(tool: &str, outcome: CallOutcome, took: Option<Duration>) {
    static TOOLS: LazyLock<Mutex<BoundedLabel>> = LazyLock::new(Mutex::default);
    counter!("longhaul_tool_calls_total", "outcome" => outcome.as_str()).increment(1);
    if let Some(took) = took {
        let error = if outcome == CallOutcome::Ok { "" } else { outcome.as_str() };
        let tool = TOOLS.lock().of(tool);
        histogram!("gen_ai_execute_tool_duration_seconds", "gen_ai_tool_name" => tool, "error_type" => error)
            .record(took.as_secs_f64());
    }
}

/// Platform providers with health checks, by health: up, down, not checked yet.
pub fn platform_providers([up, down, unknown]: [i64; 3]) {
    for (health, count) in [("up", up), ("down", down), ("unknown", unknown)] {
        gauge!("longhaul_platform_providers", "health" => health).set(count as f64);
    }
}

// Files.

/// An upload was accepted, new or repeated.
pub fn file_uploaded() {
    counter!("longhaul_files_uploads_total").increment(1);
}

/// A body that its tenant did not have was stored.
pub fn file_stored(place: FilePlace, bytes: usize) {
    counter!("longhaul_files_stored_total", "place" => place.as_str()).increment(1);
    counter!("longhaul_files_stored_bytes_total", "place" => place.as_str()).increment(bytes as u64);
}

/// An upload or an artifact was refused.
pub fn file_refused(why: FileRefusal) {
    counter!("longhaul_files_refused_total", "reason" => why.as_str()).increment(1);
}

// Store and API.

/// A group commit: number of writes, and duration.
pub fn store_batch(batch: StoreBatch, writes: usize, took: Duration) {
    histogram!("longhaul_store_batch_writes", "batch" => batch.as_str()).record(writes as f64);
    histogram!("longhaul_store_batch_duration_seconds", "batch" => batch.as_str()).record(took.as_secs_f64());
}

/// A statement that the database refused or did not receive.
pub fn store_refused(subject: RefusalSubject) {
    counter!("longhaul_store_refusals_total", "subject" => subject.as_str()).increment(1);
}

/// Writers of this process that are repeating statements until the database accepts them.
pub fn store_in_trouble(writers: usize) {
    gauge!("longhaul_store_writers_in_trouble").set(writers as f64);
}

/// Age of the oldest snapshot held by a session of the server. `sees_all` is false if this role cannot see all
/// sessions.
pub fn oldest_snapshot(age: Duration, sees_all: bool) {
    gauge!("longhaul_store_oldest_snapshot_seconds").set(age.as_secs_f64());
    gauge!("longhaul_store_snapshots_unseen").set(if sees_all { 0.0 } else { 1.0 });
}

/// An API request. `route` is the router's pattern, `method` from a closed set.
pub fn api_request(route: &str, method: &'static str, status: u16, took: Duration) {
    let labels = [("route", route.to_owned()), ("method", method.to_owned()), ("status", status.to_string())];
    histogram!("longhaul_api_request_duration_seconds", &labels).record(took.as_secs_f64());
}

/// A reaction to an end failed, and is tried again later.
pub fn reaction_failed(reaction: &'static str) {
    counter!("longhaul_reaction_failures_total", "reaction" => reaction).increment(1);
}

/// How far a reaction is behind: the time since its oldest row became due, and rows whose reaction failed.
pub fn reaction_backlog(reaction: &'static str, late: Duration, failing: u64) {
    gauge!("longhaul_reaction_late_seconds", "reaction" => reaction).set(late.as_secs_f64());
    gauge!("longhaul_reactions_failing", "reaction" => reaction).set(failing as f64);
}

/// An attempt to deliver to a webhook.
pub fn webhook_attempt(outcome: &'static str) {
    counter!("longhaul_webhooks_attempts_total", "outcome" => outcome).increment(1);
}

/// Deliveries to webhooks that were given up.
pub fn webhooks_given_up(count: u64) {
    counter!("longhaul_webhooks_given_up_total").increment(count);
}

/// Webhooks were disabled. A first count of 0 shows the series, so that the first one is seen as an increase.
pub fn webhooks_disabled(reason: &'static str, count: u64) {
    counter!("longhaul_webhooks_disabled_total", "reason" => reason).increment(count);
}

/// Open event streams and held submits of this process.
pub fn streams_open(count: usize) {
    gauge!("longhaul_events_streams_open").set(count as f64);
}

/// Version and role of this process.
pub(super) fn build_info(service: &str) {
    let labels = [("version", env!("CARGO_PKG_VERSION").to_owned()), ("service", service.to_owned())];
    gauge!("longhaul_build_info", &labels).set(1.0);
}

#[cfg(test)]
mod tests;
