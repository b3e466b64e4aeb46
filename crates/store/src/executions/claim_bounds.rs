//! Executions that a claim examines: where the scans of a worker start, and between which tenants it looks for others.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use uuid::Uuid;

use super::claimed::{Claimed, Lane};
use crate::fleet::shares::{TenantShares, TenantUse};
use longhaul_domain::WorkerId;

/// Lifetime of a remembered low bound, after which a scan starts from zero again. Under backlog, an execution
/// that was never started and has a rank below the bound, such as a new submit of a higher priority, can be
/// overlooked for this long.
const LOW_BOUND_LIFE: Duration = Duration::from_secs(1);
/// Most tenants whose bounds one claim remembers.
const MAX_KNOWN: usize = 200;

/// Tenants whose executions a claim may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimFor {
    AnyTenant,
    /// Tenants that hold no permit of this process: one execution, and no suspect.
    Newcomer,
}

/// Limits of a claim.
#[derive(Debug, Clone)]
pub struct ClaimRequest<'a> {
    pub worker: WorkerId,
    /// Queues to claim from.
    pub queues: &'a [String],
    /// Serve keys that the worker satisfies.
    pub serves: &'a [String],
    pub tenants: ClaimFor,
    /// Most executions to claim.
    pub max: i32,
    /// Most suspects to claim.
    pub suspects: i32,
    /// True if one execution of [`Lane::Alone`] may be claimed, because the process holds no suspect.
    pub may_take_alone: bool,
}

/// Memory of a worker between claims: where scans start, so that under backlog they do not pass entries already
/// claimed but not yet vacuumed (core-rules 16), and what tenants use.
#[derive(Debug, Default)]
pub struct ClaimBounds {
    lines: Mutex<BTreeMap<Line, Bound>>,
    /// Number of tenants from which the last full claim took.
    pub(super) spread: AtomicUsize,
    pub(super) shares: Arc<TenantShares>,
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
    pub(super) fn remember(&self, rows: &[Claimed]) {
        let tenants: HashSet<Uuid> = rows.iter().map(|row| row.tenant_id.0).collect();
        self.spread.store(tenants.len(), Ordering::Relaxed);
        let mut lines = self.lines.lock();
        for row in rows.iter().filter(|row| row.lane == Lane::Normal && row.is_first) {
            let line = (row.queue.clone(), row.serve_key.clone(), row.tenant_id.0);
            if lines.len() < MAX_KNOWN || lines.contains_key(&line) {
                let bound = lines.entry(line).or_insert_with(|| ((i64::MIN, Uuid::nil()), Instant::now()));
                bound.0 = bound.0.max((row.rank, row.id.0));
            }
        }
    }
}

/// A row of the type `claim_line`: a tenant claimed from lately, and the position after which its scan starts.
#[derive(Debug, Clone, sqlx::Type)]
#[sqlx(type_name = "claim_line")]
pub(super) struct ClaimLine {
    queue: String,
    serve_key: String,
    tenant_id: Uuid,
    after_rank: i64,
    after_id: Uuid,
}

impl ClaimLine {
    /// All executions of the tenant.
    pub(super) fn whole(queue: String, serve_key: String, tenant_id: Uuid) -> Self {
        Self { queue, serve_key, tenant_id, after_rank: i64::MIN, after_id: Uuid::nil() }
    }
}

/// A row of the type `claim_gap`: tenants between which others with work are looked for.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "claim_gap")]
pub(super) struct ClaimGap {
    queue: String,
    serve_key: String,
    above: Uuid,
    below: Uuid,
}

/// A row of the type `claim_lane`: suspects of a lane, and its room.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "claim_lane")]
pub(super) struct ClaimLane {
    queue: String,
    serve_key: String,
    lane: i16,
    room: i32,
}

/// A row of the type `claim_scan`: the executions that one claim examines.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "claim_scan")]
pub(super) struct ClaimScan {
    candidates: i32,
    per_tenant: i32,
    lines: Vec<ClaimLine>,
    gaps: Vec<ClaimGap>,
    suspects: Vec<ClaimLane>,
    usage: Vec<TenantUse>,
    usual: f64,
}

impl ClaimScan {
    /// The scan of a claim of one execution, of one of these newcomers.
    pub(super) fn of_newcomers(lines: Vec<ClaimLine>, bounds: &ClaimBounds, candidates: i32) -> Self {
        Self {
            candidates,
            per_tenant: 1,
            lines,
            gaps: Vec::new(),
            suspects: Vec::new(),
            usage: bounds.shares.usage(),
            usual: bounds.shares.one_more(),
        }
    }

    /// The scan of a claim of at most `candidates` executions, and of one tenant at most `per_tenant`.
    pub(super) fn of(request: &ClaimRequest<'_>, bounds: &ClaimBounds, candidates: i32, per_tenant: i32) -> Self {
        let lanes =
            [(Lane::Suspect, request.suspects.min(request.max)), (Lane::Alone, i32::from(request.may_take_alone))];
        let mut scan = Self {
            candidates,
            per_tenant,
            lines: Vec::new(),
            gaps: Vec::new(),
            suspects: Vec::new(),
            usage: bounds.shares.usage(),
            usual: bounds.shares.one_more(),
        };
        let mut remembered = bounds.lines.lock();
        remembered.retain(|_, (_, since)| since.elapsed() < LOW_BOUND_LIFE);
        for (queue, serve_key) in request.lists() {
            let named = || (queue.clone(), serve_key.clone());
            let line = |tenant| (queue.clone(), serve_key.clone(), tenant);
            let mut known = Vec::new();
            for ((_, _, tenant_id), ((rank, id), _)) in remembered.range(line(Uuid::nil())..=line(Uuid::max())) {
                let (queue, serve_key) = named();
                known.push(*tenant_id);
                scan.lines.push(ClaimLine {
                    queue,
                    serve_key,
                    tenant_id: *tenant_id,
                    after_rank: *rank,
                    after_id: *id,
                });
            }
            scan.gaps.extend(gaps_between(known).into_iter().map(|(above, below)| {
                let (queue, serve_key) = named();
                ClaimGap { queue, serve_key, above, below }
            }));
            scan.suspects.extend(lanes.iter().filter(|(_, room)| *room > 0).map(|(lane, room)| {
                let (queue, serve_key) = named();
                ClaimLane { queue, serve_key, lane: *lane as i16, room: *room }
            }));
        }
        scan
    }
}

impl<'a> ClaimRequest<'a> {
    /// Pairs of a queue and a serve key to claim from.
    fn lists(&self) -> impl Iterator<Item = (&'a String, &'a String)> {
        let (queues, serves) = (self.queues, self.serves);
        queues.iter().flat_map(move |queue| serves.iter().map(move |serve_key| (queue, serve_key)))
    }
}

/// All tenants with work, in two parts that begin at a random place.
pub(super) fn whole_gaps(request: &ClaimRequest<'_>) -> Vec<ClaimGap> {
    let gaps = gaps_between(Vec::new());
    let of_list = |(queue, serve_key): (&String, &String)| {
        let gap = |(above, below)| ClaimGap { queue: queue.clone(), serve_key: serve_key.clone(), above, below };
        gaps.iter().copied().map(gap).collect::<Vec<_>>()
    };
    request.lists().flat_map(of_list).collect()
}

/// The ranges of tenants between those known.
fn gaps_between(known: Vec<Uuid>) -> Vec<(Uuid, Uuid)> {
    // The search for other tenants begins at a random place, so that each of very many gets its turn.
    let pivot = Uuid::new_v4();
    let mut edges = known;
    edges.extend([Uuid::nil(), Uuid::max(), pivot]);
    edges.sort_unstable();
    let mut gaps: Vec<_> = edges.windows(2).map(|pair| (pair[0], pair[1])).collect();
    if let Some(start) = gaps.iter().position(|(above, _)| *above == pivot) {
        gaps.rotate_left(start);
    }
    gaps
}
