//! Description of each metric: source of the help texts and of the table in the docs.

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Counter,
    /// A counter of fractions: counted in billionths, and divided when it is rendered, because the counters of the
    /// library are whole numbers.
    FractionCounter,
    Gauge,
    /// Upper bounds of the buckets.
    Histogram(&'static [f64]),
}

impl Kind {
    /// Name of the type in Prometheus.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter | Self::FractionCounter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// Description of one metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// 1 ms to 10 min: from a fast start to the limit of a cold one.
const START: Kind = Kind::Histogram(&[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0,
]);
/// 10 ms to 82 s as in the `GenAI` conventions, and on to the longest replies of reasoning models.
const CALL: Kind = Kind::Histogram(&[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 655.36,
]);
/// Labels of model calls, by the `GenAI` conventions.
const MODEL: &[&str] = &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model"];
const FAILED_MODEL: &[&str] = &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "error_type"];
const TOKENS: &[&str] =
    &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_token_modality"];
/// A fraction of a millisecond to the statement timeout, the range of a commit.
const COMMIT: Kind =
    Kind::Histogram(&[0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0]);
/// Writes per group commit.
const WRITES: Kind = Kind::Histogram(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0]);

const fn metric(name: &'static str, kind: Kind, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind, labels, help }
}

/// All metrics of the product.
pub const METRICS: &[Metric] = &[
    metric(
        "longhaul_queue_depth_executions",
        Kind::Gauge,
        &["queue"],
        "due executions that wait for a worker, by queue; of the whole fleet: workers count to 1,000; \
         APIs to 100,000, with those of queues that no live worker serves",
    ),
    metric(
        "longhaul_queue_oldest_age_seconds",
        Kind::Gauge,
        &["queue"],
        "time since the submit of the oldest that the depth counts, by queue; with more it may be another's",
    ),
    metric(
        "longhaul_fleet_workers_wanted",
        Kind::Gauge,
        &[],
        "workers that run everything due and held at once, never fewer than hold a lease; told by every API",
    ),
    metric(
        "longhaul_executions_waiting",
        Kind::Gauge,
        &["reason"],
        "unfinished executions that wait, by reason; of the whole fleet, told by every worker",
    ),
    metric(
        "longhaul_executions_start_latency_seconds",
        START,
        &[],
        "from the submit to the first claim, waits for a run_at, a limit or a pause included",
    ),
    metric("longhaul_queue_wakeups_published_total", Kind::Counter, &[], "wake-ups pushed"),
    metric("longhaul_queue_wakeups_republished_total", Kind::Counter, &[], "wake-ups pushed by the sweep"),
    metric(
        "longhaul_queue_wakeups_dropped_total",
        Kind::Counter,
        &["reason"],
        "wake-ups not pushed, by reason; none loses work",
    ),
    metric("longhaul_queue_looks_dropped_total", Kind::Counter, &[], "hints to observers not sent"),
    metric(
        "longhaul_queue_claims_total",
        Kind::Counter,
        &["reason", "result"],
        "claims, by their reason and whether they found anything",
    ),
    metric("longhaul_queue_claimed_executions_total", Kind::Counter, &[], "executions claimed"),
    metric(
        "longhaul_queue_unstarted_released_total",
        Kind::Counter,
        &[],
        "executions given back at shutdown, unstarted",
    ),
    metric("longhaul_queue_redis_away", Kind::Gauge, &[], "1 while this worker does not hear redis and polls postgres"),
    metric("longhaul_queue_handler_panics_total", Kind::Counter, &[], "panics outside an attempt; each is a defect"),
    metric(
        "longhaul_executions_submitted_total",
        Kind::Counter,
        &[],
        "executions stored: submits, retries, forks and children",
    ),
    metric(
        "longhaul_executions_ended_total",
        Kind::Counter,
        &["failure_class"],
        "executions ended, by failure class, none for FINISHED",
    ),
    metric("longhaul_attempts_started_total", Kind::Counter, &[], "attempts started"),
    metric(
        "longhaul_attempts_running",
        Kind::Gauge,
        &[],
        "attempts this process holds now: those that run, and those whose end is being written",
    ),
    metric(
        "longhaul_worker_permits",
        Kind::Gauge,
        &[],
        "attempts that this worker runs at a time, without the tenth kept for tenants that hold none",
    ),
    metric(
        "longhaul_worker_permits_in_use",
        Kind::Gauge,
        &[],
        "permits of this worker that attempts hold; one is free again before the end of its attempt is written",
    ),
    metric(
        "longhaul_executions_retries_total",
        Kind::Counter,
        &["failure_class"],
        "retries scheduled, by failure class",
    ),
    metric("longhaul_worker_leases_lost_total", Kind::Counter, &[], "attempts stopped because their lease was lost"),
    metric(
        "longhaul_worker_leases_unheld_total",
        Kind::Counter,
        &[],
        "leases handed back because their claim did not come home; some after an outage of postgres are normal",
    ),
    metric(
        "longhaul_worker_journals_handed_on_total",
        Kind::Counter,
        &[],
        "journals of a newer release left to a worker of it",
    ),
    metric(
        "longhaul_worker_sweep_failures_total",
        Kind::Counter,
        &["duty"],
        "duties of the fleet's sweep that failed, by duty; each is done again when it is next due",
    ),
    metric(
        "longhaul_store_items_set_aside_total",
        Kind::Counter,
        &["what"],
        "items that a duty or `longhaul prune` could not handle and set aside, by duty; each is tried again later",
    ),
    metric("longhaul_worker_reaped_executions_total", Kind::Counter, &[], "executions taken from dead workers"),
    metric(
        "longhaul_model_calls_total",
        Kind::Counter,
        &["provider", "outcome"],
        "model calls, by provider and outcome",
    ),
    metric(
        "longhaul_model_cost_usd_total",
        Kind::FractionCounter,
        &["provider", "model"],
        "cost of model calls in US dollars, by provider and model, of models that have a price",
    ),
    metric(
        "gen_ai_client_inference_duration_seconds",
        CALL,
        FAILED_MODEL,
        "duration of a model call, by provider, model and failure code",
    ),
    metric(
        "gen_ai_client_inference_time_to_first_chunk_seconds",
        CALL,
        MODEL,
        "from a streamed model call to the first thinking, text or call of its reply, by provider and model",
    ),
    metric(
        "gen_ai_client_inference_usage_input_tokens_total",
        Kind::Counter,
        TOKENS,
        "input tokens, cached ones included, by provider and model",
    ),
    metric(
        "gen_ai_client_inference_usage_output_tokens_total",
        Kind::Counter,
        TOKENS,
        "output tokens, thinking included, by provider and model",
    ),
    metric(
        "gen_ai_client_inference_usage_cache_read_input_tokens_total",
        Kind::Counter,
        TOKENS,
        "input tokens read from the provider's cache, by provider and model",
    ),
    metric(
        "gen_ai_client_inference_usage_cache_write_input_tokens_total",
        Kind::Counter,
        TOKENS,
        "input tokens written to the provider's cache, by provider and model",
    ),
    metric(
        "longhaul_model_breaker_openings_total",
        Kind::Counter,
        &["provider"],
        "breakers of model endpoints opened, by provider",
    ),
    metric(
        "longhaul_model_breakers_open",
        Kind::Gauge,
        &["provider"],
        "breakers of model endpoints that are not closed, by provider",
    ),
    metric(
        "longhaul_model_breaker_tending_failures_total",
        Kind::Counter,
        &["provider"],
        "failures to choose a probe or to let waiting executions go, by provider",
    ),
    metric(
        "longhaul_model_waits_total",
        Kind::Counter,
        &["reason"],
        "executions parked for a model endpoint, by reason",
    ),
    metric(
        "longhaul_model_fallbacks_total",
        Kind::Counter,
        &["provider"],
        "calls to a model that an agent falls back to, by provider",
    ),
    metric("longhaul_tool_calls_total", Kind::Counter, &["outcome"], "tool calls, by outcome"),
    metric(
        "gen_ai_execute_tool_duration_seconds",
        CALL,
        &["gen_ai_tool_name", "error_type"],
        "duration of a tool call that ran, by tool and outcome",
    ),
    metric("longhaul_files_uploads_total", Kind::Counter, &[], "uploads accepted, repeated ones included"),
    metric(
        "longhaul_files_stored_total",
        Kind::Counter,
        &["place"],
        "bodies of uploads and artifacts stored, by store; one that its tenant has is not stored again",
    ),
    metric("longhaul_files_stored_bytes_total", Kind::Counter, &["place"], "bytes of those bodies, by store"),
    metric("longhaul_files_refused_total", Kind::Counter, &["reason"], "uploads and artifacts refused, by reason"),
    metric("longhaul_store_batch_writes", WRITES, &["batch"], "writes that shared one commit, by batch"),
    metric("longhaul_store_batch_duration_seconds", COMMIT, &["batch"], "duration of one group commit, by batch"),
    metric(
        "longhaul_store_refusals_total",
        Kind::Counter,
        &["subject"],
        "statements that the database refused or did not get, by what that was about",
    ),
    metric(
        "longhaul_store_writers_in_trouble",
        Kind::Gauge,
        &[],
        "writers that repeat statements until the database takes them; above zero the process claims little or nothing",
    ),
    metric(
        "longhaul_store_oldest_snapshot_seconds",
        Kind::Gauge,
        &[],
        "age of the oldest snapshot that a session of the postgres server holds; it keeps dead rows from being \
         vacuumed",
    ),
    metric(
        "longhaul_store_snapshots_unseen",
        Kind::Gauge,
        &[],
        "1 when snapshots of other roles are not seen, for want of pg_read_all_stats; then the oldest may be older \
         than told",
    ),
    metric(
        "longhaul_platform_providers",
        Kind::Gauge,
        &["health"],
        "providers of the platform that are asked, by what they answered",
    ),
    metric(
        "longhaul_api_request_duration_seconds",
        START,
        &["route", "method", "status"],
        "duration of a request, by route, method and status",
    ),
    metric(
        "longhaul_reaction_failures_total",
        Kind::Counter,
        &["reaction"],
        "reactions to ends that failed, by reaction",
    ),
    metric(
        "longhaul_reaction_late_seconds",
        Kind::Gauge,
        &["reaction"],
        "time since the oldest end became due for a reaction, by reaction; measured every 30 seconds by one worker, \
         exported by all",
    ),
    metric(
        "longhaul_reactions_failing",
        Kind::Gauge,
        &["reaction"],
        "ends whose reaction failed and is tried again, by reaction, up to 1,000",
    ),
    metric(
        "longhaul_webhooks_attempts_total",
        Kind::Counter,
        &["outcome"],
        "attempts to deliver to webhooks, by outcome: delivered, refused, away or gone",
    ),
    metric("longhaul_webhooks_given_up_total", Kind::Counter, &[], "deliveries to webhooks given up after 72 hours"),
    metric(
        "longhaul_webhooks_disabled_total",
        Kind::Counter,
        &["reason"],
        "webhooks disabled, because nothing was delivered for too long or because they answered 410",
    ),
    metric("longhaul_events_streams_open", Kind::Gauge, &[], "event streams and held submits open in this process"),
    metric("longhaul_build_info", Kind::Gauge, &["version", "service"], "1, with the version and role of this process"),
    metric("process_cpu_seconds_total", Kind::FractionCounter, &[], "processor time of this process"),
    metric("process_resident_memory_bytes", Kind::Gauge, &[], "resident memory of this process"),
    metric("process_open_fds", Kind::Gauge, &[], "file descriptors that this process has open"),
    metric("process_max_fds", Kind::Gauge, &[], "file descriptors that this process may open"),
    metric("process_start_time_seconds", Kind::Gauge, &[], "start of this process, in seconds since 1970"),
];
