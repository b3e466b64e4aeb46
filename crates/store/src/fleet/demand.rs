//! Demand for workers: the number that a fleet is scaled on.

use std::time::Duration;

use crate::{
    Store, StoreError,
    columns::{Count, Seconds},
};

/// Due executions that are counted at most.
pub const MAX_DUE: i64 = 100_000;

/// Work and workers of some queues, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    /// Executions that wait for a worker, counted to [`MAX_DUE`]. Those that no live worker can run count if their
    /// queue has no live worker.
    pub due: u64,
    /// Executions under a lease.
    pub held: u64,
    /// Workers that have not been declared dead.
    pub live_workers: u64,
    /// Workers that hold a lease.
    pub busy_workers: u64,
    /// Executions that the live workers run at a time.
    pub slots: u64,
}

impl Demand {
    /// Workers that run all of it at once, `concurrency` executions each; never fewer than hold a lease, so that a
    /// scaler takes none of them away.
    #[must_use]
    pub fn workers_wanted(&self, concurrency: u64) -> u64 {
        (self.held + self.due).div_ceil(concurrency.max(1)).max(self.busy_workers)
    }

    /// Executions that a live worker runs at a time, on average; `None` without workers.
    #[must_use]
    pub fn concurrency(&self) -> Option<u64> {
        self.slots.checked_div(self.live_workers)
    }
}

impl Store {
    /// Work and workers of these queues; of all if `queues` is empty.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn demand(&self, queues: &[String]) -> Result<Demand, StoreError> {
        let row = sqlx::query!(
            r#"
            select
                (
                    select count(*) from (
                        select from executions
                        where wait_reason = 'worker' and ($1 = '{}' or queue = any ($1)) limit $2
                    ) d
                ) as "due!",
                (
                    select count(*) from (
                        select from parked p join executions e on e.id = p.execution_id
                        where p.wait_reason = 'no_worker' and ($1 = '{}' or e.queue = any ($1))
                            and not exists (select from workers w where w.dead_at is null and e.queue = any (w.queues))
                        limit $2
                    ) u
                ) as "unserved!",
                leases.held as "held!", leases.workers as "busy!", live.workers as "live!", live.slots as "slots!"
            from (
                select count(*) as held, count(distinct worker_id) as workers from executions
                where worker_id is not null and ($1::text[] = '{}' or queue = any ($1))
            ) leases
            cross join (
                select count(*) as workers, coalesce(sum(concurrency), 0) as slots from workers
                where dead_at is null and ($1 = '{}' or queues && $1)
            ) live
            "#,
            queues,
            MAX_DUE,
        )
        .fetch_one(&self.pool)
        .await?;
        let count = |n: i64| u64::try_from(n).unwrap_or_default();
        Ok(Demand {
            due: count((row.due + row.unserved).min(MAX_DUE)),
            held: count(row.held),
            live_workers: count(row.live),
            busy_workers: count(row.busy),
            slots: count(row.slots),
        })
    }
}

/// Executions of a queue that no live worker serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    pub queue: String,
    pub executions: u64,
    /// Time since the submit of the oldest.
    pub oldest: Duration,
}

impl Store {
    /// Executions that wait for the first worker of their queue, by queue: they are due, but parked.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn unserved_queues(&self) -> Result<Vec<Unserved>, StoreError> {
        let unserved = sqlx::query_as!(
            Unserved,
            r#"
            select e.queue as "queue!", count(*) as "executions!: Count",
                coalesce(extract(epoch from longhaul_now() - min(e.created_at)), 0)::float8 as "oldest!: Seconds"
            from (select execution_id from parked where wait_reason = 'no_worker' limit $1) p
            join executions e on e.id = p.execution_id
            where not exists (select from workers w where w.dead_at is null and e.queue = any (w.queues))
            group by e.queue
            "#,
            MAX_DUE,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(unserved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_covers_all_work_and_every_busy_worker() {
        let demand = |due, held, busy_workers| Demand { due, held, busy_workers, ..Demand::default() };
        assert_eq!(demand(0, 0, 0).workers_wanted(10), 0);
        assert_eq!(demand(1, 0, 0).workers_wanted(10), 1);
        assert_eq!(demand(11, 10, 1).workers_wanted(10), 3);
        assert_eq!(demand(0, 3, 3).workers_wanted(10), 3, "three workers hold one each");
        assert_eq!(demand(5, 0, 0).workers_wanted(0), 5);
        assert_eq!(Demand::default().concurrency(), None);
        assert_eq!(Demand { live_workers: 2, slots: 30, ..Demand::default() }.concurrency(), Some(15));
    }
}
