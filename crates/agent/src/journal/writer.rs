//! What the attempt records under its lease: steps and events with their numbers, and the waits that end it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use longhaul_domain::{ExecutionId, LeaseToken, SessionId, TenantId, ToolCall, WorkerId};
use longhaul_sdk::{FailureCode, Step};
use longhaul_store::{
    executions::budgets::Settlement,
    fleet::lease_writer::LeaseWriter,
    history::journal::{Hash, JournalStep, JournalWrite, NewEvent, StepKind, StepState, StepUsage},
};
use serde::Serialize;
use serde_json::Value;

use super::{
    call_record::Intent, corrupt, counters::Counters, portion::Portions, reply_so_far::ReplySoFar, secrets::ToolSecrets,
};
use crate::{
    deps::AgentDeps,
    lease::{AttemptControl, suspects},
    messages::hash_parts,
    probe::Point,
    ready_call::Waiting,
};

/// An execution's tenant, queue and tree.
#[derive(Debug, Clone)]
pub struct ExecutionScope {
    pub tenant: TenantId,
    /// Key of the agent.
    pub agent: String,
    /// Also the queue of its children.
    pub queue: String,
    /// Owner of the budget: the root of the tree, or the session.
    pub root: ExecutionId,
    pub has_budget: bool,
    /// True if part of the journal was copied from an execution with another prompt or model.
    pub is_fork: bool,
    /// Session whose transcript precedes the execution's own messages.
    pub session: Option<SessionId>,
}

/// A wait, with the wake counter read before its condition was checked: a later wake ends the wait at once
/// (core-rules 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parked {
    pub waiting: Waiting,
    pub wake_seq: i32,
}

/// Steps, events, counts and settlements for the next commit.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) steps: Vec<JournalStep>,
    pub(super) events: Vec<NewEvent>,
    pub(super) turns: i32,
    pub(super) calls: i32,
    pub(super) settlements: Vec<Settlement>,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.events.is_empty() && self.settlements.is_empty()
    }
}

/// The attempt's side of the journal.
pub struct Writer {
    pub(crate) id: ExecutionId,
    pub(crate) scope: ExecutionScope,
    pub(crate) deps: Arc<AgentDeps>,
    pub(super) lease: LeaseWriter,
    pub(crate) control: Arc<AttemptControl>,
    pub(super) pending: Pending,
    /// A write that was interrupted before its outcome was known. It may be committed, so it is sent again before
    /// any other.
    pub(super) under_way: Option<Arc<JournalWrite>>,
    pub(super) next_seq: i32,
    pub(super) writes: i32,
    pub(super) wake_seq: i32,
    /// Number of turns so far, including the current one.
    pub(crate) turns: u32,
    pub(super) counters: Counters,
    /// Number of spent steps per key.
    pub(super) spent: HashMap<Hash, i32>,
    /// Turns whose reply was cut at a limit lowered by the budget: asked again for a full reply.
    pub(super) cut_by_budget: HashSet<Hash>,
    pub(super) intents: HashMap<Hash, Intent>,
    /// Recorded answers about the outputs of children.
    pub(super) aggregations: HashMap<Hash, JournalStep>,
    /// Calls of the current tick without a result.
    pub(super) open_calls: Vec<(Hash, ToolCall)>,
    pub(super) secrets: ToolSecrets,
    /// The wait that ends the attempt.
    pub(super) parked: Option<Parked>,
    /// The reply of a session's turn under way.
    pub(super) so_far: Option<ReplySoFar>,
    /// Recorded text of a turn that is not recorded.
    pub(super) portions: Portions,
}

impl Writer {
    /// A writer under the lease of a claim, which returned the wake counter `wake_seq`.
    pub fn new(
        (id, scope): (ExecutionId, ExecutionScope),
        wake_seq: i32,
        deps: Arc<AgentDeps>,
        lease: LeaseWriter,
        control: Arc<AttemptControl>,
    ) -> Self {
        Self {
            id,
            scope,
            deps,
            lease,
            control,
            pending: Pending::default(),
            under_way: None,
            next_seq: 1,
            writes: 0,
            wake_seq,
            turns: 0,
            counters: Counters::default(),
            spent: HashMap::new(),
            cut_by_budget: HashSet::new(),
            intents: HashMap::new(),
            aggregations: HashMap::new(),
            open_calls: Vec::new(),
            secrets: ToolSecrets::default(),
            parked: None,
            so_far: None,
            portions: Portions::None,
        }
    }

    /// Continues the numbers of a recorded step.
    pub(super) fn continue_from(&mut self, step: &JournalStep) {
        self.next_seq = step.seq + 1;
        if step.kind == StepKind::Aggregation {
            self.aggregations.insert(step.key, step.clone());
        }
        if step.state == StepState::Spent {
            *self.spent.entry(step.key).or_default() += 1;
            if step.failure_code.as_deref() == Some(FailureCode::BUDGET_EXHAUSTED.as_str()) {
                self.cut_by_budget.insert(step.key);
            }
        }
    }

    /// Creates a live step with the next sequence number.
    pub(super) fn step(&mut self, kind: StepKind, key: Hash, body: &impl Serialize) -> Step<JournalStep> {
        let seq = self.next_seq;
        self.next_seq += 1;
        let mut body = serde_json::to_vec(body).map_err(|error| corrupt(&error))?;
        // A prompt's body stays in memory until the first reply is committed with it.
        body.shrink_to_fit();
        Ok(JournalStep {
            seq,
            kind,
            state: StepState::Live,
            key,
            occurrence: self.spent.get(&key).copied().unwrap_or_default(),
            name: None,
            appends: Vec::new(),
            body,
            preview: None,
            failure_code: None,
            usage: StepUsage::default(),
            took: Duration::ZERO,
        })
    }

    pub(super) fn step_key(&self, key: &Hash) -> Hash {
        let spent = self.spent.get(key).copied().unwrap_or_default();
        hash_parts(&[self.id.0.as_bytes(), key, &spent.to_be_bytes()])
    }

    /// The key by which a model's endpoint or a tool recognises a repetition; changes once an answer to it is
    /// spent.
    pub(crate) fn idempotency_key(&self, key: &Hash) -> String {
        hex::encode(self.step_key(key))
    }

    pub(crate) fn event(&mut self, kind: &'static str, data: Value) {
        self.pending.events.push(NewEvent { kind, data });
    }

    pub(super) fn diverged(&mut self, data: Value) {
        tracing::warn!(execution.id = %self.id, "the code took another way than the journal; going on from the record");
        self.event("journal_diverged", data);
    }

    /// The wait that ends the attempt with [`Interrupt::Waiting`](longhaul_sdk::Interrupt::Waiting).
    pub fn parked(&self) -> Option<Parked> {
        self.parked
    }

    /// Records a wait whose condition was checked after `wake_seq` was read. Of several waits, the first reason,
    /// the earliest end and the lowest wake counter are kept.
    pub fn park(&mut self, waiting: Waiting, wake_seq: i32) {
        let parked = self.parked.get_or_insert(Parked { waiting, wake_seq });
        parked.wake_seq = parked.wake_seq.min(wake_seq);
        parked.waiting.until = match (parked.waiting.until, waiting.until) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    /// Wake counter as of the last commit.
    pub fn wake_seq(&self) -> i32 {
        self.wake_seq
    }

    /// The lease of the attempt.
    pub fn held_lease(&self) -> (WorkerId, ExecutionId, LeaseToken) {
        (self.lease.worker(), self.id, self.control.token)
    }

    /// Notes the next phase of a crash suspect, in case it kills the worker.
    pub(crate) async fn about_to(&self, phase: impl FnOnce() -> String) {
        suspects::note(&self.deps.store, self.lease.worker(), self.id, &self.control, phase).await;
    }

    pub(crate) async fn at(&self, point: Point) {
        self.deps.probe.at(point, self.id).await;
    }
}
