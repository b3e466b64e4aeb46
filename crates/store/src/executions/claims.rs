//! Claiming: leases the next runnable executions in fair order, in one statement.
//!
//! docs/design/fairness.md describes the order, docs/design/limits.md how concurrency limits hold
//! executions back.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use tokio::time::timeout;

use super::claim_bounds::{ClaimLine, ClaimScan, whole_gaps};
pub use super::{
    claim_bounds::{ClaimBounds, ClaimFor, ClaimRequest},
    claimed::{Claimed, Lane},
};
use crate::{Store, StoreError, fleet::maintenance::Runnable};

/// Longest wait for the answer to a claim, from the moment it is sent: the wait for a connection does not count,
/// since nothing is claimed before. Executions of a later answer are released by reconciliation.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Fewest executions of one tenant that a claim examines, if it wants as many.
const MIN_PER_TENANT: usize = 16;
/// Fewest candidates that a claim examines once a concurrency limit held some back.
const BEHIND_LIMITS: i32 = 200;
/// Most tenants without permits among which a claim chooses one.
const MAX_NEWCOMERS: i64 = 200;
/// Most statements of one claim: it repeats while limits hold back all that it finds.
const MAX_ROUNDS: usize = 5;

/// Result of a claim.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    /// Executions leased to the worker.
    pub claimed: Vec<Claimed>,
    /// Executions that became runnable meanwhile, because they were given free slots.
    pub woken: Vec<Runnable>,
    /// True if executions were parked on the way, so that others behind them may be runnable.
    pub has_more: bool,
    /// False if no statement was sent, because no newcomer waits.
    pub has_claimed: bool,
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
    #[expect(clippy::too_many_lines, reason = "one statement with its parameters and its rows")]
    pub async fn claim(&self, request: &ClaimRequest<'_>, bounds: &ClaimBounds) -> Result<Claims, StoreError> {
        let newcomers = match request.tenants {
            ClaimFor::AnyTenant => Vec::new(),
            ClaimFor::Newcomer => self.newcomers(request, bounds).await?,
        };
        if request.tenants == ClaimFor::Newcomer && newcomers.is_empty() {
            return Ok(Claims::default());
        }
        let mut claims = Claims { has_claimed: true, ..Claims::default() };
        let mut wanted = ClaimRequest { ..request.clone() };
        let mut candidates = request.max;
        for _ in 0..MAX_ROUNDS {
            let spread = bounds.spread.load(Ordering::Relaxed).max(1);
            let room = usize::try_from(candidates).unwrap_or_default();
            let per_tenant = (2 * room / spread).clamp(MIN_PER_TENANT.min(room), room);
            let scan = match request.tenants {
                ClaimFor::AnyTenant => {
                    ClaimScan::of(&wanted, bounds, candidates, i32::try_from(per_tenant).unwrap_or(i32::MAX))
                }
                ClaimFor::Newcomer => ClaimScan::of_newcomers(newcomers.clone(), bounds, candidates),
            };
            let rows = match self.claim_once(&wanted, scan).await {
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
                // A claim for newcomers says nothing of other tenants.
                if wanted.tenants == ClaimFor::AnyTenant {
                    bounds.remember(&rows);
                }
            } else if per_tenant < room {
                bounds.spread.store(1, Ordering::Relaxed);
            }
            let suspects = rows.iter().filter(|row| row.lane == Lane::Suspect).count();
            wanted.suspects -= i32::try_from(suspects).unwrap_or_default();
            wanted.may_take_alone &= rows.iter().all(|row| row.lane != Lane::Alone);
            claims.claimed.extend(rows.into_iter().map(|row| {
                let charged = bounds.shares.begin(row.tenant_id);
                Claimed { charged, ..row }
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

    /// Where the executions of tenants that hold no permit of this process wait. A look that finds none writes nothing,
    /// which a claim that finds none does.
    async fn newcomers(&self, request: &ClaimRequest<'_>, bounds: &ClaimBounds) -> Result<Vec<ClaimLine>, StoreError> {
        let mut connection = self.claims.lend().await?;
        let look = sqlx::query_file!(
            "src/sql/newcomers.sql",
            whole_gaps(request) as _,
            &bounds.shares.holders(),
            MAX_NEWCOMERS
        )
        .fetch_all(&mut *connection);
        let Ok(answer) = timeout(ANSWER_LIMIT, look).await else {
            return Err(StoreError::TimedOut(ANSWER_LIMIT));
        };
        let rows = connection.back(answer)?;
        Ok(rows.into_iter().map(|row| ClaimLine::whole(row.queue, row.serve_key, row.tenant_id)).collect())
    }

    /// One statement: up to `request.max` leases.
    async fn claim_once(&self, request: &ClaimRequest<'_>, scan: ClaimScan) -> Result<Vec<Claimed>, StoreError> {
        let mut connection = self.claims.lend().await?;
        let claim = sqlx::query_file_as!(Claimed, "src/sql/claim.sql", request.worker.0, request.max, scan as _,)
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
