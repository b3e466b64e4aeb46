//! Claiming: leases the next runnable executions in fair order, in one statement.
//!
//! docs/adr/0013-slots-and-fairness.md describes the order, and how concurrency limits hold executions back.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use tokio::time::timeout;
use uuid::Uuid;

use super::{Store, StoreError, maintenance::Runnable, shares::TenantShares};
use longhaul_shared::domain::{
    AgentVersionId, DefinitionVersionId, ExecutionId, LeaseToken, RetryCounters, SessionId, TenantId, WorkerId,
};

/// Longest wait for the answer to a claim, from the moment it is sent: the wait for a connection does not count,
/// since nothing is claimed before. Executions of a later answer are released by reconciliation.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Lifetime of a remembered low bound, after which a scan starts from zero again. Under backlog, an execution
/// that was never started and has a rank below the bound, such as a new submit of a higher priority, can be
/// overlooked for this long.
const LOW_BOUND_LIFE: Duration = Duration::from_secs(1);
/// Most tenants whose bounds one claim remembers, and most that it looks for besides.
const MAX_KNOWN: usize = 200;
const MAX_FOUND: i64 = 200;
/// Fewest executions of one tenant that a claim examines, if it wants as many.
const MIN_PER_TENANT: usize = 16;
/// Fewest candidates that a claim examines once a concurrency limit held some back.
const BEHIND_LIMITS: i32 = 200;
/// Most statements of one claim: it repeats while limits hold back all that it finds.
const MAX_ROUNDS: usize = 5;

/// Claim lane, by the number of worker deaths at which an execution was held. Suspects are kept apart to limit
/// what they take down with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum Lane {
    /// At most one death: runs with all others.
    Normal = 0,
    /// Two deaths: a few at a time in one process.
    Suspect = 1,
    /// Three or more deaths, never as the only suspect: one at a time, with no other suspect beside it.
    Alone = 2,
}

/// Limits of a claim.
#[derive(Debug, Clone)]
pub struct ClaimRequest<'a> {
    pub worker: WorkerId,
    /// Queues to claim from.
    pub queues: &'a [String],
    /// Serve keys that the worker satisfies.
    pub serves: &'a [String],
    /// Most executions to claim.
    pub max: i32,
    /// Most suspects to claim.
    pub suspects: i32,
    /// True if one execution of [`Lane::Alone`] may be claimed, because the process holds no suspect.
    pub may_take_alone: bool,
}

/// A leased execution, with everything that its attempt needs except the journal.
#[derive(Debug, Clone)]
pub struct Claimed {
    pub id: ExecutionId,
    pub tenant_id: TenantId,
    /// Pinned version.
    pub definition_version_id: DefinitionVersionId,
    /// Pinned version.
    pub agent_version_id: AgentVersionId,
    pub queue: String,
    pub lane: i16,
    /// Fencing token, which every write carries.
    pub token: LeaseToken,
    /// Number of this attempt, from 1.
    pub attempt: i32,
    pub created_at: DateTime<Utc>,
    /// Start of this lease, by the database's clock.
    pub claimed_at: DateTime<Utc>,
    /// End of the attempt's time: active timeout or deadline.
    pub active_until: DateTime<Utc>,
    pub deadline_at: DateTime<Utc>,
    /// `wake_seq` at the claim.
    pub wake_seq: i32,
    /// Tokens used by earlier attempts.
    pub tokens: i64,
    /// Tokens charged to its tenant for this attempt until its end tells the actual number.
    pub charged: f64,
    /// Retries so far.
    pub retries: RetryCounters,
    pub cancel_requested: bool,
    /// True if steps may be on record: of an earlier attempt, or copied from the execution it retries or forks.
    pub has_history: bool,
    /// Topmost execution of its tree; itself outside trees.
    pub root: ExecutionId,
    /// Levels below the root.
    pub depth: i16,
    pub has_budget: bool,
    pub is_first: bool,
    pub is_fork: bool,
    /// Session whose message it answers.
    pub session: Option<SessionId>,
    /// Deviations from its agent, as JSON text of `AgentOverrides`.
    pub overrides: Option<String>,
    /// Exact JSON text of the input.
    pub input: String,
    /// W3C trace context of the submit.
    pub traceparent: Option<String>,
}

/// Result of a claim.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    /// Executions leased to the worker.
    pub claimed: Vec<Claimed>,
    /// Executions that became runnable meanwhile, because they were given free slots.
    pub woken: Vec<Runnable>,
    /// True if executions were parked on the way, so that others behind them may be runnable.
    pub has_more: bool,
}

/// Memory of a worker between claims: where scans start, so that under backlog they do not pass entries already
/// claimed but not yet vacuumed (core-rules 16), and the usage of tenants.
#[derive(Debug, Default)]
pub struct ClaimBounds {
    lines: Mutex<BTreeMap<Line, Bound>>,
    /// Number of tenants from which the last full claim took.
    spread: AtomicUsize,
    shares: Arc<TenantShares>,
}

/// Queue, serve key and tenant.
type Line = (String, String, Uuid);
/// Greatest (rank, id) taken, and the time since which it is remembered.
type Bound = ((i64, Uuid), Instant);

impl ClaimBounds {
    /// Uses the shares that the process keeps.
    #[must_use]
    pub fn new(shares: Arc<TenantShares>) -> Self {
        Self { shares, ..Self::default() }
    }

    /// Remembers the positions of a full batch; one that was not full found the end of the queue and needs no
    /// bound. Executions started before, and suspects, are few and are searched from the start.
    fn remember(&self, rows: &[ClaimRow]) {
        let tenants: HashSet<Uuid> = rows.iter().map(|row| row.tenant_id).collect();
        self.spread.store(tenants.len(), Ordering::Relaxed);
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows.iter().filter(|row| row.lane == Lane::Normal as i16 && row.is_new) {
            let line = (row.queue.clone(), row.serve_key.clone(), row.tenant_id);
            if lines.len() < MAX_KNOWN || lines.contains_key(&line) {
                let bound = lines.entry(line).or_insert_with(|| ((i64::MIN, Uuid::nil()), Instant::now()));
                bound.0 = bound.0.max((row.rank, row.id));
            }
        }
    }
}

/// Ranges that one claim scans.
#[derive(Debug, Default)]
struct Scans {
    known: KnownLines,
    gaps: Gaps,
    suspects: Suspects,
}

/// Queues, serve keys and tenants, with the (rank, id) after which the scan starts.
type KnownLines = (Vec<String>, Vec<String>, Vec<Uuid>, Vec<i64>, Vec<Uuid>);
/// Queues and serve keys, with the tenants between which others are searched.
type Gaps = (Vec<String>, Vec<String>, Vec<Uuid>, Vec<Uuid>);
/// Queues, serve keys and lanes, with their room.
type Suspects = (Vec<String>, Vec<String>, Vec<i16>, Vec<i32>);

impl Scans {
    fn of(request: &ClaimRequest<'_>, bounds: &ClaimBounds) -> Self {
        let mut lines = bounds.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|_, (_, since)| since.elapsed() < LOW_BOUND_LIFE);
        let mut scans = Self::default();
        for (queue, serve) in request.queues.iter().flat_map(|q| request.serves.iter().map(move |s| (q, s))) {
            let of_line = (queue.clone(), serve.clone(), Uuid::nil())..=(queue.clone(), serve.clone(), Uuid::max());
            let mut edges = vec![Uuid::nil()];
            for ((_, _, tenant), ((rank, id), _)) in lines.range(of_line) {
                scans.known.0.push(queue.clone());
                scans.known.1.push(serve.clone());
                scans.known.2.push(*tenant);
                scans.known.3.push(*rank);
                scans.known.4.push(*id);
                edges.push(*tenant);
            }
            // Under backlog the search for other tenants begins at a random place, so that each of very many gets
            // its turn.
            let pivot = (edges.len() > 1).then(Uuid::new_v4);
            edges.extend(pivot);
            edges.sort_unstable();
            edges.push(Uuid::max());
            let mut gaps: Vec<_> = edges.windows(2).map(|pair| (pair[0], pair[1])).collect();
            if let Some(start) = gaps.iter().position(|(above, _)| Some(*above) == pivot) {
                gaps.rotate_left(start);
            }
            for (above, below) in gaps {
                scans.gaps.0.push(queue.clone());
                scans.gaps.1.push(serve.clone());
                scans.gaps.2.push(above);
                scans.gaps.3.push(below);
            }
            let rooms =
                [(Lane::Suspect, request.suspects.min(request.max)), (Lane::Alone, i32::from(request.may_take_alone))];
            for (lane, room) in rooms.into_iter().filter(|(_, room)| *room > 0) {
                scans.suspects.0.push(queue.clone());
                scans.suspects.1.push(serve.clone());
                scans.suspects.2.push(lane as i16);
                scans.suspects.3.push(room);
            }
        }
        scans
    }
}

struct ClaimRow {
    id: Uuid,
    tenant_id: Uuid,
    definition_version_id: Uuid,
    agent_version_id: Uuid,
    queue: String,
    serve_key: String,
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
    session_id: Option<Uuid>,
    root_id: Option<Uuid>,
    depth: i16,
    has_budget: bool,
    tokens: i64,
    rank: i64,
    is_new: bool,
    refused_keys: Option<Vec<String>>,
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
            tokens: row.tokens,
            charged: 0.0,
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
            is_first: row.is_new,
            is_fork: row.forked_from.is_some(),
            session: row.session_id.map(SessionId),
            overrides: row.overrides,
            input: row.input,
            traceparent: row.traceparent,
        }
    }
}

impl Store {
    /// Claims up to `request.max` executions. An empty result means a duplicate wake-up, or a worker whose row is
    /// dead.
    ///
    /// Executions that a concurrency limit holds back are parked, and others are examined instead until one was
    /// claimed.
    ///
    /// # Errors
    /// Postgres is unavailable, or its answer is late. If the claim was committed nevertheless, the worker's
    /// reconciliation releases it.
    pub async fn claim(&self, request: &ClaimRequest<'_>, bounds: &ClaimBounds) -> Result<Claims, StoreError> {
        let mut claims = Claims::default();
        let mut wanted = ClaimRequest { ..request.clone() };
        let mut candidates = request.max;
        for _ in 0..MAX_ROUNDS {
            let spread = bounds.spread.load(Ordering::Relaxed).max(1);
            let room = usize::try_from(candidates).unwrap_or_default();
            let per_tenant = (2 * room / spread).clamp(MIN_PER_TENANT.min(room), room);
            let rows = match self.claim_once(&wanted, bounds, candidates, per_tenant).await {
                Ok(rows) => rows,
                // Executions claimed by an earlier statement are kept.
                Err(error) if !claims.claimed.is_empty() => {
                    tracing::warn!(error = %error, "claim failed on its way");
                    break;
                }
                Err(error) => return Err(error),
            };
            let (refused, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.refused_keys.is_some());
            let took = i32::try_from(rows.len()).unwrap_or(i32::MAX);
            if took == wanted.max {
                bounds.remember(&rows);
            } else if per_tenant < room {
                bounds.spread.store(1, Ordering::Relaxed);
            }
            let suspects = rows.iter().filter(|row| row.lane == Lane::Suspect as i16).count();
            wanted.suspects -= i32::try_from(suspects).unwrap_or_default();
            wanted.may_take_alone &= rows.iter().all(|row| row.lane != Lane::Alone as i16);
            claims.claimed.extend(rows.into_iter().map(|row| {
                let charged = bounds.shares.begin(TenantId(row.tenant_id));
                Claimed { charged, ..Claimed::from(row) }
            }));
            wanted.max -= took;
            claims.has_more = !refused.is_empty() && wanted.max > 0;
            if !refused.is_empty() {
                // Slots freed while these executions were parked go to them.
                let keys = refused.into_iter().filter_map(|row| row.refused_keys).flatten().collect();
                claims.woken.extend(self.try_hand_over(keys).await);
                // The claimed executions start now; the next claim looks behind those that wait.
                if !claims.claimed.is_empty() {
                    break;
                }
                candidates = wanted.max.max(BEHIND_LIMITS);
            } else if per_tenant < room {
                candidates = wanted.max;
            } else {
                break;
            }
            if wanted.max <= 0 {
                break;
            }
        }
        Ok(claims)
    }

    /// One statement: up to `request.max` leases of up to `candidates` executions examined.
    async fn claim_once(
        &self,
        request: &ClaimRequest<'_>,
        bounds: &ClaimBounds,
        candidates: i32,
        per_tenant: usize,
    ) -> Result<Vec<ClaimRow>, StoreError> {
        let Scans { known, gaps, suspects } = Scans::of(request, bounds);
        let (tenants, usage) = bounds.shares.usage();
        let mut connection = self.claims.lend().await?;
        let claim = sqlx::query_file_as!(
            ClaimRow,
            "src/sql/claim.sql",
            request.worker.0,
            request.max,
            candidates,
            i64::try_from(per_tenant).unwrap_or(i64::MAX),
            &known.0,
            &known.1,
            &known.2,
            &known.3,
            &known.4,
            &gaps.0,
            &gaps.1,
            &gaps.2,
            &gaps.3,
            MAX_FOUND,
            &suspects.0,
            &suspects.1,
            &suspects.2,
            &suspects.3,
            &tenants,
            &usage,
            bounds.shares.usual(),
        )
        .fetch_all(&mut *connection);
        let sent = Instant::now();
        let Ok(answer) = timeout(ANSWER_LIMIT, claim).await else {
            // The answer may still be under way; the next claim uses another connection, so as not to wait for
            // it.
            return Err(StoreError::TimedOut(ANSWER_LIMIT));
        };
        let rows = connection.back(answer)?;
        // `timeout` prefers an answer that arrived while this process was stopped, however late.
        if sent.elapsed() > ANSWER_LIMIT {
            return Err(StoreError::TimedOut(ANSWER_LIMIT));
        }
        Ok(rows)
    }
}
