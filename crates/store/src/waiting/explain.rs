//! Explains a wait: the execution's row, and what its wait reason adds.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::state::{
    EndpointStanding, Estimate, FailureWords, LastFailure, LimitStanding, LiveWorkers, OpenChild, OpenRequest, Waiting,
};
use crate::{Store, StoreError, tenants::scope::TenantScope};
use longhaul_domain::{ExecutionId, ExecutionStatus, LimitKey, RequestKind, WaitReason, WorkerId};

/// Most ids of a list.
const LIST_CAP: i64 = 20;

/// Columns that every explanation needs.
pub(super) struct Row {
    pub(super) tenant_id: Uuid,
    pub(super) status: ExecutionStatus,
    pub(super) wait_reason: Option<WaitReason>,
    pub(super) wait_until: Option<DateTime<Utc>>,
    pub(super) deadline_at: DateTime<Utc>,
    pub(super) failure_code: Option<String>,
    pub(super) worker_id: Option<WorkerId>,
    pub(super) queue: String,
    pub(super) serve_key: String,
    pub(super) lane: i16,
    pub(super) definition_key: String,
    pub(super) version: Option<i32>,
    pub(super) open_children: i32,
    pub(super) slot_keys: Option<Vec<String>>,
    pub(super) is_new: bool,
    pub(super) rank: i64,
    pub(super) now: DateTime<Utc>,
    pub(super) since: DateTime<Utc>,
}

impl Row {
    /// Estimate for a wait that ends at a known time.
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
    /// State of an execution, without the parts that depend on the wait reason.
    fn of(row: &Row) -> Self {
        Self {
            status: row.status,
            reason: row.wait_reason,
            since: row.since,
            until: row.wait_until,
            deadline_at: row.deadline_at,
            failure_code: row.failure_code.clone(),
            failure: None,
            worker: row.worker_id,
            starting: Vec::new(),
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
            endpoint: None,
            turn: None,
            holding: None,
            estimate: Estimate::none("it does not wait"),
        }
    }
}

impl Store {
    /// State of an execution, and the reason for it. `None` if there is none of that id within `reach`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn explain_waiting(&self, reach: &TenantScope, id: ExecutionId) -> Result<Option<Waiting>, StoreError> {
        let Some(row) = self.waiting_row(reach, id).await? else { return Ok(None) };
        let mut waiting = Waiting::of(&row);
        match waiting.reason {
            None if waiting.status == ExecutionStatus::Failed => waiting.failure = self.failure_words(id).await?,
            None => waiting.starting = self.starting_servers(id).await?,
            Some(WaitReason::Worker) => self.explain_worker(id, &row, &mut waiting).await?,
            Some(WaitReason::ConcurrencyLimit) => {
                waiting.turn = self.session_turn(id).await?;
                waiting.limits = self.limit_standings(id, &row).await?;
                waiting.place = self.place_for_slot(id).await?;
                waiting.estimate = self.estimate_slot(&row, &waiting).await?;
            }
            Some(WaitReason::Approval | WaitReason::Input | WaitReason::Children) => {
                waiting.requests = self.open_requests(id).await?;
                waiting.children = self.some_children(id).await?;
                let is_of_caller = |request: &OpenRequest| request.kind == RequestKind::ToolCall.as_str();
                waiting.estimate = Estimate::none(if waiting.requests.is_empty() {
                    "it goes on when what it started has ended"
                } else if waiting.requests.iter().all(is_of_caller) {
                    "its caller runs the calls"
                } else {
                    "a person decides"
                });
            }
            Some(WaitReason::Scheduled) => waiting.estimate = row.until("it was scheduled for then"),
            Some(WaitReason::RetryBackoff) => {
                waiting.last_failure = self.last_failure(id).await?;
                waiting.estimate = row.until("the time it waits for is set");
            }
            Some(WaitReason::ProviderDown | WaitReason::RateLimit) => {
                waiting.last_failure = self.last_failure(id).await?;
                waiting.endpoint = self.endpoint_standing(id).await?;
                let by_speed = waiting.endpoint.as_ref().and_then(EndpointStanding::estimate);
                waiting.estimate =
                    by_speed.unwrap_or_else(|| row.until("the model is asked again then, and goes through its line"));
            }
            Some(WaitReason::NoWorker) => {
                waiting.workers = Some(self.workers_that_serve(&row).await?);
                waiting.requirements = self.requirements(&row.serve_key).await?;
                waiting.estimate = Estimate::none("it goes on when a worker that serves it starts");
            }
            Some(WaitReason::Budget) => {
                waiting.estimate = Estimate::none("it goes on when its budget is raised or freed")
            }
            Some(WaitReason::QueuePaused) => {
                waiting.holding = self.holding_of(id).await?;
                waiting.estimate = Estimate::none("it goes on when one that was quarantined ends well");
            }
        }
        Ok(Some(waiting))
    }

    async fn explain_worker(&self, id: ExecutionId, row: &Row, waiting: &mut Waiting) -> Result<(), StoreError> {
        let workers = self.workers_that_serve(row).await?;
        let place = self.place_for_worker(id, row).await?;
        waiting.estimate = if workers.count > 0 {
            self.estimate_start(row, place.ahead).await?
        } else {
            waiting.requirements = self.requirements(&row.serve_key).await?;
            Estimate::none("no live worker serves it")
        };
        (waiting.workers, waiting.place) = (Some(workers), Some(place));
        Ok(())
    }

    async fn waiting_row(&self, reach: &TenantScope, id: ExecutionId) -> Result<Option<Row>, StoreError> {
        let tenants = reach.ids();
        Ok(sqlx::query_as!(
            Row,
            r#"
            select e.tenant_id, e.status::text as "status!: _", e.wait_reason as "wait_reason: _", e.wait_until,
                e.deadline_at,
                e.failure_code, e.worker_id as "worker_id: _", e.queue, e.serve_key, e.lane, e.definition_key,
                v.version as "version?", e.open_children, e.slot_keys,
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
                select id, concurrency from live_workers
                where expires_at > clock_timestamp() and $1 = any (queues) and $2 = any (serves)
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

    async fn limit_standings(&self, id: ExecutionId, row: &Row) -> Result<Vec<LimitStanding>, StoreError> {
        let keys = row.slot_keys.clone().unwrap_or_default();
        let rows = sqlx::query!(
            r#"
            select r.source, nullif(r.subject, '') as subject, r.expression, k.value, r.max,
                coalesce(w.key = k.key, false) as "is_waited_for!",
                (select count(*) from slots s where s.key = k.key and s.execution_id is not null) as "held!",
                (select count(*) from slots s where s.key = k.key and s.execution_id is not null and s.tenant_id <> $3)
                    as "others!",
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
                // The execution's own value, whichever values the limit is about.
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

    async fn open_requests(&self, id: ExecutionId) -> Result<Vec<OpenRequest>, StoreError> {
        Ok(sqlx::query_as!(
            OpenRequest,
            "select id, kind, call_id, tool, expires_at from human_requests where execution_id = $1 \
             and state = 'waiting' order by id limit $2",
            id.0,
            LIST_CAP,
        )
        .fetch_all(&self.pool)
        .await?)
    }

    async fn some_children(&self, id: ExecutionId) -> Result<Vec<OpenChild>, StoreError> {
        let children = sqlx::query_as!(
            OpenChild,
            r#"
            select id, status::text as "status!", wait_reason from executions
            where parent_id = $1 and finished_at is null
            order by id
            limit $2
            "#,
            id.0,
            LIST_CAP,
        );
        Ok(children.fetch_all(&self.pool).await?)
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

    async fn failure_words(&self, id: ExecutionId) -> Result<Option<FailureWords>, StoreError> {
        Ok(sqlx::query_as!(
            FailureWords,
            "select failure_summary as summary, failure_detail ->> 'validator' as validator,
                failure_detail ->> 'feedback' as feedback
             from execution_payloads where execution_id = $1",
            id.0,
        )
        .fetch_optional(&self.pool)
        .await?)
    }

    /// Tool servers that are being started, if the execution's last event says so.
    async fn starting_servers(&self, id: ExecutionId) -> Result<Vec<String>, StoreError> {
        let found = sqlx::query_scalar!(
            r#"
            select array(select jsonb_array_elements_text(last.data->'servers')) as "servers!"
            from (select kind, data from events where execution_id = $1 order by seq desc limit 1) as last
            where last.kind = 'tool_servers_starting'
            "#,
            id.0,
        );
        Ok(found.fetch_optional(&self.pool).await?.unwrap_or_default())
    }

    async fn requirements(&self, serve_key: &str) -> Result<Vec<String>, StoreError> {
        let found = sqlx::query_scalar!("select requirements from serve_keys where key = $1", serve_key);
        Ok(found.fetch_optional(&self.pool).await?.unwrap_or_default())
    }
}
