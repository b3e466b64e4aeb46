//! Replays a recorded step, or executes and records it: the loop has no other access to the outside world.
//!
//! Invariants:
//! - A recorded step is never executed again; resume replays the record and rebuilds nothing (core-rules 7).
//! - A step is committed before anything with an effect acts on its result (the last turn may be committed with the
//!   end of its run, docs/adr/0041-one-commit-ends-a-run.md); the intent of a side-effecting call is committed before
//!   it runs.
//! - Steps without cost or side effect (prompt, verdict, correction) wait for the next commit; if they are lost,
//!   they are repeated.
//! - Before anything is launched the lease must be fresh and the worker not draining
//!   ([`AttemptControl::may_launch`]).

pub(crate) mod budget;
mod calls;
mod children;
mod commit;
mod compress;
mod detached;
mod limits;
mod output;
mod people;
mod progress;
mod prompt;
mod provider;
mod reply;
mod retrieval;
mod secrets;
mod servers;
mod session;
mod turn;
mod user_messages;
mod verdict;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use longhaul_sdk::{Failure, FailureCode, Interrupt, Step, StepError, ToolEffect, ToolScratchpad};
use longhaul_shared::domain::{ExecutionId, SessionId, TenantId};
use longhaul_store::{
    StoreError,
    journal::{Hash, JournalStep, JournalWrite, MessageBytes, NewEvent, StepKind, StepState, StepUsage, StoredJournal},
    lease_writer::LeaseWriter,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use budget::fold_budget;
pub use calls::Reply;
pub(crate) use calls::{Answered, CompletedCall, RanAs, Recalled, call_key};
pub(crate) use children::{NotStarted, Task};
use commit::Pending;
use detached::DetachedCalls;
pub(crate) use detached::detached_key;
use limits::Spending;
use longhaul_llm::Message;
use longhaul_references::{CallWrite, Method, Path, StateLimits, StateLog};
use longhaul_shared::domain::{CallError, CallErrorKind, ToolCall};
use output::OpenOutput;
pub(crate) use people::Wanted;
pub(crate) use progress::{Stage, State};
pub use prompt::PinnedTools;
use secrets::ToolSecrets;
use servers::Servers;
pub(crate) use turn::{NextTurn, PendingTurn, Turn};
use user_messages::UserMessage;

use super::{
    Agent,
    admission::Waiting,
    orchestrator::permits::CallPermits,
    transcript::{Transcript, hash_parts},
};
use crate::{deps::AgentDeps, lease::AttemptControl, probe::Point, suspects};

/// Maximum characters of a step's preview.
const PREVIEW_CHARS: usize = 200;

/// An attempt's view of its execution's journal.
pub struct Journal {
    id: ExecutionId,
    scope: ExecutionScope,
    deps: Arc<AgentDeps>,
    writer: LeaseWriter,
    control: Arc<AttemptControl>,
    /// Recorded steps not replayed yet, in order, without spent steps and calls; calls are looked up by key.
    recorded: VecDeque<JournalStep>,
    recorded_calls: HashMap<Hash, JournalStep>,
    /// Call steps after a partly recorded turn.
    begun_steps: Vec<JournalStep>,
    /// Sequence numbers of intents without a result, and the effect class of those calls.
    intents: HashMap<Hash, (i32, Option<ToolEffect>)>,
    /// Calls of a partly recorded turn that those intents hold.
    begun: HashMap<Hash, Vec<ToolCall>>,
    /// Calls of the current tick without a result.
    open_calls: Vec<(Hash, ToolCall)>,
    /// Number of spent steps per key.
    spent: HashMap<Hash, i32>,
    /// Turns whose reply was cut at a limit lowered by the budget: asked again for a full reply.
    cut_by_budget: HashSet<Hash>,
    pending: Pending,
    /// A write that was interrupted before its outcome was known. It may be committed, so it is sent again before
    /// any other.
    under_way: Option<Arc<JournalWrite>>,
    next_seq: i32,
    /// Number of recorded retrieval steps, which precede the prompt.
    retrievals: i32,
    writes: i32,
    wake_seq: i32,
    turns: u32,
    /// Consecutive replies without text or calls.
    empty_turns: u32,
    spending: Spending,
    repeats: HashMap<Hash, u32>,
    compressions: u32,
    transcript: Transcript,
    state: StateLog,
    output: Option<OpenOutput>,
    detached: DetachedCalls,
    scratchpad: Arc<ToolScratchpad>,
    said: Vec<UserMessage>,
    secrets: ToolSecrets,
    /// The last refusal of an answer, as failure detail.
    complaint: Option<Value>,
    ends_in_one_commit: bool,
    /// The wait that ends the attempt.
    parked: Option<Parked>,
    servers: Servers,
}

/// An execution's tenant, queue and tree.
#[derive(Debug, Clone)]
pub struct ExecutionScope {
    pub tenant: TenantId,
    /// Also the queue of its children.
    pub queue: String,
    /// Root of the tree, which owns the budget.
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

impl Journal {
    /// Opens the journal `stored` of an execution for one attempt.
    ///
    /// # Errors
    /// A stored step cannot be read.
    pub fn new(
        (id, scope): (ExecutionId, ExecutionScope),
        stored: StoredJournal,
        wake_seq: i32,
        deps: Arc<AgentDeps>,
        writer: LeaseWriter,
        control: Arc<AttemptControl>,
    ) -> Step<Self> {
        let mut journal = Self {
            id,
            scope,
            deps,
            writer,
            control,
            recorded: VecDeque::new(),
            recorded_calls: HashMap::new(),
            begun_steps: Vec::new(),
            intents: HashMap::new(),
            begun: HashMap::new(),
            open_calls: Vec::new(),
            spent: HashMap::new(),
            cut_by_budget: HashSet::new(),
            pending: Pending::default(),
            under_way: None,
            next_seq: stored.steps.last().map_or(1, |step| step.seq + 1),
            retrievals: 0,
            writes: 0,
            wake_seq,
            turns: 0,
            empty_turns: 0,
            spending: Spending::default(),
            repeats: HashMap::new(),
            compressions: 0,
            transcript: Transcript::default(),
            state: StateLog::new(Value::Null, None, StateLimits { value_bytes: 0, total_bytes: 0 }),
            output: None,
            detached: DetachedCalls::default(),
            scratchpad: Arc::default(),
            said: Vec::new(),
            secrets: ToolSecrets::default(),
            ends_in_one_commit: false,
            complaint: None,
            parked: None,
            servers: Servers::default(),
        };
        let begun_turn = |step: &JournalStep| step.kind == StepKind::Turn && step.state == StepState::Intent;
        let begun_at = stored.steps.iter().rfind(|step| begun_turn(step)).map(|step| step.seq);
        for step in stored.steps {
            journal.servers.note(&step)?;
            journal.retrievals += i32::from(step.kind == StepKind::Retrieval);
            if step.kind == StepKind::Call && begun_at.is_some_and(|at| step.seq > at) {
                journal.begun_steps.push(step.clone());
            }
            match (step.state, step.kind) {
                (StepState::Spent, _) => {
                    *journal.spent.entry(step.key).or_default() += 1;
                    if step.failure_code.as_deref() == Some(FailureCode::BUDGET_EXHAUSTED.as_str()) {
                        journal.cut_by_budget.insert(step.key);
                    }
                }
                (StepState::Live | StepState::Intent, StepKind::Call) => {
                    journal.recorded_calls.insert(step.key, step);
                }
                (StepState::Live | StepState::Intent, _) => journal.recorded.push_back(step),
            }
        }
        Ok(journal)
    }

    pub(crate) fn scratchpad(&self) -> &Arc<ToolScratchpad> {
        &self.scratchpad
    }

    /// Lets the last turn wait for the statement that ends the lease. Only for a run that ends with the answer to
    /// that turn and whose validators have no side effects (docs/adr/0041-one-commit-ends-a-run.md).
    pub fn end_in_one_commit(&mut self) {
        self.ends_in_one_commit = true;
    }

    /// True if a turn without calls is committed with the end of the lease, not on its own.
    pub(crate) fn is_last_turn_deferred(&self) -> bool {
        self.ends_in_one_commit && self.detached_count() == 0
    }

    /// The wait that ends the attempt with [`Interrupt::Waiting`].
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

    /// The key by which a call's tool recognises a repetition.
    pub(crate) fn call_idempotency_key(&self, key: &Hash) -> String {
        self.idempotency_key(key)
    }

    /// Wake counter as of the last commit.
    pub fn wake_seq(&self) -> i32 {
        self.wake_seq
    }

    /// The next recorded step of `kind`. Skipped steps of other kinds mean that the code now takes another path
    /// than the record: emits `journal_diverged` and continues from the record.
    fn replay(&mut self, kind: StepKind) -> Option<JournalStep> {
        let at = self.recorded.iter().position(|step| step.kind == kind)?;
        if at > 0 {
            let skipped = self.recorded[0].kind.as_str();
            self.diverged(json!({ "expected": kind.as_str(), "recorded": skipped, "skipped": at }));
        }
        self.recorded.drain(..=at).next_back()
    }

    fn diverged(&mut self, data: Value) {
        tracing::warn!(execution.id = %self.id, "the code took another way than the journal; going on from the record");
        self.event("journal_diverged", data);
    }

    pub(crate) fn event(&mut self, kind: &'static str, data: Value) {
        self.pending.events.push(NewEvent { kind, data });
    }

    /// Adds a message to the transcript. The returned bytes belong in the step that appends it.
    fn append(&mut self, message: Message) -> Step<MessageBytes> {
        let (hash, bytes) = message_bytes(&message)?;
        self.transcript.push(message, hash);
        Ok(bytes)
    }

    fn replay_appends(&mut self, step: &JournalStep) -> Step<()> {
        for bytes in &step.appends {
            let (message, hash) = recorded_message(bytes)?;
            self.replay_message(message, hash);
        }
        Ok(())
    }

    /// Creates a live step with the next sequence number.
    fn step(&mut self, kind: StepKind, key: Hash, body: &impl Serialize) -> Step<JournalStep> {
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
            occurrence: self.occurrence(&key),
            name: None,
            appends: Vec::new(),
            body,
            preview: None,
            failure_code: None,
            usage: StepUsage::default(),
            took: std::time::Duration::ZERO,
        })
    }

    fn occurrence(&self, key: &Hash) -> i32 {
        self.spent.get(key).copied().unwrap_or_default()
    }

    /// State written by the calls so far.
    pub fn state(&self) -> &StateLog {
        &self.state
    }

    /// Checks that something may be launched: the lease is fresh and the worker is not draining.
    ///
    /// # Errors
    /// An interrupt: the lease is lost or the worker is draining.
    pub async fn may_launch(&self) -> Step<()> {
        self.control.may_launch().await
    }

    /// Number of turns so far, including the current one.
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// Permits for concurrent calls of this process.
    pub fn call_permits(&self) -> CallPermits {
        self.deps.call_permits.clone()
    }

    pub(crate) fn tenant(&self) -> TenantId {
        self.scope.tenant
    }

    pub(crate) fn execution(&self) -> ExecutionId {
        self.id
    }

    /// Makes a person's approval readable by every call.
    ///
    /// # Errors
    /// The value exceeds the state's limits.
    pub(crate) fn open_gate(&mut self, path: &Path, value: Value) -> Result<(), CallError> {
        let write = CallWrite {
            tick: self.turns,
            call_id: "approval".to_owned(),
            instance: None,
            paths: vec![path.clone()],
            method: Method::Set,
            value,
        };
        let written = self.state.write(write);
        written.map(drop).map_err(|error| CallError::new(CallErrorKind::Rejected, error.to_string()))
    }

    /// Reports state paths that two calls of the tick set, of which the later one wins.
    pub(crate) fn note_conflicts(&mut self) {
        for conflict in self.state.conflicts(self.turns) {
            self.event("state_conflict", json!(conflict));
        }
    }

    /// Notes the next phase of a crash suspect, in case it kills the worker.
    pub(crate) async fn about_to(&self, phase: impl FnOnce() -> String) {
        suspects::note(&self.deps.store, self.writer.worker(), self.id, &self.control, phase).await;
    }

    pub(crate) async fn at(&self, point: Point) {
        self.deps.probe.at(point, self.id).await;
    }
}

fn message_bytes(message: &Message) -> Step<(Hash, MessageBytes)> {
    let bytes = message.to_bytes().map_err(|error| corrupt(&error))?;
    Ok((hash_parts(&[&bytes]), bytes.into()))
}

fn recorded_message(bytes: &MessageBytes) -> Step<(Message, Hash)> {
    Ok((Message::from_bytes(bytes).map_err(|error| corrupt(&error))?, hash_parts(&[bytes])))
}

fn read_body<T: for<'de> Deserialize<'de>>(step: &JournalStep) -> Step<T> {
    Ok(serde_json::from_slice(&step.body).map_err(|error| corrupt(&error))?)
}

fn preview(text: &str) -> String {
    text.chars().take(PREVIEW_CHARS).collect()
}

fn corrupt(reason: &dyn std::fmt::Display) -> Failure {
    Failure::permanent(FailureCode::INTERNAL_ERROR, format!("the journal cannot be written or read: {reason}"))
}

/// Maps a failed store statement to the attempt's interrupt or failure.
pub fn from_store(error: StoreError) -> StepError {
    match error {
        // The attempt can prove nothing about its lease any more; the lease decides which worker continues.
        StoreError::LeaseLost
        | StoreError::LeaseStale
        | StoreError::Closed
        | StoreError::TooMuch(_)
        | StoreError::Unavailable(_)
        | StoreError::Unreachable(_)
        | StoreError::Misconfigured(_)
        | StoreError::TimedOut(_) => Interrupt::LeaseLost.into(),
        StoreError::NotFound(_) | StoreError::Conflict(_) | StoreError::Rejected(_) | StoreError::Corrupt(_) => {
            tracing::error!(error = %error, "the store refused a statement of an attempt");
            Failure::permanent(FailureCode::INTERNAL_ERROR, "the store could not read or write what the attempt needs")
                .into()
        }
    }
}
