//! Journal rows: the steps of an execution, with its messages.
//!
//! Writes are batched over the executions of one worker and fenced by their leases; reads are per execution. The
//! worker interprets the steps (the crate `agent`, `journal`).

use std::{collections::HashMap, sync::Arc};

use longhaul_sdk::Usd;
use serde_json::Value;
use strum::{EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::batch::Flushed,
    executions::{
        budgets::{Settlement, SettlementRow},
        lease_state::{LeaseState, lease_state},
    },
    history::body,
};
use longhaul_domain::{ExecutionId, LeaseToken, WorkerId};

pub use super::hash::Hash;
pub(crate) use super::hash::hash;

/// Exact bytes of a transcript message.
pub type MessageBytes = Arc<[u8]>;

/// Kind of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum StepKind {
    /// Retrieval before the first turn.
    Retrieval,
    /// Rendered prompts and pinned tool list.
    Prompt,
    /// One model call and its reply.
    Turn,
    /// One tool call and its result.
    Call,
    /// Validators' refusal of an answer.
    Verdict,
    /// Feedback sent to the model; clears the scratchpad.
    Correction,
    /// Older messages replaced by a summary.
    Compression,
    /// A model's judgement or synthesis of the outputs of children.
    Aggregation,
}

impl StepKind {
    /// The name as stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// State of a step (core-rules 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum StepState {
    /// Recorded before its result: it may have happened.
    Intent,
    Live,
    /// Ended an attempt: look-up skips it.
    Spent,
}

impl StepState {
    /// The name as stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Usage of one model call; `None` is unknown, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepUsage {
    /// Prompt tokens.
    pub input_tokens: Option<i32>,
    /// Reply tokens.
    pub output_tokens: Option<i32>,
    /// Prompt tokens read from the provider's cache.
    pub cached_tokens: Option<i32>,
    /// Prompt tokens written to the provider's cache.
    pub cache_write_tokens: Option<i32>,
    pub cost: Option<Usd>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct JournalStep {
    /// Sequence number, from 1.
    pub seq: i32,
    pub kind: StepKind,
    pub state: StepState,
    /// Content key.
    pub key: Hash,
    /// Number of earlier spent steps with this key.
    pub occurrence: i32,
    /// Name of the model, tool or validator.
    pub name: Option<String>,
    /// Messages appended to the transcript, in order.
    pub appends: Vec<MessageBytes>,
    /// Exact bytes; the format depends on the kind.
    pub body: Vec<u8>,
    /// Short text for people.
    pub preview: Option<String>,
    /// Code of the failure that ended the step.
    pub failure_code: Option<String>,
    /// Usage of a turn or compression.
    pub usage: StepUsage,
    /// Duration.
    pub took: std::time::Duration,
}

/// An event for observers.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// Kind, one of docs/reference/api.md.
    pub kind: &'static str,
    /// Facts; never prompts or arguments, and no completions but portions of text (kind `text`).
    pub data: Value,
}

/// One write of a running attempt.
#[derive(Debug, Clone)]
pub struct JournalWrite {
    pub id: ExecutionId,
    pub token: LeaseToken,
    /// Number of the write under the lease, from 1.
    pub write: i32,
    /// New steps, and results of intents.
    pub steps: Vec<JournalStep>,
    /// Events, in order.
    pub events: Vec<NewEvent>,
    /// Number of model calls made.
    pub turns: i32,
    /// Number of tool calls made.
    pub calls: i32,
    /// Settlements of reserved model calls.
    pub settlements: Vec<Settlement>,
}

impl JournalWrite {
    /// True if the write holds more than intents: the next attempt resumes after it.
    #[must_use]
    pub fn is_progress(&self) -> bool {
        self.steps.iter().any(|step| step.state != StepState::Intent)
    }

    /// Approximate bytes in a statement.
    pub(crate) fn bytes(&self) -> usize {
        let appended = |step: &JournalStep| step.appends.iter().map(|bytes| bytes.len()).sum::<usize>();
        let steps = self.steps.iter().map(|step| step.body.len() + appended(step)).sum::<usize>();
        let text = |event: &NewEvent| event.data.get("text").and_then(Value::as_str).map_or(0, str::len);
        steps + self.events.iter().map(text).sum::<usize>()
    }

    fn tokens(&self, of: fn(&StepUsage) -> Option<i32>) -> i64 {
        self.steps.iter().filter_map(|step| of(&step.usage)).map(i64::from).sum()
    }
}

/// State of the execution after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// Cancellation was requested.
    pub cancel_requested: bool,
    /// Wake counter.
    pub wake_seq: i32,
}

/// Journal of an execution.
#[derive(Debug, Clone, Default)]
pub struct StoredJournal {
    /// All steps in order, spent ones included.
    pub steps: Vec<JournalStep>,
}

/// Result of loading a journal.
#[derive(Debug, Clone)]
pub enum Loaded {
    Journal(StoredJournal),
    /// Contains a step of this newer format: the reader must not act on the journal.
    Newer(u8),
}

/// A row of the type `journal_step`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "journal_step")]
pub(crate) struct StepRow {
    execution_id: Uuid,
    seq: i32,
    kind: String,
    state: String,
    key: Vec<u8>,
    occurrence: i32,
    name: Option<String>,
    appends: Vec<Vec<u8>>,
    body: Vec<u8>,
    preview: Option<String>,
    failure_code: Option<String>,
    input_tokens: Option<i32>,
    output_tokens: Option<i32>,
    cached_tokens: Option<i32>,
    cache_write_tokens: Option<i32>,
    cost: Option<i64>,
    took_ms: f64,
}

impl StepRow {
    fn of(id: ExecutionId, step: &JournalStep) -> Self {
        Self {
            execution_id: id.0,
            seq: step.seq,
            kind: step.kind.as_str().into(),
            state: step.state.as_str().into(),
            key: step.key.to_vec(),
            occurrence: step.occurrence,
            name: step.name.as_deref().map(storable),
            appends: step.appends.iter().map(|bytes| body::encode(bytes)).collect(),
            body: body::encode_step(&step.body),
            preview: step.preview.as_deref().map(storable),
            failure_code: step.failure_code.clone(),
            input_tokens: step.usage.input_tokens,
            output_tokens: step.usage.output_tokens,
            cached_tokens: step.usage.cached_tokens,
            cache_write_tokens: step.usage.cache_write_tokens,
            cost: step.usage.cost.map(Usd::nanos),
            took_ms: step.took.as_secs_f64() * 1_000.0,
        }
    }
}

/// A row of the type `journal_event`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "journal_event")]
pub(crate) struct EventRow {
    execution_id: Uuid,
    number: i32,
    kind: String,
    data: Value,
}

/// A row of the type `journal_write`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "journal_write")]
pub(crate) struct WriteRow {
    execution_id: Uuid,
    token: Uuid,
    write: i32,
    events: i32,
    turns: i32,
    calls: i32,
    input_tokens: i64,
    output_tokens: i64,
    cached_tokens: i64,
    cache_write_tokens: i64,
    cost: i64,
    uncosted_turns: i32,
    is_progress: bool,
}

impl From<&JournalWrite> for WriteRow {
    fn from(of: &JournalWrite) -> Self {
        let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        Self {
            execution_id: of.id.0,
            token: of.token.0,
            write: of.write,
            events: count(of.events.len()),
            turns: of.turns,
            calls: of.calls,
            input_tokens: of.tokens(|usage| usage.input_tokens),
            output_tokens: of.tokens(|usage| usage.output_tokens),
            cached_tokens: of.tokens(|usage| usage.cached_tokens),
            cache_write_tokens: of.tokens(|usage| usage.cache_write_tokens),
            cost: of.steps.iter().filter_map(|step| step.usage.cost).map(Usd::nanos).sum(),
            uncosted_turns: count(of.steps.iter().filter(|step| is_uncosted(step)).count()),
            is_progress: of.is_progress(),
        }
    }
}

/// Rows of a batch's writes: history and settlements.
#[derive(Debug, Default)]
pub(crate) struct WriteContents {
    pub(crate) steps: Vec<StepRow>,
    pub(crate) events: Vec<EventRow>,
    pub(crate) settlements: Vec<SettlementRow>,
}

impl WriteContents {
    pub(crate) fn of<'a>(writes: impl Iterator<Item = &'a JournalWrite>) -> Self {
        let mut rows = Self::default();
        for write in writes {
            let execution_id = write.id.0;
            rows.steps.extend(write.steps.iter().map(|step| StepRow::of(write.id, step)));
            rows.events.extend((1..).zip(&write.events).map(|(number, event)| EventRow {
                execution_id,
                number,
                kind: event.kind.to_owned(),
                data: storable_json(event.data.clone()),
            }));
            rows.settlements.extend(write.settlements.iter().map(|settled| SettlementRow::of(write.id, settled)));
        }
        rows
    }
}

/// True for a model's answer of unknown cost. A failed call counts as free: providers charge for answers.
fn is_uncosted(step: &JournalStep) -> bool {
    let is_asked = matches!(step.kind, StepKind::Turn | StepKind::Compression | StepKind::Aggregation);
    is_asked && step.failure_code.is_none() && step.usage.cost.is_none()
}

/// Replaces NUL, the one character that Postgres text cannot store.
pub(crate) fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// [`storable`] for the strings inside a value: a model may call a tool by a name that contains NUL.
fn storable_json(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(storable(&text)),
        Value::Array(items) => items.into_iter().map(storable_json).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (storable(&name), storable_json(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

impl Store {
    /// Writes a batch. Returns one result per item, in order.
    ///
    /// # Errors
    /// Postgres refused an item's value, or is unavailable.
    pub(crate) async fn record(
        &self,
        worker: WorkerId,
        items: &[Arc<JournalWrite>],
    ) -> Result<Vec<Flushed<Recorded>>, StoreError> {
        let contents = WriteContents::of(items.iter().map(|item| &**item));
        let mut connection = self.commits.lend().await?;
        let rows = sqlx::query_file!(
            "src/sql/record.sql",
            worker.0,
            &items.iter().map(|item| WriteRow::from(&**item)).collect::<Vec<_>>() as _,
            &contents.steps as _,
            &contents.events as _,
            &contents.settlements as _,
        )
        .fetch_all(&mut *connection)
        .await;
        let rows = connection.back(rows)?;
        let recorded = rows
            .into_iter()
            .map(|row| (row.id, Recorded { cancel_requested: row.cancel_requested, wake_seq: row.wake_seq }));
        self.recorded(worker, items, recorded.collect()).await
    }

    /// Result of each item of a batch, given the items written now.
    async fn recorded(
        &self,
        worker: WorkerId,
        items: &[Arc<JournalWrite>],
        written: HashMap<Uuid, Recorded>,
    ) -> Result<Vec<Flushed<Recorded>>, StoreError> {
        let missing: Vec<Uuid> = items.iter().map(|item| item.id.0).filter(|id| !written.contains_key(id)).collect();
        let states = self.lease_states(&missing).await?;
        let result = |item: &JournalWrite| match (written.get(&item.id.0), states.get(&item.id.0)) {
            (Some(recorded), _) => Flushed::Done(Ok(*recorded)),
            (None, Some(state)) => recorded_before(worker, item, state),
            (None, None) => Flushed::Done(Err(StoreError::NotFound("execution"))),
        };
        Ok(items.iter().map(|item| result(item)).collect())
    }

    /// Loads the journal of an execution, for a reader that knows every format up to `known`.
    ///
    /// # Errors
    /// Postgres is unavailable, or the stored journal is corrupt.
    pub async fn load_journal(&self, id: ExecutionId, known: u8) -> Result<Loaded, StoreError> {
        let rows = sqlx::query!(
            r#"
            select seq, kind, state, key, occurrence, name, appends, body, preview, failure_code,
                input_tokens, output_tokens, cached_tokens, cache_write_tokens, cost,
                coalesce(extract(epoch from finished_at - started_at), 0)::float8 as "took!"
            from steps where execution_id = $1 order by seq
            "#,
            id.0,
        )
        .fetch_all(&self.pool)
        .await?;
        // Check before parsing: a newer step's kind may be unknown here.
        let newest = rows.iter().map(|row| body::format_of(&row.body)).max().unwrap_or(1);
        if newest > known {
            return Ok(Loaded::Newer(newest));
        }
        let mut journal = StoredJournal::default();
        for row in rows {
            journal.steps.push(JournalStep {
                seq: row.seq,
                kind: parse_kind(&row.kind)?,
                state: parse_state(&row.state)?,
                key: hash(&row.key)?,
                occurrence: row.occurrence,
                name: row.name,
                appends: row
                    .appends
                    .iter()
                    .map(|bytes| body::decode(bytes).map(MessageBytes::from))
                    .collect::<Result<_, _>>()?,
                body: body::decode(&row.body)?,
                preview: row.preview,
                failure_code: row.failure_code,
                usage: StepUsage {
                    input_tokens: row.input_tokens,
                    output_tokens: row.output_tokens,
                    cached_tokens: row.cached_tokens,
                    cache_write_tokens: row.cache_write_tokens,
                    cost: row.cost.map(Usd::from_nanos),
                },
                took: std::time::Duration::try_from_secs_f64(row.took).unwrap_or_default(),
            });
        }
        Ok(Loaded::Journal(journal))
    }
}

/// Classifies a write that was not applied: applied before, row locked, or lease lost.
fn recorded_before(worker: WorkerId, item: &JournalWrite, state: &LeaseState) -> Flushed<Recorded> {
    match lease_state(worker, item.token, state) {
        Some(write) if write >= item.write => {
            Flushed::Done(Ok(Recorded { cancel_requested: state.cancel_requested, wake_seq: state.wake_seq }))
        }
        Some(write) if write == item.write - 1 => Flushed::Locked,
        Some(_) | None => Flushed::Done(Err(StoreError::LeaseLost)),
    }
}

fn parse_kind(name: &str) -> Result<StepKind, StoreError> {
    name.parse().map_err(|_| StoreError::Corrupt(format!("unknown step kind `{name}`")))
}

pub(super) fn parse_state(name: &str) -> Result<StepState, StoreError> {
    let known = [StepState::Intent, StepState::Live, StepState::Spent].into_iter().find(|state| state.as_str() == name);
    known.ok_or_else(|| StoreError::Corrupt(format!("unknown step state `{name}`")))
}
