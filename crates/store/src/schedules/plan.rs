//! The execution of a schedule's next run, with the versions that its names mean now.

use std::{sync::LazyLock, time::Duration};

use longhaul_guards::json_schema::SchemaCache;
use longhaul_sdk::spec::DefinitionSpec;
use serde_json::Value;
use strum::{EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

use super::Schedule;
use crate::{
    Store, StoreError,
    catalogue::definitions::{Version, agent_definition},
    contract::agent_access::{Access, Asker},
    executions::submit::NewExecution,
};

static SCHEMAS: LazyLock<SchemaCache> = LazyLock::new(SchemaCache::default);

/// Reason why no execution was started for a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum NotStarted {
    /// A run was under way.
    Overlap,
    /// As many ticks waited as may.
    QueueFull,
    /// A later tick took its place.
    Superseded,
    /// It was found over a minute late.
    Missed,
    /// The schedule was paused before its turn came.
    Paused,
    /// The month's budget has no room for a run.
    MonthlyBudget,
    UnknownDefinition,
    UnknownAgent,
    VersionRemoved,
    AgentNotAllowed,
    /// The input does not match the definition's schema any more.
    InvalidInput,
    /// What is stored of its definition or agent cannot be read.
    Unreadable,
}

longhaul_domain::named!(NotStarted);

impl NotStarted {
    /// True if the schedule itself is at fault: it counts as a failed run.
    pub(super) fn is_failure(self) -> bool {
        match self {
            Self::UnknownDefinition
            | Self::UnknownAgent
            | Self::VersionRemoved
            | Self::AgentNotAllowed
            | Self::InvalidInput
            | Self::Unreadable => true,
            Self::Overlap | Self::QueueFull | Self::Superseded | Self::Missed | Self::Paused | Self::MonthlyBudget => {
                false
            }
        }
    }
}

impl Store {
    /// Plans the next run of a schedule, as a submit by its owner would. `own_org` is the installation's own
    /// organisation.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn plan_scheduled_run(
        &self,
        schedule: &Schedule,
        own_org: &str,
    ) -> Result<Result<NewExecution, NotStarted>, StoreError> {
        match self.plan_run(schedule, own_org).await {
            // A failure of this schedule, which would else be found again in each look.
            Err(error @ StoreError::Corrupt(_)) => {
                tracing::error!(schedule.key = schedule.spec.key, error = %error, "a scheduled run cannot be planned");
                Ok(Err(NotStarted::Unreadable))
            }
            planned => planned,
        }
    }

    async fn plan_run(
        &self,
        schedule: &Schedule,
        own_org: &str,
    ) -> Result<Result<NewExecution, NotStarted>, StoreError> {
        let definition = match self.definition_of(schedule).await? {
            Ok(definition) => definition,
            Err(refused) => return Ok(Err(refused)),
        };
        let spec = &schedule.spec;
        let (key, version) = match &spec.agent {
            Some(agent) => (agent, spec.version),
            None => (&definition.spec.agent_key, None),
        };
        let Some(agent) = self.resolve_agent(Some(schedule.tenant_id), key, version).await? else {
            return Ok(Err(NotStarted::UnknownAgent));
        };
        if agent.removed_at.is_some() {
            return Ok(Err(NotStarted::VersionRemoved));
        }
        if !self.owner_may_execute(schedule, agent.id, own_org).await? {
            return Ok(Err(NotStarted::AgentNotAllowed));
        }
        let input = spec.input.as_ref().map_or("{}", |input| input.get());
        if !matches(&definition.spec.input_schema, input).await? {
            return Ok(Err(NotStarted::InvalidInput));
        }
        let mut pinned = self.pin(&definition, &agent).await?;
        if let Some(seconds) = spec.deadline_seconds {
            pinned.deadline = Duration::from_secs(seconds.into());
        }
        pinned.budget = spec.budget.clone().or(pinned.budget);
        Ok(Ok(NewExecution {
            queue: spec.queue.clone(),
            priority: spec.priority,
            metadata: Value::Object(spec.metadata.clone()),
            submitted_by: schedule.submitted_by,
            ..NewExecution::of(self.new_execution_id().await?, schedule.tenant_id, pinned, input.to_owned())
        }))
    }

    async fn definition_of(
        &self,
        schedule: &Schedule,
    ) -> Result<Result<Version<DefinitionSpec>, NotStarted>, StoreError> {
        let Some(key) = &schedule.spec.definition else {
            let put = self.put_agent_definition().await?;
            return Ok(Ok(Version::built_in(&put, agent_definition())));
        };
        let found = self.resolve_definition(Some(schedule.tenant_id), key, schedule.spec.version).await?;
        Ok(match found {
            Some(found) if found.removed_at.is_some() => Err(NotStarted::VersionRemoved),
            Some(found) => Ok(found),
            None => Err(NotStarted::UnknownDefinition),
        })
    }

    /// Checks the key that wrote the schedule, as it stands now.
    async fn owner_may_execute(&self, schedule: &Schedule, agent: Uuid, own_org: &str) -> Result<bool, StoreError> {
        let owner = sqlx::query!(
            r#"
            select t.org_id, nullif(t.group_id, '') as group_id,
                coalesce('admin' = any (k.scopes), false) as "is_admin!",
                longhaul_is_revoked($2) as "is_revoked!"
            from tenants t left join api_keys k on k.id = $2
            where t.id = $1
            "#,
            schedule.tenant_id.0,
            schedule.submitted_by.map(|key| key.0),
        )
        .fetch_one(&self.pool)
        .await?;
        if owner.is_revoked {
            return Ok(false);
        }
        let role = if owner.is_admin { "superadmin" } else { "user" };
        let asker = Asker { user_id: None, role, org_id: Some(&owner.org_id), group_id: owner.group_id.as_deref() };
        Ok(self.may_execute(agent.into(), own_org, asker).await? == Access::Granted)
    }
}

async fn matches(schema: &Value, input: &str) -> Result<bool, StoreError> {
    let corrupt = |what: &str, error: String| StoreError::Corrupt(format!("{what} of a schedule: {error}"));
    let input: Value = serde_json::from_str(input).map_err(|error| corrupt("the input", error.to_string()))?;
    let schema = SCHEMAS.get(schema).map_err(|error| corrupt("the input schema", error))?;
    // A value that was not checked, because others took too long, is the definition's to check.
    Ok(!matches!(schema.check(&input, |_| ()).await, Ok(Some(_))))
}
