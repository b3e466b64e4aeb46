//! An execution as the API shows it.

use chrono::{DateTime, Utc};
use longhaul_sdk::Usd;
use longhaul_store::executions::read::{ExecutionRecord, ExecutionSummary};
use longhaul_telemetry::trace::trace_id;
use serde::Serialize;
use serde_json::{Value, value::RawValue};
use utoipa::ToSchema;

use super::{budget::BudgetView, pending_calls::PendingCall};
use crate::openapi::closed;

/// A key with its version.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Versioned {
    #[schema(example = "invoice-extraction")]
    pub(crate) key: String,
    /// Pinned version.
    pub(crate) version: Option<i32>,
}

/// Tenant of an execution.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TenantView {
    pub(crate) org_id: String,
    pub(crate) group_id: Option<String>,
}

/// Retries spent, by failure class.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Retries {
    transient: i16,
    tool_error: i16,
    llm_error: i16,
}

/// Usage of the execution.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Usage {
    turns: i32,
    calls: i32,
    input_tokens: i64,
    output_tokens: i64,
    /// Tokens sent that were read from providers' caches.
    cached_tokens: i64,
    /// Tokens sent that were written to providers' caches.
    cache_write_tokens: i64,
    /// Cost of its model calls in US dollars; null if the cost of any is not known.
    #[schema(value_type = Option<f64>)]
    cost_usd: Option<Usd>,
    /// Model calls whose cost is not known.
    uncosted_turns: i32,
    /// Seconds during which workers held it.
    active_seconds: f64,
}

/// Failure of the execution.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FailureView {
    #[schema(value_type = Option<closed::FailureClass>)]
    class: Option<String>,
    #[schema(example = "max_retries_exceeded")]
    code: String,
    summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value, required = false)]
    detail: Option<Box<RawValue>>,
}

/// Origin of a fork.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ForkedFrom {
    id: String,
    /// First step that is not shared.
    step: i32,
}

/// Links to more about the execution.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Links {
    #[serde(rename = "self")]
    this: String,
    steps: String,
    attempts: String,
    events: String,
    cancel: String,
    retry: String,
    fork: String,
    /// Executions that it started.
    children: String,
    /// Takes the results of calls that the caller runs.
    tool_results: String,
}

/// One execution. Lists leave out `input`, `output` and the failure's detail.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Execution {
    pub(crate) id: String,
    #[schema(value_type = closed::ExecutionStatus)]
    pub(crate) status: &'static str,
    /// Reason of the wait; null while a worker holds the execution and when it is over.
    #[schema(value_type = Option<closed::WaitReason>)]
    pub(crate) wait_reason: Option<&'static str>,
    pub(crate) wait_until: Option<DateTime<Utc>>,
    pub(crate) definition: Versioned,
    pub(crate) agent: Versioned,
    pub(crate) queue: String,
    pub(crate) priority: i16,
    #[schema(value_type = Object)]
    pub(crate) metadata: Value,
    pub(crate) attempts: i32,
    pub(crate) retries: Retries,
    pub(crate) usage: Usage,
    /// Input, byte for byte as it was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value, required = false)]
    pub(crate) input: Option<Box<RawValue>>,
    /// Output, once FINISHED.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value, required = false)]
    pub(crate) output: Option<Box<RawValue>>,
    /// Failure, once FAILED.
    pub(crate) failure: Option<FailureView>,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) started_at: Option<DateTime<Utc>>,
    pub(crate) finished_at: Option<DateTime<Utc>>,
    pub(crate) deadline_at: DateTime<Utc>,
    pub(crate) cancel_requested_at: Option<DateTime<Utc>>,
    /// Time at which its texts were erased; null if they were not.
    pub(crate) erased_at: Option<DateTime<Utc>>,
    pub(crate) retry_of: Option<String>,
    /// Execution whose record it shares up to a step.
    pub(crate) forked_from: Option<ForkedFrom>,
    /// Execution that started it; null if a caller did.
    pub(crate) parent_id: Option<String>,
    /// Topmost execution of its tree; itself if a caller started it.
    pub(crate) root_id: String,
    /// Levels below the root.
    pub(crate) depth: i16,
    /// Number of executions it started.
    pub(crate) children: i32,
    /// Budget of its tree, if it has one. Left out of lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = BudgetView, required = false)]
    pub(crate) budget: Option<BudgetView>,
    /// Calls that wait for the caller; of a root also those of all in its tree. Absent if there are none, and in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<PendingCall>, required = false)]
    pub(crate) requires_action: Option<Vec<PendingCall>>,
    pub(crate) worker_id: Option<String>,
    /// Id of the OpenTelemetry trace that its attempts belong to, in hexadecimal digits.
    pub(crate) trace_id: String,
    pub(crate) tenant: TenantView,
    pub(crate) links: Links,
}

impl Usage {
    fn of(of: &ExecutionSummary) -> Self {
        Self {
            turns: of.turns,
            calls: of.calls,
            input_tokens: of.input_tokens,
            output_tokens: of.output_tokens,
            cached_tokens: of.cached_tokens,
            cache_write_tokens: of.cache_write_tokens,
            cost_usd: (of.uncosted_turns == 0).then_some(of.cost),
            uncosted_turns: of.uncosted_turns,
            active_seconds: of.active_seconds,
        }
    }
}

impl From<ExecutionSummary> for Execution {
    fn from(of: ExecutionSummary) -> Self {
        let usage = Usage::of(&of);
        let (this, children) = (format!("/v1/executions/{}", of.id), format!("/v1/executions?parent={}", of.id));
        let [transient, tool_error, llm_error] = of.retries;
        Self {
            id: of.id.to_string(),
            status: of.status.as_str(),
            wait_reason: of.wait_reason.map(|reason| reason.as_str()),
            wait_until: of.wait_until,
            definition: Versioned { key: of.definition_key, version: of.definition_version },
            agent: Versioned { key: of.agent_key, version: of.agent_version },
            queue: of.queue,
            priority: of.priority,
            metadata: of.metadata,
            attempts: of.attempts,
            retries: Retries { transient, tool_error, llm_error },
            usage,
            input: None,
            output: None,
            failure: of.failure_code.map(|code| FailureView {
                class: of.failure_class,
                code,
                summary: of.failure_summary,
                detail: None,
            }),
            created_at: of.created_at,
            started_at: of.started_at,
            finished_at: of.finished_at,
            deadline_at: of.deadline_at,
            cancel_requested_at: of.cancel_requested_at,
            erased_at: of.erased_at,
            retry_of: of.retry_of.map(|id| id.to_string()),
            forked_from: of.forked_from.zip(of.forked_before).map(|(id, step)| ForkedFrom { id: id.to_string(), step }),
            parent_id: of.parent.map(|id| id.to_string()),
            root_id: of.root.to_string(),
            depth: of.depth,
            children: of.children,
            budget: None,
            requires_action: None,
            worker_id: of.worker_id.map(|id| id.to_string()),
            trace_id: trace_id(of.root.0, of.traceparent.as_deref()),
            tenant: TenantView { org_id: of.org_id, group_id: of.group_id },
            links: Links {
                steps: format!("{this}/steps"),
                attempts: format!("{this}/attempts"),
                events: format!("{this}/events"),
                cancel: format!("{this}/cancel"),
                retry: format!("{this}/retry"),
                fork: format!("{this}/fork"),
                children,
                tool_results: format!("{this}/tool-results"),
                this,
            },
        }
    }
}

impl From<ExecutionRecord> for Execution {
    fn from(record: ExecutionRecord) -> Self {
        let mut execution = Self::from(record.summary);
        execution.input = Some(record.input);
        execution.output = record.output;
        if let Some(failure) = &mut execution.failure {
            failure.detail = record.failure_detail;
        }
        execution
    }
}
