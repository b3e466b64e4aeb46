//! Quarantine duties of the sweep: holds back executions that would kill more workers, tries one once there is
//! another build, and lets the rest follow.
//!
//! Any number of workers may run this at once. Each step is a statement that decides by the group's row under its
//! lock, so that a step done by two of them takes effect once.

use std::time::Duration;

use uuid::Uuid;

use crate::{Store, StoreError, executions::control::Release, fleet::maintenance::Runnable};
use longhaul_domain::{ExecutionId, ServeKey, TenantId};

/// Most groups that one pass starts a canary for, or releases a portion of.
const GROUPS: i64 = 20;
/// Executions that one statement holds back, and most statements of one pass.
const CHUNK: i64 = 500;
const CHUNKS: usize = 20;
/// Time between two portions.
const PORTION_EVERY: Duration = Duration::from_secs(10);

/// Rules for holding back and releasing executions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuarantineRules {
    /// True if a new build starts a canary by itself.
    pub auto_release: bool,
    /// Number of quarantined executions of a group from which its new executions are held back.
    pub hold_after: i64,
    /// Time within which all of them were quarantined.
    pub hold_window: Duration,
    /// Executions of a group released per minute after its canary.
    pub release_per_minute: i64,
}

/// Result of one pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tended {
    /// Executions that became runnable.
    pub runnable: Vec<Runnable>,
    /// Definitions of the groups whose new executions are held back from now on.
    pub held: Vec<String>,
    /// Canaries that passed: they left their worker alive.
    pub passed: Vec<ExecutionId>,
}

/// A group of which an execution can be tried.
struct Candidate {
    tenant_id: Uuid,
    definition_version_id: Uuid,
    agent_version_id: Uuid,
    died_builds: Vec<String>,
    /// Candidate in quarantine.
    execution_id: Option<Uuid>,
    /// Candidate that is held back, tried if there is none in quarantine.
    held_id: Option<Uuid>,
    held_serve_key: Option<String>,
}

impl Store {
    /// Runs one pass over the quarantine. Costs one look if it is empty.
    ///
    /// # Errors
    /// Postgres is unavailable; completed steps stand, and the next pass does the rest.
    pub async fn tend_quarantine(&self, rules: &QuarantineRules) -> Result<Tended, StoreError> {
        let mut tended = Tended::default();
        if !self.has_quarantine().await? {
            return Ok(tended);
        }
        tended.held = self.hold_groups(rules).await?;
        for _ in 0..CHUNKS {
            if self.hold_back(CHUNK).await? < CHUNK {
                break;
            }
        }
        tended.passed = self.judge_canaries().await?;
        if rules.auto_release {
            for candidate in self.canary_candidates().await? {
                tended.runnable.extend(self.start_canary(&candidate).await?);
            }
        }
        tended.runnable.extend(self.release_portions(rules).await?);
        self.lift_holds(rules).await?;
        self.forget_groups().await?;
        Ok(tended)
    }

    async fn has_quarantine(&self) -> Result<bool, StoreError> {
        let found = sqlx::query_scalar!(r#"select exists (select from quarantine_groups) as "is_some!""#);
        Ok(found.fetch_one(&self.pool).await?)
    }

    /// Holds back the new executions of groups of which too many were quarantined.
    async fn hold_groups(&self, rules: &QuarantineRules) -> Result<Vec<String>, StoreError> {
        Ok(sqlx::query_scalar!(
            r#"
            with now as materialized (select longhaul_now() as now)
            update quarantine_groups g set held_since = now.now, changed_at = now.now
            from now
            where g.held_since is null and g.state <> 'releasing' and (
                select count(*) from (
                    select from quarantine q
                    where q.tenant_id = g.tenant_id and q.definition_version_id = g.definition_version_id
                        and q.agent_version_id = g.agent_version_id and q.released_as is null
                        and q.withdrawn_at is null and q.quarantined_at > longhaul_now() - $2 * interval '1 second'
                    limit $1
                ) recent
            ) >= $1
            returning g.definition_key
            "#,
            rules.hold_after,
            rules.hold_window.as_secs_f64(),
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// Holds back executions submitted before their group was held. Started ones go on, and so do suspects: those
    /// are few, and watched.
    async fn hold_back(&self, limit: i64) -> Result<i64, StoreError> {
        let held = sqlx::query_file!("src/sql/hold_back.sql", limit).fetch_all(&self.pool).await?;
        Ok(held.len() as i64)
    }

    /// Judges the canaries. One that recorded a step of its own and left its worker has passed; one that ended
    /// before that proves nothing, and another one is tried. One that killed its worker is handled by the reaper
    /// (`sql/reap.sql`).
    async fn judge_canaries(&self) -> Result<Vec<ExecutionId>, StoreError> {
        let rows = sqlx::query_file!("src/sql/judge_canaries.sql").fetch_all(&self.pool).await?;
        Ok(rows.into_iter().filter(|row| row.is_passed).map(|row| ExecutionId(row.canary)).collect())
    }

    async fn canary_candidates(&self) -> Result<Vec<Candidate>, StoreError> {
        Ok(sqlx::query_file_as!(Candidate, "src/sql/canary_candidates.sql", GROUPS).fetch_all(&self.pool).await?)
    }

    async fn start_canary(&self, of: &Candidate) -> Result<Option<Runnable>, StoreError> {
        if let Some(id) = of.execution_id {
            let tenant = TenantId(of.tenant_id);
            return self.release(tenant, ExecutionId(id), Release::Canary, &of.died_builds).await;
        }
        let (Some(held), Some(key)) = (of.held_id, &of.held_serve_key) else { return Ok(None) };
        let key = self.serve_key_without(&ServeKey(key.clone()), &of.died_builds).await?;
        let woken = sqlx::query_file_as!(
            Runnable,
            "src/sql/wake_canary.sql",
            held,
            of.tenant_id,
            of.definition_version_id,
            of.agent_version_id,
            key.0,
        );
        Ok(woken.fetch_optional(&self.pool).await?)
    }

    /// Releases the next portion of every group whose canary has passed.
    async fn release_portions(&self, rules: &QuarantineRules) -> Result<Vec<Runnable>, StoreError> {
        let portion = (rules.release_per_minute * PORTION_EVERY.as_secs().cast_signed() / 60).max(1);
        let rows = sqlx::query_file!("src/sql/release_portions.sql", portion, PORTION_EVERY.as_secs_f64(), GROUPS,)
            .fetch_all(&self.pool)
            .await?;
        let mut released = Vec::new();
        for row in rows {
            let (tenant, id) = (TenantId(row.tenant_id), ExecutionId(row.execution_id));
            released.extend(self.release(tenant, id, Release::Rest, &row.died_builds).await?);
        }
        Ok(released)
    }

    /// Lifts a hold if no live worker has a build that the group killed, or if the group has nothing left to try,
    /// since no canary would ever lift it. Overdue executions still count for as long as they would cause a hold
    /// again.
    async fn lift_holds(&self, rules: &QuarantineRules) -> Result<(), StoreError> {
        sqlx::query!(
            r#"
            with now as materialized (select longhaul_now() as now)
            update quarantine_groups g set held_since = null, changed_at = now.now
            from now
            where g.held_since is not null and (
                g.state = 'releasing' and not exists (
                    select from workers w
                    where w.dead_at is null and w.build = any (g.died_builds)
                        and w.queues && g.queues
                )
                or g.state = 'shut' and not exists (
                    select from quarantine q
                    where q.tenant_id = g.tenant_id and q.definition_version_id = g.definition_version_id
                        and q.agent_version_id = g.agent_version_id and q.released_as is null and q.withdrawn_at is null
                        and not q.is_child and q.deadline_at > longhaul_now()
                ) and not exists (
                    select from quarantine q
                    where q.tenant_id = g.tenant_id and q.definition_version_id = g.definition_version_id
                        and q.agent_version_id = g.agent_version_id and q.released_as is null and q.withdrawn_at is null
                        and q.quarantined_at > longhaul_now() - $1 * interval '1 second'
                )
            )
            "#,
            rules.hold_window.as_secs_f64(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Makes runnable up to `limit` executions that were held back and are not any more.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn wake_unheld(&self, limit: i64) -> Result<Vec<Runnable>, StoreError> {
        Ok(sqlx::query_file_as!(Runnable, "src/sql/wake_unheld.sql", limit).fetch_all(&self.pool).await?)
    }

    /// Deletes groups that hold back nothing and have nothing to release.
    async fn forget_groups(&self) -> Result<(), StoreError> {
        sqlx::query!(
            r#"
            delete from quarantine_groups g
            where g.state <> 'canary' and g.held_since is null
                -- What a reaper adds meanwhile changes the row, and this is looked at again under its lock.
                and g.changed_at < longhaul_now() - interval '1 minute'
                and not exists (
                    select from quarantine q
                    where q.tenant_id = g.tenant_id and q.definition_version_id = g.definition_version_id
                        and q.agent_version_id = g.agent_version_id and q.released_as is null and q.withdrawn_at is null
                        and not q.is_child and q.deadline_at > longhaul_now()
                )
            "#
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
