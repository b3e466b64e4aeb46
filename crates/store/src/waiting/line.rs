//! Places in lines, and the recent durations that estimates are based on.

use super::{
    explain::Row,
    state::{EndpointStanding, Estimate, PlaceInLine, Waiting},
};
use crate::{Store, StoreError};
use longhaul_domain::ExecutionId;

/// Largest exact count; beyond it "at least" is shown.
pub const COUNT_CAP: i64 = 1_000;
/// Age up to which history counts as recent.
const RECENT_SECONDS: f64 = 600.0;
/// Fewest executions that an estimate is made of.
const MIN_SAMPLE: i64 = 3;

impl Store {
    /// Number of its tenant's executions with an earlier turn, and of other tenants, which take turns with its
    /// own.
    pub(super) async fn place_for_worker(&self, id: ExecutionId, row: &Row) -> Result<PlaceInLine, StoreError> {
        let place = sqlx::query!(
            r#"
            with recursive tenants (tenant_id) as (
                (
                    select tenant_id from executions x
                    where x.wait_reason = 'worker' and x.queue = $1 and x.serve_key = $2 and x.lane = $3
                    order by tenant_id limit 1
                )
                union all
                select (
                    select x.tenant_id from executions x
                    where x.wait_reason = 'worker' and x.queue = $1 and x.serve_key = $2 and x.lane = $3
                        and x.tenant_id > t.tenant_id
                    order by x.tenant_id limit 1
                )
                from tenants t where t.tenant_id is not null
            )
            select
                (
                    select count(*) from (
                        select from executions x
                        where x.wait_reason = 'worker' and x.queue = $1 and x.serve_key = $2 and x.lane = $3
                            and x.tenant_id = $4
                            and ((x.started_at is null), longhaul_claim_rank(x.created_at, x.priority), x.id)
                                < ($5::bool, $6::bigint, $7::uuid)
                        limit $8
                    ) before
                ) as "ahead!",
                (
                    select count(*) from (
                        select tenant_id from tenants where tenant_id is not null limit $8
                    ) present where tenant_id <> $4
                ) as "others!"
            "#,
            row.queue,
            row.serve_key,
            row.lane,
            row.tenant_id,
            row.is_new,
            row.rank,
            id.0,
            COUNT_CAP,
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(PlaceInLine { ahead: place.ahead, other_tenants: place.others })
    }

    /// Estimates its start from how fast its tenant's executions were started lately: those submitted just before
    /// the first one that still waits.
    pub(super) async fn estimate_start(&self, row: &Row, ahead: i64) -> Result<Estimate, StoreError> {
        let started = sqlx::query!(
            r#"
            with head as materialized (
                select x.id from executions x
                where x.wait_reason = 'worker' and x.queue = $1 and x.serve_key = $2 and x.lane = $3
                    and x.tenant_id = $4
                order by (x.started_at is null) desc, longhaul_claim_rank(x.created_at, x.priority), x.id
                limit 1
            ),
            before as materialized (
                select x.started_at, x.queue from head, executions x
                where x.tenant_id = $4 and x.id < head.id
                order by x.id desc
                limit 500
            )
            select count(*) as "n!", extract(epoch from $5::timestamptz - min(started_at))::float8 as over
            from before
            where queue = $1 and started_at > $5::timestamptz - $6::float8 * interval '1 second'
            "#,
            row.queue,
            row.serve_key,
            row.lane,
            row.tenant_id,
            row.now,
            RECENT_SECONDS,
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(match started.over {
            Some(over) if started.n >= MIN_SAMPLE => Estimate {
                seconds: Some((ahead + 1) as f64 * over.max(0.001) / started.n as f64),
                basis: format!(
                    "{} executions of this tenant were started in this queue in the last {over:.0} s",
                    started.n
                ),
            },
            Some(_) | None => {
                Estimate::none("too few executions of this tenant were started in this queue in the last ten minutes")
            }
        })
    }

    pub(super) async fn place_for_slot(&self, id: ExecutionId) -> Result<Option<PlaceInLine>, StoreError> {
        let place = sqlx::query!(
            r#"
            select
                (
                    select count(*) from (
                        select from slot_waiters x
                        where x.key = w.key and x.tenant_id = w.tenant_id
                            and (x.is_new, x.rank, x.execution_id) < (w.is_new, w.rank, w.execution_id)
                        limit $2
                    ) before
                ) as "ahead!",
                (
                    select count(distinct present.tenant_id) from (
                        select x.tenant_id from slot_waiters x where x.key = w.key and x.tenant_id <> w.tenant_id
                        limit $2
                    ) present
                ) as "others!"
            from slot_waiters w
            where w.execution_id = $1
            "#,
            id.0,
            COUNT_CAP,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(place.map(|place| PlaceInLine { ahead: place.ahead, other_tenants: place.others }))
    }

    /// The model endpoint it waits for, and its place in the line there, in which tenants take turns
    /// (`longhaul_wake_for_slot`).
    pub(super) async fn endpoint_standing(&self, id: ExecutionId) -> Result<Option<EndpointStanding>, StoreError> {
        Ok(sqlx::query_as!(
            EndpointStanding,
            r#"
            select w.provider, w.model, w.give_up_at,
                case when b.state <> 'closed' then b.cause end as "cause?",
                case when b.state <> 'closed' then b.failure_code end as "failure_code?",
                case when b.state = 'open' and b.open_until > longhaul_now() then b.open_until end as "until?",
                coalesce(b.is_stated and b.state = 'open', false) as "is_stated!",
                case when b.state = 'open' and b.open_until <= longhaul_now() then 'half_open'
                    else coalesce(b.state, 'closed') end as "state!",
                b.concurrency as "concurrency?", b.calls_per_second, b.served_per_second,
                case when not w.is_released and w.pass_at is null then (
                    select count(*) from (
                        select from provider_waits x
                        where (x.provider, x.model, x.key, x.reason) = (w.provider, w.model, w.key, w.reason)
                            and not x.is_released and x.pass_at is null and x.tenant_id = w.tenant_id
                            and (x.is_batch, -x.priority, x.execution_id) < (w.is_batch, -w.priority, w.execution_id)
                        limit $2
                    ) before
                ) end as ahead,
                case when not w.is_released and w.pass_at is null then (
                    select count(distinct present.tenant_id) from (
                        select x.tenant_id from provider_waits x
                        where (x.provider, x.model, x.key, x.reason) = (w.provider, w.model, w.key, w.reason)
                            and not x.is_released and x.pass_at is null and x.tenant_id <> w.tenant_id
                        limit $2
                    ) present
                ) end as other_tenants
            from provider_waits w
            left join provider_breakers b on (b.provider, b.model, b.key) = (w.provider, w.model, w.key)
            where w.execution_id = $1
            "#,
            id.0,
            COUNT_CAP,
        )
        .fetch_optional(&self.pool)
        .await?)
    }

    /// Estimates its wait from how long workers held executions of its definition lately.
    pub(super) async fn estimate_slot(&self, row: &Row, waiting: &Waiting) -> Result<Estimate, StoreError> {
        let lasted = sqlx::query!(
            r#"
            select count(*) as "n!", avg(extract(epoch from lately.active_time))::float8 as mean
            from (
                select e.active_time, e.finished_at from executions e
                where e.tenant_id = $1 and e.definition_key = $2
                order by e.id desc
                limit 500
            ) lately
            where lately.finished_at > $3::timestamptz - $4::float8 * interval '1 second'
            "#,
            row.tenant_id,
            row.definition_key,
            row.now,
            RECENT_SECONDS,
        )
        .fetch_one(&self.pool)
        .await?;
        let max = waiting.limits.iter().find(|limit| limit.is_waited_for).map_or(0, |limit| limit.max);
        Ok(match (lasted.mean, waiting.place) {
            (_, _) if max == 0 => Estimate::none("the limit lets nothing run"),
            (Some(mean), Some(place)) if lasted.n >= MIN_SAMPLE => Estimate {
                seconds: Some((place.ahead + 1) as f64 * mean / f64::from(max)),
                basis: format!("{} executions of this definition ended lately and took {mean:.1} s each", lasted.n),
            },
            (Some(_) | None, _) => {
                Estimate::none("too few executions of this definition ended in the last ten minutes")
            }
        })
    }
}
