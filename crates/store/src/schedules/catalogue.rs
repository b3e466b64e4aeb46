//! Schedules as their owners write, read, pause and delete them.

use chrono::{DateTime, Utc};
use longhaul_domain::{
    ApiKeyId, ExecutionId, ScheduleId, TenantId,
    schedule::{ScheduleSpec, Timing},
};
use strum::{EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    executions::submit::Idempotency,
    tenants::{kept_answers::erase_answers_about, scope::TenantScope},
};

/// A schedule to create.
#[derive(Debug)]
pub struct NewSchedule<'a> {
    pub id: ScheduleId,
    pub tenant_id: TenantId,
    pub spec: &'a ScheduleSpec,
    pub submitted_by: Option<ApiKeyId>,
    /// The caller's idempotency key.
    pub idempotency: Option<Idempotency>,
    /// Start of the intervals: now.
    pub anchored_at: DateTime<Utc>,
    pub next_fire_at: Option<DateTime<Utc>>,
}

/// Result of a schedule's creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    Created,
    /// The same request under the same idempotency key created it before.
    Existing,
    /// The idempotency key was used for another request.
    KeyReused,
    /// The tenant has a schedule of this key.
    Exists,
    /// The tenant has as many schedules as it may.
    TooMany,
}

/// Result of a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    Replaced,
    /// Another request changed it meanwhile.
    Changed,
    NotFound,
}

/// Reason why a schedule is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum PauseReason {
    /// A person paused it.
    Requested,
    /// As many runs in a row failed as it allows.
    Failures,
}

longhaul_domain::named!(PauseReason);

/// A schedule.
#[derive(Debug)]
pub struct Schedule {
    pub id: ScheduleId,
    pub tenant_id: TenantId,
    pub spec: ScheduleSpec,
    /// Raised by each change of `spec`.
    pub revision: i32,
    pub submitted_by: Option<ApiKeyId>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub timing: Timing,
    /// Time and reason of the pause.
    pub paused: Option<(DateTime<Utc>, PauseReason)>,
    pub failures_in_a_row: i32,
    /// Next tick; `None` if there is none any more.
    pub next_fire_at: Option<DateTime<Utc>>,
    /// Newest tick that was fired.
    pub last_tick: Option<DateTime<Utc>>,
    /// Execution under way.
    pub running: Option<ExecutionId>,
    /// Ticks whose runs wait for its end; in [`Store::schedules_to_advance`] with the tick that has come.
    pub queued: i64,
}

impl Schedule {
    /// True for a schedule to advance if a run waits and none is under way.
    #[must_use]
    pub fn starts_a_run(&self) -> bool {
        self.running.is_none() && self.queued > 0
    }
}

struct Row {
    id: Uuid,
    tenant_id: Uuid,
    spec: String,
    revision: i32,
    submitted_by: Option<Uuid>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    anchored_at: DateTime<Utc>,
    paused_at: Option<DateTime<Utc>>,
    pause_reason: Option<String>,
    failures_in_a_row: i32,
    next_fire_at: Option<DateTime<Utc>>,
    last_tick: Option<DateTime<Utc>>,
    running: Option<Uuid>,
    queued: i64,
}

impl TryFrom<Row> for Schedule {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let spec: ScheduleSpec = serde_json::from_str(&row.spec)
            .map_err(|error| StoreError::Corrupt(format!("schedule {}: {error}", row.id)))?;
        let timing = spec.timing(row.anchored_at);
        let timing = timing.map_err(|(_, why)| StoreError::Corrupt(format!("schedule {}: {why}", row.id)))?;
        let reason = row.pause_reason.as_deref().and_then(PauseReason::parse);
        Ok(Self {
            id: ScheduleId(row.id),
            tenant_id: TenantId(row.tenant_id),
            spec,
            revision: row.revision,
            submitted_by: row.submitted_by.map(ApiKeyId),
            created_at: row.created_at,
            updated_at: row.updated_at,
            timing,
            paused: row.paused_at.zip(reason),
            failures_in_a_row: row.failures_in_a_row,
            next_fire_at: row.next_fire_at,
            last_tick: row.last_tick,
            running: row.running.map(ExecutionId),
            queued: row.queued,
        })
    }
}

/// The first tick after `after` that does not come after the schedule's end.
pub(super) fn next_tick(spec: &ScheduleSpec, timing: &Timing, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
    timing.next_after(after).filter(|tick| spec.ends_at.is_none_or(|end| *tick <= end))
}

fn text_of(spec: &ScheduleSpec) -> Result<String, StoreError> {
    serde_json::to_string(spec).map_err(|error| StoreError::Conflict(format!("not JSON: {error}")))
}

impl Store {
    /// Key of the schedule that a request under the tenant's idempotency key created, and the hash of that request.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn schedule_created_under(
        &self,
        tenant: TenantId,
        key: &str,
    ) -> Result<Option<(String, Vec<u8>)>, StoreError> {
        let row = sqlx::query!(
            r#"
            select key, request_hash as "request_hash!" from schedules where tenant_id = $1 and idempotency_key = $2
            "#,
            tenant.0,
            key,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| (row.key, row.request_hash)))
    }

    /// Creates a schedule, unless the tenant has `max` of them. A repeated request under its idempotency key finds the
    /// schedule that it created.
    ///
    /// # Errors
    /// Postgres refused a value, or is unavailable.
    pub async fn create_schedule(&self, new: &NewSchedule<'_>, max: u32) -> Result<Created, StoreError> {
        let (key, hash) = new.idempotency.as_ref().map(|own| (&own.key, &own.request_hash)).unzip();
        let mut transaction = self.pool.begin().await?;
        // One at a time per tenant, so that two do not both find the last place.
        let lock = format!("longhaul.schedules {}", new.tenant_id.0);
        sqlx::query!("select pg_advisory_xact_lock(hashtextextended($1, 0))", lock).execute(&mut *transaction).await?;
        let known = sqlx::query!(
            r#"
            select
                (select request_hash from schedules where tenant_id = $1 and idempotency_key = $2) as request_hash,
                exists (select from schedules where tenant_id = $1 and key = $3) as "exists!",
                (select count(*) from schedules where tenant_id = $1) as "count!"
            "#,
            new.tenant_id.0,
            key,
            new.spec.key,
        )
        .fetch_one(&mut *transaction)
        .await?;
        match known.request_hash {
            Some(stored) if Some(&stored) == hash => return Ok(Created::Existing),
            Some(_) => return Ok(Created::KeyReused),
            None if known.exists => return Ok(Created::Exists),
            None if known.count >= i64::from(max) => return Ok(Created::TooMany),
            None => {}
        }
        sqlx::query!(
            r#"
            insert into schedules (id, tenant_id, spec, key, submitted_by, idempotency_key, request_hash, created_at,
                updated_at, anchored_at, next_fire_at)
            values ($1, $2, $3::text::json, $3::text::json ->> 'key', $4, $5, $6, longhaul_now(), longhaul_now(), $7,
                $8)
            "#,
            new.id.0,
            new.tenant_id.0,
            text_of(new.spec)?,
            new.submitted_by.map(|key| key.0),
            key,
            hash,
            new.anchored_at,
            new.next_fire_at,
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(Created::Created)
    }

    /// Replaces what a schedule says. Its next tick stays if the timing does; otherwise it is the first of the new
    /// timing after `now`, from which intervals count.
    ///
    /// # Errors
    /// Postgres refused a value, or is unavailable.
    pub async fn replace_schedule(
        &self,
        (tenant, by): (TenantId, Option<ApiKeyId>),
        spec: &ScheduleSpec,
        now: DateTime<Utc>,
    ) -> Result<Replaced, StoreError> {
        let Some(old) = self.get_schedule(&tenant.into(), &spec.key).await? else { return Ok(Replaced::NotFound) };
        let keeps = old.spec.has_timing_of(spec);
        let timing = spec.timing(now).map_err(|(_, why)| StoreError::Conflict(why))?;
        // Intervals still count from their old start.
        let timing = if keeps { &old.timing } else { &timing };
        let next = next_tick(spec, timing, now);
        let done = sqlx::query!(
            r#"
            update schedules
            set spec = $3::text::json, revision = revision + 1, submitted_by = $4, updated_at = longhaul_now(),
                anchored_at = case when $5 then anchored_at else $6 end,
                -- A tick that is due stays due.
                next_fire_at = case when $5 and next_fire_at <= $6 then next_fire_at else $7 end
            where id = $1 and revision = $2
            "#,
            old.id.0,
            old.revision,
            text_of(spec)?,
            by.map(|key| key.0),
            keeps,
            now,
            next,
        )
        .execute(&self.pool)
        .await?;
        Ok(match done.rows_affected() {
            0 => Replaced::Changed,
            _ => Replaced::Replaced,
        })
    }

    /// Schedules in the order of keys, after `after`, or the one named `key`; at most `limit`.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn list_schedules(
        &self,
        scope: &TenantScope,
        (key, after): (Option<&str>, &str),
        limit: i64,
    ) -> Result<Vec<Schedule>, StoreError> {
        let tenants = scope.ids();
        let rows = sqlx::query_as!(
            Row,
            r#"
            select s.id, s.tenant_id, s.spec::text as "spec!", s.revision, s.submitted_by, s.created_at, s.updated_at,
                s.anchored_at, s.paused_at, s.pause_reason, s.failures_in_a_row, s.next_fire_at, s.last_tick,
                (
                    select f.execution_id from schedule_firings f
                    where f.schedule_id = s.id and f.state in ('running', 'ended')
                ) as running,
                (
                    select count(*) from schedule_firings f where f.schedule_id = s.id and f.state = 'queued'
                ) as "queued!"
            from schedules s
            where ($1::uuid[] is null or s.tenant_id = any ($1)) and ($2::text is null or s.key = $2) and s.key > $3
            order by s.key, s.tenant_id
            limit $4
            "#,
            tenants.as_deref() as Option<&[Uuid]>,
            key,
            after,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(Schedule::try_from).collect()
    }

    /// The schedule of that key, within `scope`.
    ///
    /// # Errors
    /// Postgres is unavailable, or the row cannot be read.
    pub async fn get_schedule(&self, scope: &TenantScope, key: &str) -> Result<Option<Schedule>, StoreError> {
        Ok(self.list_schedules(scope, (Some(key), ""), 1).await?.pop())
    }

    /// Schedules to advance: whose tick has come, those of one tenant in turn with those of others, and whose run has
    /// ended; at most `limit` of each. Leaves out those that this release cannot read, such as a newer one's.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn schedules_to_advance(&self, limit: i64) -> Result<Vec<Schedule>, StoreError> {
        let rows = sqlx::query_file_as!(Row, "src/sql/schedules_to_advance.sql", limit).fetch_all(&self.pool).await?;
        let read = |row| {
            let read = Schedule::try_from(row);
            read.inspect_err(|error| tracing::error!(error = %error, "a schedule is not advanced")).ok()
        };
        Ok(rows.into_iter().filter_map(read).collect())
    }

    /// Pauses a schedule: no tick fires, and those that wait for the run under way start none. The run goes on.
    /// Returns false if there is none.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn pause_schedule(&self, tenant: TenantId, key: &str) -> Result<bool, StoreError> {
        let paused = sqlx::query_scalar!(
            r#"
            with paused as (
                update schedules
                set paused_at = coalesce(paused_at, longhaul_now()), pause_reason = coalesce(pause_reason, 'requested')
                where tenant_id = $1 and key = $2
                returning id
            ),
            dropped as (
                update schedule_firings f set state = 'skipped', reason = 'paused'
                from paused where f.schedule_id = paused.id and f.state = 'queued'
            )
            select id from paused
            "#,
            tenant.0,
            key,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(paused.is_some())
    }

    /// Resumes a paused schedule: its next tick is the first after now, and its failures are forgotten. Returns false
    /// if there is none.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn resume_schedule(&self, schedule: &Schedule, now: DateTime<Utc>) -> Result<bool, StoreError> {
        let next = next_tick(&schedule.spec, &schedule.timing, now);
        let done = sqlx::query!(
            r#"
            update schedules set paused_at = null, pause_reason = null, failures_in_a_row = 0, next_fire_at = $3
            where id = $1 and revision = $2 and paused_at is not null
            "#,
            schedule.id.0,
            schedule.revision,
            next,
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Deletes a schedule with its history. A run under way goes on. Returns false if there is none.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn delete_schedule(&self, tenant: TenantId, key: &str) -> Result<bool, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let done = sqlx::query!("delete from schedules where tenant_id = $1 and key = $2", tenant.0, key)
            .execute(&mut *transaction)
            .await?;
        erase_answers_about(&mut transaction, tenant, &[key.to_owned()]).await?;
        transaction.commit().await?;
        Ok(done.rows_affected() > 0)
    }
}
