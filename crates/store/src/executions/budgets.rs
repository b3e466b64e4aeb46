//! Budgets: a spending limit of an execution tree, reserved before each model call and settled with its step
//! (core-rules 13). The file is long because reservations and folds share one batch and its rows.
//!
//! Invariants:
//! - A call reserves its upper bound before it is made, and is sent with the reserved reply limit.
//! - The reservation is a row keyed by the step: a resumed attempt reuses it, and charges it at its estimate if
//!   another attempt may have made the call.
//! - Settling writes the reservation alone, in the statement that records the step ([`JournalWrite`]); a later
//!   fold adds it to the budget's row. A thousand children of one root do not wait for each other's row when they
//!   record.
//! - Statements that lock a budget run in a batch lane of their own, ordered by root, and skip locked budgets.
//! - Freed or added budget is granted to waiters in the order they asked, and wakes them (core-rules 3).
//!
//! [`JournalWrite`]: crate::history::journal::JournalWrite

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use longhaul_sdk::{
    Usd,
    spec::{BudgetSpec, OnExhausted},
};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::batch::Flushed,
    executions::lease_state::{LeaseState, lease_state},
    fleet::maintenance::Runnable,
    history::journal::Hash,
    tenants::scope::TenantScope,
};
use longhaul_domain::{ExecutionId, LeaseToken, WorkerId};

/// Maximum executions woken by one statement.
const PORTION: i32 = 100;
/// Budgets with waiters that one look of the net examines.
const ROOTS: i64 = 10;

/// Budget reservation for a model call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    pub id: ExecutionId,
    pub token: LeaseToken,
    /// The call's step; changes once an answer to it is spent.
    pub step_key: Hash,
    /// Upper bound of the charge; `None` if the model has no price.
    pub price: Option<CallPrice>,
    /// Upper bound of the prompt, in tokens.
    pub prompt_tokens: u64,
    /// Requested reply limit, in tokens.
    pub reply_tokens: u32,
    /// Lowest useful reply limit in tokens, if the budget does not allow `reply_tokens`.
    pub least_reply_tokens: u32,
    /// True if the execution waits when the call does not fit; otherwise the answer is [`Reserved::Short`].
    pub may_wait: bool,
}

/// A row of the type `call_reservation`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "call_reservation")]
struct CallReservation {
    id: Uuid,
    token: Uuid,
    step_key: Vec<u8>,
    prompt_cost: Option<i64>,
    prompt: i64,
    reply_price: Option<i64>,
    reply: i64,
    least_reply: i64,
    may_wait: bool,
}

impl From<&Reservation> for CallReservation {
    fn from(of: &Reservation) -> Self {
        Self {
            id: of.id.0,
            token: of.token.0,
            step_key: of.step_key.to_vec(),
            prompt_cost: of.price.map(|price| price.prompt.nanos()),
            prompt: stored(of.prompt_tokens),
            reply_price: of.price.map(|price| price.reply.nanos()),
            reply: i64::from(of.reply_tokens),
            least_reply: i64::from(of.least_reply_tokens.min(of.reply_tokens)),
            may_wait: of.may_wait,
        }
    }
}

/// Upper bound of a call's charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallPrice {
    /// For the whole prompt.
    pub prompt: Usd,
    /// Per million reply tokens.
    pub reply: Usd,
}

/// Answer to a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    Granted {
        /// Reply limit that the call must be sent with, in tokens.
        reply_tokens: u32,
    },
    /// The call does not fit and may not wait. Nothing is stored.
    Short,
    /// The execution waits for the budget. Its park must carry `wake_seq`, which every release raises.
    Waiting {
        /// Wake counter as of the check.
        wake_seq: i32,
    },
    /// The budget is exhausted, and its policy fails the execution.
    Exhausted,
    /// The execution's cancellation was requested.
    Cancelled,
    /// The budget is in money, and the model has no price.
    Unpriced,
}

/// Charge of a reserved call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settlement {
    /// Step of the reservation.
    pub step_key: Hash,
    /// `None` if unknown.
    pub cost: Option<Usd>,
    /// Prompt and reply tokens.
    pub tokens: u64,
    /// Model calls made; zero if the reservation was not used.
    pub calls: u32,
    /// True if the usage is unknown: charges the reservation, and ignores `cost` and `tokens`.
    pub is_estimate: bool,
}

/// An operation that locks a budget's row.
#[derive(Debug, Clone)]
pub(crate) enum BudgetOp {
    Reserve(Reservation),
    /// Adds settled reservations to a tree's budget.
    Fold(ExecutionId),
}

#[derive(Debug, Clone)]
pub(crate) enum BudgetDone {
    Reserved(Reserved),
    Folded(Vec<Runnable>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amounts {
    pub cost: Usd,
    pub tokens: i64,
    /// Model calls.
    pub calls: i64,
}

/// State of a tree's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ledger {
    /// Root of the tree.
    pub root: ExecutionId,
    pub max_cost: Option<Usd>,
    pub max_tokens: Option<i64>,
    /// Maximum model calls.
    pub max_calls: Option<i64>,
    /// Policy when the budget is exhausted.
    pub on_exhausted: OnExhausted,
    pub spent: Amounts,
    /// Reserved by calls in flight.
    pub reserved: Amounts,
    /// Number of spent calls of unknown cost.
    pub uncosted_calls: i64,
    /// Number of spent calls charged at their estimate.
    pub estimated_calls: i64,
    /// Charges above the calls' reservations: amounts and number of calls. Zero if the provider keeps to the
    /// limits it is sent.
    pub over_limit: Amounts,
    /// Number of waiting executions.
    pub waiting: i64,
}

/// New limits; `None` leaves a limit unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caps {
    pub max_cost: Option<Usd>,
    pub max_tokens: Option<i64>,
    /// Maximum model calls.
    pub max_calls: Option<i64>,
}

impl From<&BudgetSpec> for Caps {
    fn from(spec: &BudgetSpec) -> Self {
        Self {
            max_cost: spec.max_cost_usd,
            max_tokens: spec.max_tokens.map(i64::from),
            max_calls: spec.max_model_calls.map(i64::from),
        }
    }
}

/// Cap on stored amounts, above any budget, so that sums fit a bigint.
const MOST: i64 = 1_000_000_000_000_000_000;

/// Tokens, capped at [`MOST`].
fn stored(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(MOST).min(MOST)
}

/// A row of the type `journal_settlement`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "journal_settlement")]
pub(crate) struct SettlementRow {
    execution_id: Uuid,
    step_key: Vec<u8>,
    cost: Option<i64>,
    tokens: i64,
    calls: i32,
    is_estimate: bool,
}

impl SettlementRow {
    pub(crate) fn of(id: ExecutionId, of: &Settlement) -> Self {
        Self {
            execution_id: id.0,
            step_key: of.step_key.to_vec(),
            cost: of.cost.map(Usd::nanos),
            tokens: stored(of.tokens),
            calls: i32::try_from(of.calls).unwrap_or(i32::MAX),
            is_estimate: of.is_estimate,
        }
    }
}

impl Store {
    /// Runs a batch of the budget lane. Returns one result per item, in order.
    ///
    /// # Errors
    /// Postgres refused an item's value, or is unavailable.
    pub(crate) async fn budget_batch(
        &self,
        worker: WorkerId,
        items: &[Arc<BudgetOp>],
    ) -> Result<Vec<Flushed<BudgetDone>>, StoreError> {
        let mut reservations = Vec::new();
        let mut roots = HashSet::new();
        for item in items {
            match &**item {
                BudgetOp::Reserve(reservation) => reservations.push(reservation),
                BudgetOp::Fold(root) => drop(roots.insert(root.0)),
            }
        }
        let roots: Vec<Uuid> = roots.into_iter().collect();
        let mut folded = self.fold_budgets_of(&roots).await?;
        let missing: Vec<Uuid> = roots.into_iter().filter(|root| !folded.contains_key(root)).collect();
        // Nothing is left to fold of a budget that is gone.
        folded.extend(self.forget_gone_budgets(&missing).await?.into_iter().map(|root| (root, Vec::new())));
        let mut reserved = self.reserve(worker, &reservations).await?.into_iter();
        Ok(items
            .iter()
            .map(|item| match &**item {
                BudgetOp::Reserve(_) => reserved.next().unwrap_or(Flushed::Done(Err(StoreError::LeaseLost))),
                // If several items fold one budget, the first gets all woken executions.
                BudgetOp::Fold(root) => match folded.get_mut(&root.0) {
                    Some(woken) => Flushed::Done(Ok(BudgetDone::Folded(std::mem::take(woken)))),
                    None => Flushed::Locked,
                },
            })
            .collect())
    }

    async fn reserve(&self, worker: WorkerId, items: &[&Reservation]) -> Result<Vec<Flushed<BudgetDone>>, StoreError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let mut connection = self.commits.lend().await?;
        let rows = sqlx::query!(
            r#"
            select place as "place!", verdict as "verdict!", wake_seq as "wake_seq!", reply_limit
            from longhaul_reserve($1, $2)
            "#,
            worker.0,
            items.iter().map(|item| CallReservation::from(*item)).collect::<Vec<_>>() as _,
        )
        .fetch_all(&mut *connection)
        .await;
        let rows = connection.back(rows)?;
        let mut answers = HashMap::new();
        for row in rows {
            let reserved = match row.verdict.as_str() {
                "granted" => {
                    let limit = row.reply_limit.and_then(|limit| u32::try_from(limit).ok());
                    let reply_tokens = limit.ok_or_else(|| StoreError::Corrupt("a grant without a limit".into()))?;
                    Reserved::Granted { reply_tokens }
                }
                "short" => Reserved::Short,
                "waiting" => Reserved::Waiting { wake_seq: row.wake_seq },
                "exhausted" => Reserved::Exhausted,
                "cancelled" => Reserved::Cancelled,
                "unpriced" => Reserved::Unpriced,
                other => return Err(StoreError::Corrupt(format!("verdict `{other}` is unknown"))),
            };
            answers.insert(usize::try_from(row.place).unwrap_or_default(), reserved);
        }
        let missing: Vec<Uuid> =
            (1..).zip(items).filter(|(place, _)| !answers.contains_key(place)).map(|(_, item)| item.id.0).collect();
        let states = self.lease_states(&missing).await?;
        let with_budget = self.with_budget(&missing).await?;
        let is_held = |item: &Reservation, state: &LeaseState| lease_state(worker, item.token, state).is_some();
        Ok((1..)
            .zip(items)
            .map(|(place, item)| match (answers.get(&place), states.get(&item.id.0)) {
                (Some(reserved), _) => Flushed::Done(Ok(BudgetDone::Reserved(*reserved))),
                (None, Some(state)) if is_held(item, state) => match with_budget.contains(&item.id.0) {
                    true => Flushed::Locked,
                    false => Flushed::Done(Err(StoreError::NotFound("budget"))),
                },
                (None, _) => Flushed::Done(Err(StoreError::LeaseLost)),
            })
            .collect())
    }

    /// Those of these executions whose budget is there: a reservation that met none waits for nothing.
    async fn with_budget(&self, ids: &[Uuid]) -> Result<HashSet<Uuid>, StoreError> {
        if ids.is_empty() {
            return Ok(HashSet::new());
        }
        let found = sqlx::query_scalar!(
            r#"
            select e.id from executions e join budgets b on b.root_id = coalesce(e.budget_id, e.root_id, e.id)
            where e.id = any ($1) and e.has_budget
            "#,
            ids,
        );
        Ok(found.fetch_all(&self.pool).await?.into_iter().collect())
    }

    /// Those of these budgets that are gone. Deletes their settled reservations, which nothing folds any more.
    async fn forget_gone_budgets(&self, roots: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        if roots.is_empty() {
            return Ok(Vec::new());
        }
        let gone = sqlx::query_scalar!(
            r#"
            with gone as materialized (
                select root as root_id from unnest($1::uuid[]) as root
                where not exists (select from budgets b where b.root_id = root)
            ),
            settled as (
                delete from reservations r using gone where r.root_id = gone.root_id and r.state = 'settled'
            )
            select root_id as "root_id!" from gone
            "#,
            roots,
        );
        Ok(gone.fetch_all(&self.pool).await?)
    }

    /// Folds settled reservations into these budgets, and wakes executions that now fit. Locked budgets are
    /// missing in the result, and so are those that are gone.
    async fn fold_budgets_of(&self, roots: &[Uuid]) -> Result<HashMap<Uuid, Vec<Runnable>>, StoreError> {
        if roots.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = sqlx::query!(
            r#"
            with budget as materialized (
                select root_id from budgets where root_id = any($1) order by root_id for no key update skip locked
            ),
            folded as materialized (
                select budget.root_id, woken.id
                from budget left join lateral longhaul_fold_budget(budget.root_id, $2) as woken (id) on true
            )
            select folded.root_id as "root_id!", e.id as "id?", e.queue as "queue?"
            from folded left join executions e on e.id = folded.id
            "#,
            roots,
            PORTION,
        )
        .fetch_all(&self.pool)
        .await?;
        let mut folded: HashMap<Uuid, Vec<Runnable>> = HashMap::new();
        for row in rows {
            let woken = folded.entry(row.root_id).or_default();
            woken.extend(row.id.zip(row.queue).map(|(id, queue)| Runnable { id: ExecutionId(id), queue }));
        }
        Ok(folded)
    }

    /// Folds settled reservations into up to `limit` budgets, and grants free budget to waiters: of those budgets, and
    /// of the next with waiters after the root `after`. That is a net: more came back than one portion, or a wake was
    /// lost. Returns the executions it woke, and the last of those roots; none after the last of all.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn fold_budgets(
        &self,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<(Vec<Runnable>, Option<Uuid>), StoreError> {
        let (mut roots, last) = self.budgets_with_room(after).await?;
        let settled = sqlx::query_scalar!(
            r#"
            with recursive settled (root_id) as (
                (select root_id from reservations where state = 'settled' order by root_id limit 1)
                union all
                select (
                    select r.root_id from reservations r
                    where r.state = 'settled' and r.root_id > settled.root_id order by r.root_id limit 1
                )
                from settled where settled.root_id is not null
            )
            select root_id as "root_id!" from settled where root_id is not null limit $1
            "#,
            limit,
        );
        roots.extend(settled.fetch_all(&self.pool).await?);
        roots.sort_unstable();
        roots.dedup();
        let folded = self.fold_budgets_of(&roots).await?;
        let missing: Vec<Uuid> = roots.into_iter().filter(|root| !folded.contains_key(root)).collect();
        self.forget_gone_budgets(&missing).await?;
        Ok((folded.into_values().flatten().collect(), last))
    }

    /// Of the next budgets with waiters after the root `after`, those in which one of the first that wait fits; and the
    /// last root looked at, none after the last of all.
    async fn budgets_with_room(&self, after: Option<Uuid>) -> Result<(Vec<Uuid>, Option<Uuid>), StoreError> {
        let looked_at = sqlx::query!(
            r#"
            with recursive waited (root_id, place) as (
                (
                    select root_id, 1 from reservations
                    where state = 'waiting' and root_id > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
                    order by root_id limit 1
                )
                union all
                select (
                    select r.root_id from reservations r
                    where r.state = 'waiting' and r.root_id > waited.root_id order by r.root_id limit 1
                ), place + 1
                from waited where waited.root_id is not null and place < $2::bigint
            )
            select waited.root_id as "root_id!", exists (
                select from (
                    select cost, tokens from reservations r
                    where r.root_id = waited.root_id and r.state = 'waiting' order by r.asked_at limit 10
                ) w join budgets b on b.root_id = waited.root_id
                where (b.max_cost is null or b.spent_cost + b.reserved_cost + coalesce(w.cost, 0) <= b.max_cost)
                    and (b.max_tokens is null or b.spent_tokens + b.reserved_tokens + w.tokens <= b.max_tokens)
                    and (b.max_calls is null or b.spent_calls + b.reserved_calls < b.max_calls)
            ) as "has_room!"
            from waited where waited.root_id is not null
            order by waited.root_id
            "#,
            after,
            ROOTS,
        )
        .fetch_all(&self.pool)
        .await?;
        let last = looked_at.last().filter(|_| looked_at.len() as i64 == ROOTS).map(|row| row.root_id);
        Ok((looked_at.into_iter().filter(|row| row.has_room).map(|row| row.root_id).collect(), last))
    }

    /// The budget of an execution's tree or of its session, or of the session with this id; `None` if there is none
    /// within `reach`.
    ///
    /// # Errors
    /// Postgres is unavailable, or the row is corrupt.
    #[expect(clippy::too_many_lines, reason = "one statement and its row")]
    pub async fn read_budget(&self, reach: &TenantScope, id: ExecutionId) -> Result<Option<Ledger>, StoreError> {
        let tenants = reach.ids();
        let row = sqlx::query!(
            r#"
            select b.root_id, b.max_cost, b.max_tokens, b.max_calls, b.on_exhausted,
                b.spent_cost + noted.charged_cost as "spent_cost!",
                b.spent_tokens + noted.charged_tokens as "spent_tokens!",
                b.spent_calls + noted.charged_calls as "spent_calls!", b.reserved_cost - noted.cost as "reserved_cost!",
                b.reserved_tokens - noted.tokens as "reserved_tokens!", b.reserved_calls - noted.n as "reserved_calls!",
                b.uncosted_calls + noted.uncosted as "uncosted_calls!",
                b.estimated_calls + noted.estimated as "estimated_calls!",
                b.over_limit_cost + noted.over_cost as "over_limit_cost!",
                b.over_limit_tokens + noted.over_tokens as "over_limit_tokens!",
                b.over_limit_calls + noted.over_calls as "over_limit_calls!",
                (select count(*) from reservations w where w.root_id = b.root_id and w.state = 'waiting') as "waiting!"
            from budgets b cross join lateral (
                select count(*) as n, coalesce(sum(s.cost), 0)::bigint as cost,
                    coalesce(sum(s.tokens), 0)::bigint as tokens,
                    coalesce(sum(s.charged_cost), 0)::bigint as charged_cost,
                    coalesce(sum(s.charged_tokens), 0)::bigint as charged_tokens,
                    coalesce(sum(s.charged_calls), 0)::bigint as charged_calls,
                    count(*) filter (where s.charged_calls > 0 and s.charged_cost is null) as uncosted,
                    count(*) filter (where s.is_estimate) as estimated,
                    coalesce(sum(greatest(s.charged_cost - s.cost, 0)), 0)::bigint as over_cost,
                    coalesce(sum(greatest(s.charged_tokens - s.tokens, 0)), 0)::bigint as over_tokens,
                    count(*) filter (where s.charged_cost > s.cost or s.charged_tokens > s.tokens) as over_calls
                from reservations s where s.root_id = b.root_id and s.state = 'settled'
            ) as noted
            where b.root_id = coalesce(
                    (select coalesce(e.budget_id, e.root_id, e.id) from executions e where e.id = $1), $1
                ) and ($2::uuid[] is null or b.tenant_id = any($2))
            "#,
            id.0,
            tenants.as_deref() as Option<&[Uuid]>,
        )
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(Ledger {
            root: ExecutionId(row.root_id),
            max_cost: row.max_cost.map(Usd::from_nanos),
            max_tokens: row.max_tokens,
            max_calls: row.max_calls,
            on_exhausted: match row.on_exhausted.as_str() {
                "park" => OnExhausted::Park,
                "fail" => OnExhausted::Fail,
                other => return Err(StoreError::Corrupt(format!("on_exhausted `{other}` is unknown"))),
            },
            spent: Amounts { cost: Usd::from_nanos(row.spent_cost), tokens: row.spent_tokens, calls: row.spent_calls },
            reserved: Amounts {
                cost: Usd::from_nanos(row.reserved_cost),
                tokens: row.reserved_tokens,
                calls: row.reserved_calls,
            },
            uncosted_calls: row.uncosted_calls,
            estimated_calls: row.estimated_calls,
            over_limit: Amounts {
                cost: Usd::from_nanos(row.over_limit_cost),
                tokens: row.over_limit_tokens,
                calls: row.over_limit_calls,
            },
            waiting: row.waiting,
        }))
    }

    /// Sets limits of the budget of `root`'s tree, and wakes a first portion of the executions that now fit; the
    /// sweep wakes the rest. Idempotent. Returns the executions it woke.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn raise_budget(&self, root: ExecutionId, caps: Caps) -> Result<Vec<Runnable>, StoreError> {
        let rows = sqlx::query_as!(
            Runnable,
            r#"
            select woken.id as "id!", e.queue as "queue!"
            from longhaul_raise_budget($1, $2, $3, $4, $5) as woken (id) join executions e on e.id = woken.id
            "#,
            root.0,
            caps.max_cost.map(Usd::nanos),
            caps.max_tokens,
            caps.max_calls,
            PORTION,
        );
        Ok(rows.fetch_all(&self.pool).await?)
    }
}
