//! Claiming: the next runnable executions in fair order, each with a fresh lease, in one statement.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use tokio::time::timeout;
use uuid::Uuid;

use super::{Store, StoreError};
use crate::domain::{AgentVersionId, DefinitionVersionId, ExecutionId, LeaseToken, RetryCounters, TenantId, WorkerId};

/// The longest the answer to a claim is waited for, from the moment it is sent: the wait for a connection does not count, since
/// until then nothing is taken. What an answer that comes later would have brought is handed back by reconciliation.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Priorities, highest first.
const PRIORITIES: std::ops::RangeInclusive<i16> = 0..=9;
/// How long a remembered low bound is used before a scan starts from zero again. Retries and hand-backs are older than the
/// bound, so this is also the longest they can be overlooked under backlog.
const LOW_BOUND_LIFE: Duration = Duration::from_secs(1);

/// How many deaths an execution was held at; suspects are kept apart so that they cannot take others down with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum Lane {
    /// At most one death: runs with all others.
    Normal = 0,
    /// Two deaths: a few at a time in one process.
    Suspect = 1,
    /// Three or more, never alone: one at a time, with no other suspect beside it.
    Alone = 2,
}

/// What a claim may take.
#[derive(Debug, Clone)]
pub struct ClaimRequest<'a> {
    /// Who claims.
    pub worker: WorkerId,
    /// From these queues.
    pub queues: &'a [String],
    /// For these serve keys.
    pub serves: &'a [String],
    /// At most so many.
    pub max: i32,
    /// At most so many suspects; with [`Lane::Alone`] open only when the process holds no suspect.
    pub suspects: i32,
    /// Whether one execution of [`Lane::Alone`] may be taken.
    pub may_take_alone: bool,
}

/// A leased execution, with everything its attempt needs but the journal.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The execution.
    pub id: ExecutionId,
    /// Who owns it.
    pub tenant_id: TenantId,
    /// The pinned definition version.
    pub definition_version_id: DefinitionVersionId,
    /// The pinned agent version.
    pub agent_version_id: AgentVersionId,
    /// Its queue.
    pub queue: String,
    /// Its lane.
    pub lane: i16,
    /// The lease: every write carries it.
    pub token: LeaseToken,
    /// The number of this attempt, from 1.
    pub attempt: i32,
    /// When it was submitted.
    pub created_at: DateTime<Utc>,
    /// When this lease began, of the database's clock.
    pub claimed_at: DateTime<Utc>,
    /// When the attempt must end: active timeout or deadline.
    pub active_until: DateTime<Utc>,
    /// When the execution must have ended.
    pub deadline_at: DateTime<Utc>,
    /// The wake counter at the claim.
    pub wake_seq: i32,
    /// Retries so far.
    pub retries: RetryCounters,
    /// Whether its cancellation was requested.
    pub cancel_requested: bool,
    /// Whether anything may be recorded of it: an earlier attempt, or the journal copied from the execution it retries or forks.
    pub has_history: bool,
    /// The topmost execution of its tree: itself, when nobody started it.
    pub root: ExecutionId,
    /// Levels below the root.
    pub depth: i16,
    /// Whether its tree has a budget.
    pub has_budget: bool,
    /// Whether this is the first claim.
    pub is_first: bool,
    /// Whether it continues another execution from the middle.
    pub is_fork: bool,
    /// What it does differently from its agent, as JSON text of `AgentOverrides`.
    pub overrides: Option<String>,
    /// The exact JSON text of the input.
    pub input: String,
    /// W3C trace context of the submit.
    pub traceparent: Option<String>,
}

/// Where the scans of a worker's claims start, so that under backlog they do not step over what is already claimed but not
/// yet vacuumed (core-rules 16).
#[derive(Debug, Default)]
pub struct ClaimBounds(Mutex<HashMap<Slot, Bound>>);

/// Queue, serve key and priority.
type Slot = (String, String, i16);
/// The greatest id taken, and since when it is remembered.
type Bound = (Uuid, Instant);

impl ClaimBounds {
    fn low(&self, queue: &str, serve: &str, priority: i16) -> Uuid {
        let mut bounds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (queue.to_owned(), serve.to_owned(), priority);
        match bounds.get(&key) {
            Some((low, since)) if since.elapsed() < LOW_BOUND_LIFE => *low,
            Some(_) => {
                bounds.remove(&key);
                Uuid::nil()
            }
            None => Uuid::nil(),
        }
    }

    /// Remembers what a full batch took; a batch that was not full found the end of the queue and needs no bound. Suspects are
    /// few and are looked for from the start.
    fn remember(&self, claimed: &[Claimed], slots: Vec<(String, i16)>) {
        let mut bounds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let normal = claimed.iter().zip(slots).filter(|(claim, _)| claim.lane == Lane::Normal as i16);
        for (claim, (serve, priority)) in normal {
            let bound =
                bounds.entry((claim.queue.clone(), serve, priority)).or_insert_with(|| (Uuid::nil(), Instant::now()));
            bound.0 = bound.0.max(claim.id.0);
        }
    }
}

#[derive(Debug, Default)]
struct Slots {
    queues: Vec<String>,
    serves: Vec<String>,
    lanes: Vec<i16>,
    priorities: Vec<i16>,
    after: Vec<Uuid>,
    rooms: Vec<i32>,
}

impl Slots {
    fn of(request: &ClaimRequest<'_>, bounds: &ClaimBounds) -> Self {
        let mut slots = Self::default();
        for (queue, serve) in request.queues.iter().flat_map(|q| request.serves.iter().map(move |s| (q, s))) {
            for priority in PRIORITIES {
                let mut add = |lane: Lane, after, room| {
                    if room > 0 {
                        slots.queues.push(queue.clone());
                        slots.serves.push(serve.clone());
                        slots.lanes.push(lane as i16);
                        slots.priorities.push(priority);
                        slots.after.push(after);
                        slots.rooms.push(room);
                    }
                };
                add(Lane::Normal, bounds.low(queue, serve, priority), request.max);
                add(Lane::Suspect, Uuid::nil(), request.suspects.min(request.max));
                add(Lane::Alone, Uuid::nil(), i32::from(request.may_take_alone));
            }
        }
        slots
    }
}

struct ClaimRow {
    id: Uuid,
    tenant_id: Uuid,
    definition_version_id: Uuid,
    agent_version_id: Uuid,
    queue: String,
    serve_key: String,
    priority: i16,
    lane: i16,
    lease_token: Uuid,
    attempt: i32,
    created_at: DateTime<Utc>,
    claimed_at: DateTime<Utc>,
    active_until: DateTime<Utc>,
    deadline_at: DateTime<Utc>,
    wake_seq: i32,
    transient_retries: i16,
    tool_error_retries: i16,
    llm_error_retries: i16,
    cancel_requested_at: Option<DateTime<Utc>>,
    retry_of: Option<Uuid>,
    forked_from: Option<Uuid>,
    root_id: Option<Uuid>,
    depth: i16,
    has_budget: bool,
    was_pending: bool,
    overrides: Option<String>,
    input: String,
    traceparent: Option<String>,
}

impl From<ClaimRow> for Claimed {
    fn from(row: ClaimRow) -> Self {
        Self {
            id: ExecutionId(row.id),
            tenant_id: TenantId(row.tenant_id),
            definition_version_id: DefinitionVersionId(row.definition_version_id),
            agent_version_id: AgentVersionId(row.agent_version_id),
            queue: row.queue,
            lane: row.lane,
            token: LeaseToken(row.lease_token),
            attempt: row.attempt,
            created_at: row.created_at,
            claimed_at: row.claimed_at,
            active_until: row.active_until,
            deadline_at: row.deadline_at,
            wake_seq: row.wake_seq,
            retries: RetryCounters {
                transient: row.transient_retries.unsigned_abs().into(),
                tool_error: row.tool_error_retries.unsigned_abs().into(),
                llm_error: row.llm_error_retries.unsigned_abs().into(),
            },
            cancel_requested: row.cancel_requested_at.is_some(),
            has_history: row.attempt > 1 || row.retry_of.is_some() || row.forked_from.is_some(),
            root: ExecutionId(row.root_id.unwrap_or(row.id)),
            depth: row.depth,
            has_budget: row.has_budget,
            is_first: row.was_pending,
            is_fork: row.forked_from.is_some(),
            overrides: row.overrides,
            input: row.input,
            traceparent: row.traceparent,
        }
    }
}

impl Store {
    /// Claims up to `request.max` executions. An empty answer is a duplicate wake-up, or a worker whose row is dead.
    ///
    /// # Errors
    /// Postgres is unavailable, or its answer is late. If the claim was committed all the same, the worker's reconciliation
    /// hands it back.
    pub async fn claim(&self, request: &ClaimRequest<'_>, bounds: &ClaimBounds) -> Result<Vec<Claimed>, StoreError> {
        let slots = Slots::of(request, bounds);
        let mut connection = self.claims.acquire().await?;
        let claim = sqlx::query_file_as!(
            ClaimRow,
            "src/store/sql/claim.sql",
            request.worker.0,
            &slots.queues,
            &slots.serves,
            &slots.lanes,
            &slots.priorities,
            &slots.after,
            &slots.rooms,
            i64::from(request.max),
        )
        .fetch_all(&mut *connection);
        let sent = Instant::now();
        let Ok(answer) = timeout(ANSWER_LIMIT, claim).await else {
            // Its answer may still be under way; the next claim must not wait for it.
            connection.close_on_drop();
            return Err(StoreError::TimedOut(ANSWER_LIMIT));
        };
        let mut rows = answer?;
        // The timer gives way to an answer that lay ready while this process did not run.
        if sent.elapsed() > ANSWER_LIMIT {
            return Err(StoreError::TimedOut(ANSWER_LIMIT));
        }
        let slots = rows.iter_mut().map(|row| (std::mem::take(&mut row.serve_key), row.priority)).collect();
        let claimed: Vec<Claimed> = rows.into_iter().map(Claimed::from).collect();
        if claimed.len() == usize::try_from(request.max).unwrap_or_default() {
            bounds.remember(&claimed, slots);
        }
        Ok(claimed)
    }
}
