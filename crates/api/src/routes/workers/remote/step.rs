//! Steps and events of workers over HTTP, as they are sent and stored. A step is a call of the journal: the page, the
//! ledger and forks treat it as one.

use std::time::Duration;

use longhaul_sdk::{ToolEffect, Usd};
use longhaul_store::history::{
    calls::RecordedCall,
    journal::{JournalStep, NewEvent, StepKind, StepState, StepUsage},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};
use utoipa::ToSchema;

use super::key;
use crate::{
    body::NO_NUL,
    error::{ApiError, ApiResult},
};

/// Steps of one execution.
pub(super) const MAX_STEPS: i32 = 100_000;
const MAX_RESULT: usize = 4 * 1024 * 1024;
const MAX_PREVIEW: usize = 500;
const MAX_EVENT: usize = 16 * 1024;
const MAX_NAME: usize = 200;

/// A step.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepBody {
    /// Number in the execution, from 1; a result takes over that of its intent.
    #[schemars(range(min = 1, max = MAX_STEPS))]
    seq: i32,
    /// Key by which the next attempt finds it: 64 hexadecimal digits, unique in the execution.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    key: String,
    #[schemars(length(min = 1, max = MAX_NAME), regex(pattern = NO_NUL))]
    name: String,
    state: StepEnd,
    /// Effect of making its call twice; null for a step without effects outside.
    effect: Option<ToolEffect>,
    /// Its result; at most 4 MiB.
    #[schemars(with = "Option<Value>")]
    result: Option<Box<RawValue>>,
    /// Short text for people.
    preview: Option<String>,
    /// Duration in milliseconds.
    #[serde(default)]
    #[schemars(range(min = 0, max = 2_592_000_000.0))]
    took_ms: f64,
    /// Usage of a model that the worker called by itself.
    usage: Option<UsageBody>,
}

/// State of a step.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum StepEnd {
    /// Its call may have been made.
    Intent,
    /// It has a result.
    Done,
}

/// Usage of a model.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UsageBody {
    #[schemars(range(min = 0, max = 1_000_000_000))]
    input_tokens: Option<i32>,
    #[schemars(range(min = 0, max = 1_000_000_000))]
    output_tokens: Option<i32>,
    /// Cost in US dollars.
    cost_usd: Option<Usd>,
}

/// Body of a step, as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    effect: Option<ToolEffect>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<String>,
    #[serde(default)]
    result: Option<Box<RawValue>>,
}

/// A recorded step.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RecordedView {
    seq: i32,
    key: String,
    name: String,
    /// `intent` or `done`.
    state: &'static str,
    #[schema(value_type = Option<String>)]
    effect: Option<ToolEffect>,
    #[schema(value_type = Value)]
    result: Option<Box<RawValue>>,
}

impl StepBody {
    /// The step as the journal keeps it. `execution` is part of its idempotency key.
    ///
    /// # Errors
    /// It is too large.
    pub(super) fn step(self, execution: &str, at: &str) -> ApiResult<JournalStep> {
        if self.result.as_ref().is_some_and(|result| result.get().len() > MAX_RESULT) {
            return Err(ApiError::invalid(format!("{at}/result"), format!("is longer than {MAX_RESULT} bytes")));
        }
        let idempotency_key = self.effect.map(|_| format!("{execution}:{}", self.key));
        let body = Stored { effect: self.effect, idempotency_key, result: self.result };
        let usage = self.usage.map_or_else(StepUsage::default, |usage| StepUsage {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cost: usage.cost_usd,
            ..StepUsage::default()
        });
        Ok(JournalStep {
            seq: self.seq,
            kind: StepKind::Call,
            state: match self.state {
                StepEnd::Intent => StepState::Intent,
                StepEnd::Done => StepState::Live,
            },
            key: key(&self.key)?,
            occurrence: 0,
            name: Some(self.name),
            appends: Vec::new(),
            body: serde_json::to_vec(&body).map_err(|_| ApiError::Internal)?,
            preview: self.preview.map(|preview| preview.chars().take(MAX_PREVIEW).collect()),
            failure_code: None,
            usage,
            took: Duration::from_secs_f64(self.took_ms / 1_000.0),
        })
    }
}

impl RecordedView {
    /// A call that was recorded; `None` for a step that its worker cannot look up.
    pub(super) fn of(call: RecordedCall) -> Option<Self> {
        let state = match call.state {
            StepState::Intent => "intent",
            StepState::Live => "done",
            StepState::Spent => return None,
        };
        let Stored { effect, result, .. } = serde_json::from_slice(&call.body).ok()?;
        Some(Self { seq: call.seq, key: hex::encode(call.key), name: call.name, state, effect, result })
    }
}

/// An event for observers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventBody {
    kind: EventName,
    data: Map<String, Value>,
}

/// Kind of an event.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum EventName {
    /// A line of a log: `message`, and `level`.
    Log,
    /// Any facts about what was done so far.
    Progress,
}

impl EventBody {
    /// The event as it is kept.
    ///
    /// # Errors
    /// It is too large.
    pub(super) fn event(self, at: &str) -> ApiResult<NewEvent> {
        let kind = match self.kind {
            EventName::Log => "log",
            EventName::Progress => "progress",
        };
        let data = without_nul(Value::Object(self.data));
        if data.to_string().len() > MAX_EVENT {
            return Err(ApiError::invalid(format!("{at}/data"), format!("is longer than {MAX_EVENT} bytes")));
        }
        Ok(NewEvent { kind, data })
    }
}

/// The value without the character NUL, which Postgres does not store in an event: a line of a log must not fail the
/// writes beside it.
fn without_nul(value: Value) -> Value {
    match value {
        Value::String(text) if text.contains('\0') => Value::String(text.replace('\0', "\u{fffd}")),
        Value::Array(items) => items.into_iter().map(without_nul).collect(),
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, of)| (name.replace('\0', "\u{fffd}"), without_nul(of)));
            Value::Object(members.collect())
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}
