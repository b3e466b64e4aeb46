//! Concurrency limits: rules, slots, and the lines before them (core-rules 12,
//! docs/design/limits.md).
//!
//! Invariants: an execution takes its slots in the statement that claims it or in the one that hands a freed slot
//! over, and loses them in the one that ends its lease. After every statement that may have freed a slot, and
//! after every one that parked an execution for a slot, the keys are handed over in a statement of their own. The
//! sweep does the same for all keys.

use std::{collections::BTreeSet, sync::Arc};

use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::batch::Flushed,
    fleet::maintenance::{PART, Runnable},
    tenants::scope::TenantScope,
};
use longhaul_domain::{ExecutionId, LimitKey, TenantId};

/// Most executions that one statement hands slots to.
const PORTION: i32 = 100;
/// Most keys of a changed limit that are handed over at once.
const MAX_KEYS: i64 = 500;
/// Most old keys that one statement looks at, and most statements of one call.
const IDLE_KEYS: i64 = 1_000;
const IDLE_ROUNDS: usize = 50;
/// Lines, and slots, that one look of a net examines.
const LINES: i64 = 10;
const SLOTS: i64 = 30;
/// Most times that one call follows executions which move from one full line to another.
const MAX_MOVES: usize = 10;

/// A limit and its current use.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    pub id: Uuid,
    /// `definition`, `agent` or `operator`.
    pub source: String,
    /// Definition or agent that declares it.
    pub subject: Option<String>,
    /// Attribute by which executions are grouped, and the value limited if it is only one.
    pub key: LimitKey,
    /// True if it applies to all tenants.
    pub is_shared: bool,
    /// Most executions that run at a time.
    pub max: i32,
    /// Held slots, over all values.
    pub held: i64,
    /// Executions that wait for a slot, counted up to ten thousand.
    pub waiting: i64,
}

/// A line of waiting executions.
struct Line {
    key: String,
    /// False if its limit was deleted.
    is_limited: bool,
    has_room: bool,
}

impl Store {
    /// Hands the free slots of these keys to the executions that wait for them.
    ///
    /// # Errors
    /// Postgres is unavailable; the sweep does it then.
    pub async fn hand_over(&self, keys: BTreeSet<String>) -> Result<Vec<Runnable>, StoreError> {
        let mut woken = Vec::new();
        let mut asked = keys;
        for _ in 0..MAX_MOVES {
            if asked.is_empty() {
                break;
            }
            let keys: Vec<String> = std::mem::take(&mut asked).into_iter().collect();
            let rows = sqlx::query!(
                r#"select h.id, h.queue, h.moved_to from longhaul_hand_over($1, $2) h (id, queue, moved_to)"#,
                &keys,
                PORTION,
            )
            .fetch_all(&self.pool)
            .await?;
            let mut granted = 0;
            for row in rows {
                if let (Some(id), Some(queue)) = (row.id, row.queue) {
                    granted += 1;
                    woken.push(Runnable { id: ExecutionId(id), queue });
                }
                asked.extend(row.moved_to);
            }
            if granted == PORTION {
                asked.extend(keys);
            }
        }
        Ok(woken)
    }

    /// As [`Self::hand_over`], after a statement that is already committed and that freed slots or parked
    /// executions: a failure is only logged.
    pub(crate) async fn try_hand_over(&self, keys: BTreeSet<String>) -> Vec<Runnable> {
        if keys.is_empty() {
            return Vec::new();
        }
        self.hand_over(keys).await.unwrap_or_else(|error| {
            tracing::warn!(error = %error, "free slots were not handed over; the sweep will");
            Vec::new()
        })
    }

    /// As [`Self::try_hand_over`], for the ends of many leases at once; the first of them gets the executions
    /// that became runnable.
    pub(crate) async fn hand_over_of(&self, freed: &[Arc<BTreeSet<String>>]) -> Vec<Flushed<Vec<Runnable>>> {
        let keys = freed.iter().flat_map(|keys| keys.iter().cloned()).collect();
        let mut woken = self.try_hand_over(keys).await;
        freed.iter().map(|_| Flushed::Done(Ok(std::mem::take(&mut woken)))).collect()
    }

    /// Wakes executions that wait for a deleted limit, and hands over the free slots that are waited for, of the lines
    /// after `after`: a net, because what frees a slot hands it over. Returns the executions that it woke, and the last
    /// line that it looked at; none after the last of all.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn sweep_slots(
        &self,
        after: Option<&str>,
        limit: i64,
    ) -> Result<(Vec<Runnable>, Option<String>), StoreError> {
        let lines = self.lines_after(after).await?;
        let last = lines.last().filter(|_| lines.len() as i64 == LINES).map(|line| line.key.clone());
        let (unlimited, others): (Vec<Line>, Vec<Line>) = lines.into_iter().partition(|line| !line.is_limited);
        let keys = |lines: Vec<Line>| lines.into_iter().map(|line| line.key);
        let unlimited: Vec<String> = keys(unlimited).collect();
        let mut woken = if unlimited.is_empty() { Vec::new() } else { self.wake_unlimited(&unlimited, limit).await? };
        let with_room = others.into_iter().filter(|line| line.has_room).collect();
        woken.extend(self.hand_over(keys(with_room).collect()).await?);
        Ok((woken, last))
    }

    /// Clears slots of executions that have no right to them, among those after the execution `after`: a net, because
    /// the statement that ends a lease clears its slots. Returns the last execution that it looked at; none after the
    /// last of all.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn clear_leaked_slots(&self, after: Option<Uuid>) -> Result<Option<Uuid>, StoreError> {
        let held = sqlx::query_scalar!(
            r#"
            select execution_id as "id!" from slots
            where execution_id > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
            order by execution_id limit $2
            "#,
            after,
            SLOTS,
        )
        .fetch_all(&self.pool)
        .await?;
        let leaked = sqlx::query_scalar!(
            r#"
            update slots s
            set execution_id = null, tenant_id = null, since = null
            where s.execution_id = any ($1) and not exists (
                select from executions e
                where e.id = s.execution_id and (e.worker_id is not null or e.wait_reason = 'worker')
            )
            returning s.key
            "#,
            &held,
        )
        .fetch_all(&self.pool)
        .await?;
        if !leaked.is_empty() {
            tracing::error!(slots = leaked.len(), "slots were held by executions without a right to them");
        }
        Ok(held.last().copied().filter(|_| held.len() as i64 == SLOTS))
    }

    /// Wakes executions that wait for deleted limits.
    async fn wake_unlimited(&self, keys: &[String], limit: i64) -> Result<Vec<Runnable>, StoreError> {
        let rows = sqlx::query_as!(
            Runnable,
            r#"
            with freed as materialized (
                select e.id, e.event_seq
                from slot_waiters w join executions e on e.id = w.execution_id
                where w.key = any ($2) and e.wait_reason = 'concurrency_limit'
                    and not exists (select from slot_keys k where k.key = w.key)
                order by e.id
                limit $1
                for no key update of e skip locked
            ),
            gone as (
                delete from parked p using freed where p.execution_id = freed.id
            ),
            told as (
                insert into events (execution_id, seq, at, kind, data)
                select id, event_seq + 1, longhaul_now(), 'woken', jsonb_build_object('waited_for', 'concurrency_limit')
                from freed
            )
            update executions e
            set wait_reason = 'worker', wait_until = null, wake_seq = e.wake_seq + 1, event_seq = e.event_seq + 1
            from freed
            where e.id = freed.id
            returning e.id, e.queue
            "#,
            limit,
            keys,
        );
        Ok(rows.fetch_all(&self.pool).await?)
    }

    /// The next lines in the order of their keys.
    async fn lines_after(&self, after: Option<&str>) -> Result<Vec<Line>, StoreError> {
        let lines = sqlx::query_as!(
            Line,
            r#"
            with recursive lines (key, place) as (
                (select key, 1 from slot_waiters where key > coalesce($1, '') order by key limit 1)
                union all
                select (select w.key from slot_waiters w where w.key > lines.key order by w.key limit 1), place + 1
                from lines where lines.key is not null and place < $2::bigint
            )
            select key as "key!", exists (select from slot_keys k where k.key = lines.key) as "is_limited!",
                longhaul_has_free_slots(key) as "has_room!"
            from lines where key is not null
            order by key
            "#,
            after,
            LINES,
        );
        Ok(lines.fetch_all(&self.pool).await?)
    }

    /// Deletes keys that were not used for an hour and have no holder or waiter.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn tidy_slots(&self) -> Result<(), StoreError> {
        for _ in 0..IDLE_ROUNDS {
            if self.forget_idle_keys().await? < IDLE_KEYS {
                break;
            }
        }
        Ok(())
    }

    /// Returns the number of keys looked at. One that is old and in use counts as used now, so that it is not looked at
    /// again for an hour.
    async fn forget_idle_keys(&self) -> Result<i64, StoreError> {
        let looked_at = sqlx::query_scalar!(
            r#"
            with old as materialized (
                select k.key from slot_keys k
                where k.used_at < longhaul_now() - interval '1 hour'
                order by k.used_at
                limit $1
                for update of k skip locked
            ),
            judged as materialized (
                select old.key,
                    exists (select from slots s where s.key = old.key and s.execution_id is not null)
                        or exists (select from slot_waiters w where w.key = old.key) as is_used
                from old
            ),
            used as (
                update slot_keys k set used_at = longhaul_now() from judged where k.key = judged.key and judged.is_used
            ),
            gone as (
                delete from slot_keys k using judged where k.key = judged.key and not judged.is_used
            )
            select count(*) as "n!" from judged
            "#,
            IDLE_KEYS,
        );
        Ok(looked_at.fetch_one(&self.pool).await?)
    }

    /// Deletes usage of tenants that is older than a day, of one part of the table. There is no index
    /// on a column that each worker writes every few seconds. Returns the part that comes next.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn forget_old_usage(&self, part: i64) -> Result<i64, StoreError> {
        sqlx::query!(
            "delete from tenant_usage
             where ctid >= format('(%s,0)', $1::bigint)::tid and ctid < format('(%s,0)', $1::bigint + $2::bigint)::tid
                 and at < (select longhaul_now()) - interval '1 day'",
            part,
            PART,
        )
        .execute(&self.pool)
        .await?;
        self.next_part("tenant_usage", part).await
    }

    /// Sets an operator's limit on the executions of `tenant`, or of all tenants. It holds from the next claim
    /// on; executions that it now admits become runnable.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn put_limit(
        &self,
        tenant: Option<TenantId>,
        key: &LimitKey,
        max: i32,
    ) -> Result<Vec<Runnable>, StoreError> {
        let rule = sqlx::query_scalar!(
            r#"
            insert into limit_rules as r (source, tenant_id, expression, value, max, changed_at)
            values ('operator', $1, $2, $3, $4, longhaul_now())
            on conflict on constraint limit_rules_once do update set max = excluded.max,
                changed_at = excluded.changed_at
            returning r.id
            "#,
            tenant.map(|tenant| tenant.0),
            key.expression(),
            key.value(),
            max,
        )
        .fetch_one(&self.pool)
        .await?;
        // The sweep hands over keys beyond these.
        let keys = sqlx::query_scalar!(
            r#"
            select distinct w.key as "key!" from slot_keys k join slot_waiters w on w.key = k.key
            where k.rule_id = $1 limit $2
            "#,
            rule,
            MAX_KEYS,
        )
        .fetch_all(&self.pool)
        .await?;
        self.hand_over(keys.into_iter().collect()).await
    }

    /// Keys limited by operators: for all tenants, or for one.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn operator_limits(&self, tenant: Option<TenantId>) -> Result<Vec<LimitKey>, StoreError> {
        let rows = sqlx::query!(
            "select expression, value from limit_rules where source = 'operator' and tenant_id is not distinct from $1",
            tenant.map(|tenant| tenant.0),
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().filter_map(|row| LimitKey::new(&row.expression, row.value)).collect())
    }

    /// Removes an operator's limit. Returns false if there is none. Executions that wait for it go on with the
    /// next sweep.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn remove_limit(&self, tenant: Option<TenantId>, key: &LimitKey) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            r#"
            delete from limit_rules
            where source = 'operator' and tenant_id is not distinct from $1 and expression = $2
                and value is not distinct from $3
            "#,
            tenant.map(|tenant| tenant.0),
            key.expression(),
            key.value(),
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Limits that executions of these tenants meet, by id, after `after`. Numbers of a shared limit are those of
    /// all tenants.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn list_limits(
        &self,
        reach: &TenantScope,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<Limit>, StoreError> {
        let tenants = reach.ids();
        let rows = sqlx::query!(
            r#"
            select r.id, r.source, nullif(r.subject, '') as subject, r.expression, r.value,
                r.tenant_id is null as "is_shared!", r.max,
                (
                    select count(*) from slot_keys k join slots s on s.key = k.key
                    where k.rule_id = r.id and s.execution_id is not null
                ) as "held!",
                (
                    select count(*) from (
                        select from slot_keys k join slot_waiters w on w.key = k.key where k.rule_id = r.id limit 10000
                    ) counted
                ) as "waiting!"
            from limit_rules r
            where ($1::uuid[] is null or r.tenant_id is null or r.tenant_id = any ($1))
                and ($2::uuid is null or r.id > $2)
            order by r.id
            limit $3
            "#,
            tenants.as_deref(),
            after,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                let key = LimitKey::new(&row.expression, row.value)
                    .ok_or_else(|| StoreError::Corrupt(format!("the limit's expression `{}`", row.expression)))?;
                Ok(Limit {
                    id: row.id,
                    source: row.source,
                    subject: row.subject,
                    key,
                    is_shared: row.is_shared,
                    max: row.max,
                    held: row.held,
                    waiting: row.waiting,
                })
            })
            .collect()
    }
}
