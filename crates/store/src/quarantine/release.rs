//! Releases quarantined executions, one by one: each by a retry that points back, for a worker of a build that
//! they have not killed.

use std::{collections::BTreeSet, time::Duration};

use uuid::Uuid;

use super::Quarantined;
use crate::{
    Store, StoreError, executions::control::Release, fleet::maintenance::Runnable, tenants::scope::TenantScope,
};
use longhaul_domain::{
    ExecutionId, ServeKey, TenantId,
    requirements::{is_other_build, other_build_requirement},
};

/// Result of a release by a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// It is retried, alone; the rest of its group follows if that ends well.
    Canary(Runnable),
    /// All of its group are retried, a portion at a time.
    All,
    /// It cannot be released.
    Refused(Refused),
    /// No execution of that id is in quarantine.
    NotFound,
}

/// Reason why a quarantined execution is not released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// It was released before, as this execution.
    Before(ExecutionId),
    /// Its caller cancelled it.
    Withdrawn,
    /// Its deadline passed; a retry gives it a new one.
    Expired,
    /// Another execution of its group is being tried.
    CanaryRuns(ExecutionId),
}

impl Store {
    /// Releases a quarantined execution on a person's word that the cause is gone, on any build: as the canary of
    /// its group, or with `all` the whole group without one. With `all`, an execution that cannot be released
    /// itself still names its group.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn release_quarantined(
        &self,
        reach: &TenantScope,
        id: ExecutionId,
        all: bool,
    ) -> Result<Released, StoreError> {
        let Some(found) = self.find_quarantined(reach, id).await? else { return Ok(Released::NotFound) };
        if all {
            self.open_group(id).await?;
            return Ok(Released::All);
        }
        if let Some(refused) = refusal(&found) {
            return Ok(Released::Refused(refused));
        }
        if let Some(released) = self.release(found.tenant_id, id, Release::Manual, &[]).await? {
            return Ok(Released::Canary(released));
        }
        // Another request was faster.
        let again = self.find_quarantined(reach, id).await?;
        let canary = again.as_ref().and_then(|found| found.group()?.canary);
        Ok(match again.as_ref().and_then(refusal).or(canary.map(Refused::CanaryRuns)) {
            Some(refused) => Released::Refused(refused),
            None => Released::NotFound,
        })
    }

    /// Retries one execution on workers of any build but `died`. `None` if it cannot be released, or was released
    /// meanwhile.
    pub(super) async fn release(
        &self,
        tenant: TenantId,
        id: ExecutionId,
        how: Release,
        died: &[String],
    ) -> Result<Option<Runnable>, StoreError> {
        let Some(left) = self.time_left_of(id).await? else { return Ok(None) };
        let Some(origin) = self.read_origin(tenant, id).await? else { return Ok(None) };
        let mut execution = origin.execution;
        execution.serve_key = self.serve_key_without(&execution.serve_key, died).await?;
        // The retry keeps the original deadline.
        execution.deadline = left;
        let is_released = self.submit_release(id, &execution, how).await?;
        Ok(is_released.then_some(Runnable { id: execution.id, queue: execution.queue }))
    }

    /// Time left until the deadline of an execution that may be released.
    async fn time_left_of(&self, id: ExecutionId) -> Result<Option<Duration>, StoreError> {
        let left = sqlx::query_scalar!(
            r#"
            select extract(epoch from deadline_at - longhaul_now())::float8 as "left!" from quarantine
            where execution_id = $1 and released_as is null and withdrawn_at is null
            "#,
            id.0,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(left.filter(|left| *left > 0.0).and_then(|left| Duration::try_from_secs_f64(left).ok()))
    }

    /// Serve key of the same requirements, plus a worker of any build but `died`.
    pub(super) async fn serve_key_without(&self, key: &ServeKey, died: &[String]) -> Result<ServeKey, StoreError> {
        let needs: Vec<String> = sqlx::query_scalar!("select requirements from serve_keys where key = $1", key.0)
            .fetch_optional(&self.pool)
            .await?
            .unwrap_or_default();
        let needs: BTreeSet<String> = needs
            .into_iter()
            // Leaves out the builds of an earlier release.
            .filter(|need| is_other_build(need, "").is_none())
            .chain(died.iter().map(|build| other_build_requirement(build)))
            .collect();
        let key = ServeKey::of(&needs);
        self.put_serve_key(&key, &needs.into_iter().collect::<Vec<_>>()).await?;
        Ok(key)
    }

    /// Releases the whole group of an execution, without a canary.
    async fn open_group(&self, id: ExecutionId) -> Result<(), StoreError> {
        sqlx::query!(
            r#"
            insert into quarantine_groups as g (
                tenant_id, definition_version_id, agent_version_id, definition_key, agent_key, queues, state,
                died_builds,
                next_release_at, changed_at
            )
            select tenant_id, definition_version_id, agent_version_id, definition_key, agent_key, array[queue],
                'releasing', '{}',
                longhaul_now(), longhaul_now()
            from quarantine where execution_id = $1
            on conflict (tenant_id, definition_version_id, agent_version_id) do update
            set state = 'releasing', died_builds = '{}', canary = null, next_release_at = excluded.next_release_at,
                changed_at = excluded.changed_at
            "#,
            id.0,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Marks a quarantined execution as cancelled by its caller: it is not released from now on.
    pub(crate) async fn withdraw_quarantined(&self, tenant: TenantId, id: ExecutionId) -> Result<(), StoreError> {
        sqlx::query!(
            r#"
            update quarantine set withdrawn_at = longhaul_now()
            where execution_id = $1 and tenant_id = $2 and released_as is null and withdrawn_at is null
            "#,
            id.0,
            tenant.0 as Uuid,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

fn refusal(of: &Quarantined) -> Option<Refused> {
    match (of.released_as, of.state.as_str()) {
        (Some(released), _) => Some(Refused::Before(released)),
        (None, "withdrawn") => Some(Refused::Withdrawn),
        (None, "expired") => Some(Refused::Expired),
        (None, _) => None,
    }
}
