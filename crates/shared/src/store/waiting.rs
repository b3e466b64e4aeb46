//! Why an execution is where it is: what it waits for, since when, what it stands behind, and what that took lately.
//!
//! Reads only, each bounded: counts stop at a thousand, lists at twenty, history at some hundred rows. Of other tenants nothing is
//! told but numbers.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{Store, StoreError, tenants::Reach};
use crate::domain::{ExecutionId, ExecutionStatus, LimitKey, WaitReason, WorkerId};

/// Counts stop here; what stands there says "at least".
pub const COUNT_CAP: i64 = 1_000;
/// The most ids of a list.
const LIST_CAP: i64 = 20;
/// How far back history counts as recent.
const RECENT_SECONDS: f64 = 600.0;
/// The fewest events an estimate is made of.
const MIN_SAMPLE: i64 = 3;

/// Where an execution stands, with everything that explains it.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// Its status.
    pub status: ExecutionStatus,
    /// What it waits for; absent while a worker holds it and when it is over.
    pub reason: Option<WaitReason>,
    /// Since when it stands where it stands.
    pub since: DateTime<Utc>,
    /// When the wait ends at the latest.
    pub until: Option<DateTime<Utc>>,
    /// When it must have ended.
    pub deadline_at: DateTime<Utc>,
    /// Why it failed.
    pub failure_code: Option<String>,
    /// Who holds it.
    pub worker: Option<WorkerId>,
    /// Its queue.
    pub queue: String,
    /// Its definition.
    pub definition_key: String,
    /// In which version.
    pub definition_version: Option<i32>,
    /// Its place, when it waits for a worker or for a slot.
    pub place: Option<PlaceInLine>,
    /// Who could run it.
    pub workers: Option<LiveWorkers>,
    /// What a worker must have to run it, beyond what every worker has.
    pub requirements: Vec<String>,
    /// The limits it needs slots of.
    pub limits: Vec<LimitStanding>,
    /// What people are asked.
    pub requests: Vec<OpenRequest>,
    /// How many executions it started are open, and some of them.
    pub open_children: i32,
    /// Some of those.
    pub children: Vec<OpenChild>,
    /// Why its last attempt ended.
    pub last_failure: Option<LastFailure>,
    /// How long it may take from here.
    pub estimate: Estimate,
}

/// A place in a line. Counts stop at [`COUNT_CAP`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceInLine {
    /// Executions of its own tenant before it.
    pub ahead: i64,
    /// Other tenants that wait in the same line and share it.
    pub other_tenants: i64,
}

/// The live workers that serve an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveWorkers {
    /// How many.
    pub count: i64,
    /// What they run at most.
    pub permits: i64,
    /// What of that is free.
    pub free: i64,
}

/// A limit that an execution needs a slot of.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitStanding {
    /// `definition`, `agent` or `operator`.
    pub source: String,
    /// The definition or agent that has it.
    pub subject: Option<String>,
    /// What executions are grouped by.
    pub key: LimitKey,
    /// How many may run.
    pub max: i32,
    /// How many do.
    pub held: i64,
    /// Those of its own tenant, some of them.
    pub holders: Vec<ExecutionId>,
    /// How many others do.
    pub held_by_others: i64,
    /// Whether it stands in this line.
    pub is_waited_for: bool,
}

/// A request to a person.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenRequest {
    /// Its id.
    pub id: Uuid,
    /// `approval` or `question`.
    pub kind: String,
    /// The tool that would run.
    pub tool: String,
    /// When nobody's word counts as a no.
    pub expires_at: DateTime<Utc>,
}

/// An open child.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenChild {
    /// Its id.
    pub id: ExecutionId,
    /// Its status.
    pub status: String,
    /// What it waits for itself.
    pub wait_reason: Option<String>,
}

/// Why the last attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub struct LastFailure {
    /// Its number.
    pub attempt: i32,
    /// Its class.
    pub class: Option<String>,
    /// Its code.
    pub code: Option<String>,
    /// For people.
    pub summary: Option<String>,
}

/// How long a wait may take.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// Seconds from now, where recent history allows to say.
    pub seconds: Option<f64>,
    /// From what, or why not.
    pub basis: String,
}

impl Estimate {
    fn none(basis: impl Into<String>) -> Self {
        Self { seconds: None, basis: basis.into() }
    }
}

/// What every look needs.
struct Row {
    tenant_id: Uuid,
    status: String,
    wait_reason: Option<String>,
    wait_until: Option<DateTime<Utc>>,
    deadline_at: DateTime<Utc>,
    failure_code: Option<String>,
    worker_id: Option<Uuid>,
    queue: String,
    serve_key: String,
    lane: i16,
    definition_key: String,
    version: Option<i32>,
    open_children: i32,
    slot_keys: Option<Vec<String>>,
    is_new: bool,
    rank: i64,
    now: DateTime<Utc>,
    since: DateTime<Utc>,
}

impl Row {
    /// An estimate for those whose end is a time.
    fn until(&self, basis: &str) -> Estimate {
        match self.wait_until {
            Some(until) => Estimate {
                seconds: Some(((until - self.now).num_milliseconds().max(0)) as f64 / 1_000.0),
                basis: basis.to_owned(),
            },
            None => Estimate::none("its end is not known beforehand"),
        }
    }
}

impl Waiting {
    /// Where it stands, without what depends on the reason.
    fn of(row: &Row) -> Result<Self, StoreError> {
        let corrupt = |what: &str| StoreError::Corrupt(format!("unknown {what}"));
        let reason = row.wait_reason.as_deref();
        let reason = reason.map(|name| WaitReason::parse(name).ok_or_else(|| corrupt("wait reason"))).transpose()?;
        Ok(Self {
            status: ExecutionStatus::parse(&row.status).ok_or_else(|| corrupt("status"))?,
            reason,
            since: row.since,
            until: row.wait_until,
            deadline_at: row.deadline_at,
            failure_code: row.failure_code.clone(),
            worker: row.worker_id.map(WorkerId),
            queue: row.queue.clone(),
            definition_key: row.definition_key.clone(),
            definition_version: row.version,
            place: None,
            workers: None,
            requirements: Vec::new(),
            limits: Vec::new(),
            requests: Vec::new(),
            open_children: row.open_children,
            children: Vec::new(),
            last_failure: None,
            estimate: Estimate::none("it does not wait"),
        })
    }
}

impl Store {
    /// Where an execution stands and why. `None` when this reach has none of that id.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn explain_waiting(&self, reach: &Reach, id: ExecutionId) -> Result<Option<Waiting>, StoreError> {
        let Some(row) = self.waiting_row(reach, id).await? else { return Ok(None) };
        let mut waiting = Waiting::of(&row)?;
        match waiting.reason {
            None => {}
            Some(WaitReason::Worker) => {
                waiting.workers = Some(self.workers_that_serve(&row).await?);
                let place = self.place_for_worker(id, &row).await?;
                waiting.estimate = self.estimate_start(&row, place.ahead).await?;
                waiting.place = Some(place);
            }
            Some(WaitReason::ConcurrencyLimit) => {
                waiting.limits = self.limit_standings(id, &row).await?;
                waiting.place = self.place_for_slot(id).await?;
                waiting.estimate = self.estimate_slot(&row, &waiting).await?;
            }
            Some(WaitReason::Approval | WaitReason::Input | WaitReason::Children) => {
                waiting.requests = self.open_requests(id).await?;
                waiting.children = self.some_children(id).await?;
                waiting.estimate = Estimate::none(if waiting.requests.is_empty() {
                    "it goes on when what it started has ended"
                } else {
                    "a person decides"
                });
            }
            Some(WaitReason::Scheduled) => waiting.estimate = row.until("it was scheduled for then"),
            Some(WaitReason::RetryBackoff | WaitReason::ProviderDown | WaitReason::RateLimit) => {
                waiting.last_failure = self.last_failure(id).await?;
                waiting.estimate = row.until("the time it waits for is set");
            }
            Some(WaitReason::NoWorker) => {
                waiting.workers = Some(self.workers_that_serve(&row).await?);
                waiting.requirements = self.requirements(&row.serve_key).await?;
                waiting.estimate = Estimate::none("it goes on when a worker that serves it starts");
            }
            Some(WaitReason::Budget) => {
                waiting.estimate = Estimate::none("it goes on when its budget is raised or freed")
            }
            Some(WaitReason::QueuePaused) => waiting.estimate = Estimate::none("it goes on when its queue does"),
        }
        Ok(Some(waiting))
    }

    async fn waiting_row(&self, reach: &Reach, id: ExecutionId) -> Result<Option<Row>, StoreError> {
        let tenants = reach.ids();
        Ok(sqlx::query_as!(
            Row,
            r#"
            select e.tenant_id, e.status::text as "status!", e.wait_reason, e.wait_until, e.deadline_at, e.failure_code, e.worker_id,
                e.queue, e.serve_key, e.lane, e.definition_key, v.version as "version?", e.open_children, e.slot_keys,
                (e.started_at is null) as "is_new!", longhaul_claim_rank(e.created_at, e.priority) as "rank!",
                longhaul_now() as "now!",
                coalesce(e.finished_at, (
                    select max(s.at) from events s
                    where s.execution_id = e.id
                        and s.kind in ('submitted', 'claimed', 'released', 'lease_lost', 'parked', 'retrying', 'woken')
                ), e.created_at) as "since!"
            from executions e left join definition_versions v on v.id = e.definition_version_id
            where e.id = $1 and ($2::uuid[] is null or e.tenant_id = any ($2))
            "#,
            id.0,
            tenants.as_deref(),
        )
        .fetch_optional(&self.pool)
        .await?)
    }

    async fn workers_that_serve(&self, row: &Row) -> Result<LiveWorkers, StoreError> {
        let found = sqlx::query!(
            r#"
            with alive as materialized (
                select id, concurrency from workers
                where dead_at is null and expires_at > clock_timestamp() and $1 = any (queues) and $2 = any (serves)
            )
            select count(*) as "count!", coalesce(sum(concurrency), 0)::bigint as "permits!",
                (select count(*) from executions e where e.worker_id in (select id from alive)) as "held!"
            from alive
            "#,
            row.queue,
            row.serve_key,
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(LiveWorkers { count: found.count, permits: found.permits, free: (found.permits - found.held).max(0) })
    }

    /// Before it come those of its tenant with an earlier turn; other tenants take turns with its own.
    async fn place_for_worker(&self, id: ExecutionId, row: &Row) -> Result<PlaceInLine, StoreError> {
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
                        where x.wait_reason = 'worker' and x.queue = $1 and x.serve_key = $2 and x.lane = $3 and x.tenant_id = $4
                            and ((x.started_at is null), longhaul_claim_rank(x.created_at, x.priority), x.id) < ($5::bool, $6::bigint, $7::uuid)
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

    /// How fast its tenant's executions were started lately: those that were submitted just before the first one that still waits.
    async fn estimate_start(&self, row: &Row, ahead: i64) -> Result<Estimate, StoreError> {
        let started = sqlx::query!(
            r#"
            with head as materialized (
                select x.id from executions x
                where x.wait_reason = 'worker' and x.queue = $1 and x.serve_key = $2 and x.lane = $3 and x.tenant_id = $4
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

    async fn limit_standings(&self, id: ExecutionId, row: &Row) -> Result<Vec<LimitStanding>, StoreError> {
        let keys = row.slot_keys.clone().unwrap_or_default();
        let rows = sqlx::query!(
            r#"
            select r.source, nullif(r.subject, '') as subject, r.expression, k.value, r.max,
                coalesce(w.key = k.key, false) as "is_waited_for!",
                (select count(*) from slots s where s.key = k.key and s.execution_id is not null) as "held!",
                (select count(*) from slots s where s.key = k.key and s.execution_id is not null and s.tenant_id <> $3) as "others!",
                array(
                    select s.execution_id from slots s
                    where s.key = k.key and s.execution_id is not null and s.tenant_id = $3 order by s.since limit $4
                ) as "holders!: Vec<Uuid>"
            from slot_keys k join limit_rules r on r.id = k.rule_id left join slot_waiters w on w.execution_id = $1
            where k.key = any ($2)
            order by k.key
            "#,
            id.0,
            &keys,
            row.tenant_id,
            LIST_CAP,
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                // Its own value, whichever values the limit is about.
                let value = (row.expression != "tenant").then_some(row.value);
                Ok(LimitStanding {
                    key: LimitKey::new(&row.expression, value)
                        .ok_or_else(|| StoreError::Corrupt(format!("the limit's expression `{}`", row.expression)))?,
                    source: row.source,
                    subject: row.subject,
                    max: row.max,
                    held: row.held,
                    holders: row.holders.into_iter().map(ExecutionId).collect(),
                    held_by_others: row.others,
                    is_waited_for: row.is_waited_for,
                })
            })
            .collect()
    }

    async fn place_for_slot(&self, id: ExecutionId) -> Result<Option<PlaceInLine>, StoreError> {
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
                        select x.tenant_id from slot_waiters x where x.key = w.key and x.tenant_id <> w.tenant_id limit $2
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

    /// From how long executions of its definition were held by workers lately.
    async fn estimate_slot(&self, row: &Row, waiting: &Waiting) -> Result<Estimate, StoreError> {
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

    async fn open_requests(&self, id: ExecutionId) -> Result<Vec<OpenRequest>, StoreError> {
        Ok(sqlx::query_as!(
            OpenRequest,
            "select id, kind, tool, expires_at from human_requests where execution_id = $1 and state = 'waiting' \
             order by id limit $2",
            id.0,
            LIST_CAP,
        )
        .fetch_all(&self.pool)
        .await?)
    }

    async fn some_children(&self, id: ExecutionId) -> Result<Vec<OpenChild>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select id, status::text as "status!", wait_reason from executions
            where parent_id = $1 and finished_at is null
            order by id
            limit $2
            "#,
            id.0,
            LIST_CAP,
        )
        .fetch_all(&self.pool)
        .await?;
        let child = rows.into_iter().map(|row| OpenChild {
            id: ExecutionId(row.id),
            status: row.status,
            wait_reason: row.wait_reason,
        });
        Ok(child.collect())
    }

    async fn last_failure(&self, id: ExecutionId) -> Result<Option<LastFailure>, StoreError> {
        Ok(sqlx::query_as!(
            LastFailure,
            "select number as attempt, failure_class as class, failure_code as code, failure_summary as summary \
             from attempts where execution_id = $1 order by number desc limit 1",
            id.0,
        )
        .fetch_optional(&self.pool)
        .await?)
    }

    async fn requirements(&self, serve_key: &str) -> Result<Vec<String>, StoreError> {
        let found = sqlx::query_scalar!("select requirements from serve_keys where key = $1", serve_key);
        Ok(found.fetch_optional(&self.pool).await?.unwrap_or_default())
    }
}
