//! Versions of agents and definitions. A version never changes; removing one stops new submits, not running
//! executions.
//!
//! A tenant's own key hides the shared one of the same name, as a whole: its versions are numbered by themselves.

use chrono::{DateTime, Utc};
use longhaul_sdk::spec::{AgentSpec, DefinitionSpec};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{
    put::{PUT_TRIES, Put},
    skills::PinnedSkill,
};
use crate::{Store, StoreError};
use longhaul_domain::{AgentVersionId, DefinitionVersionId, ServeKey, TenantId, input_parts::MAX_PARTS};

/// One stored version of an agent or a definition.
#[derive(Debug, Clone, PartialEq)]
pub struct Version<S> {
    /// An [`AgentVersionId`] or a [`DefinitionVersionId`].
    pub id: Uuid,
    /// Owner; `None` when shared by all tenants.
    pub tenant_id: Option<TenantId>,
    /// Number, counted from 1 per key and owner.
    pub version: i32,
    pub spec: S,
    pub created_at: DateTime<Utc>,
    pub removed_at: Option<DateTime<Utc>>,
}

impl<S> Version<S> {
    /// A built-in version, as it was put.
    #[must_use]
    pub fn built_in(put: &Put, spec: S) -> Self {
        Self {
            id: put.id,
            tenant_id: None,
            version: put.version,
            spec,
            created_at: DateTime::UNIX_EPOCH,
            removed_at: None,
        }
    }
}

struct VersionRow {
    id: Uuid,
    tenant_id: Option<Uuid>,
    version: i32,
    spec: String,
    created_at: DateTime<Utc>,
    removed_at: Option<DateTime<Utc>>,
}

impl VersionRow {
    fn read<S: DeserializeOwned>(self) -> Result<Version<S>, StoreError> {
        Ok(Version {
            id: self.id,
            tenant_id: self.tenant_id.map(TenantId),
            version: self.version,
            spec: read_spec(&self.spec)?,
            created_at: self.created_at,
            removed_at: self.removed_at,
        })
    }
}

fn read_spec<S: DeserializeOwned>(text: &str) -> Result<S, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Corrupt(format!("a stored version: {error}")))
}

/// The text of a spec, and the hash of the text and of the versions that it pins.
fn write_spec<S: Serialize>(spec: &S, pins: &[Uuid]) -> Result<(String, Vec<u8>), StoreError> {
    let text = serde_json::to_string(spec).map_err(|error| StoreError::Conflict(format!("not JSON: {error}")))?;
    let mut hasher = Sha256::new_with_prefix(text.as_bytes());
    pins.iter().for_each(|pin| hasher.update(pin.as_bytes()));
    Ok((text, hasher.finalize().to_vec()))
}

/// The functions of one table. The statements are literals, so that each is checked against its own table.
macro_rules! versions {
    (
        $spec:ty: $put:ident($($pins:ident)?), $resolve:ident, $list:ident, $remove:ident;
        $latest_sql:literal, $insert_sql:literal, $resolve_sql:literal, $list_sql:literal, $remove_sql:literal
    ) => {
        impl Store {
            /// Puts `spec` as the newest version of its key; if the newest version has the same content, it stays
            /// the newest. Without a `tenant` the version is shared by all tenants.
            ///
            /// # Errors
            /// Postgres refused the spec or is unavailable.
            pub async fn $put(
                &self,
                tenant: Option<TenantId>,
                spec: &$spec
                $(, $pins: &[Uuid])?
            ) -> Result<Put, StoreError> {
                let tenant = tenant.map(|tenant| tenant.0);
                let pinned: &[&[Uuid]] = &[$($pins)?];
                let (text, hash) = write_spec(spec, &pinned.concat())?;
                for _ in 0..PUT_TRIES {
                    let latest = sqlx::query!($latest_sql, tenant, spec.key).fetch_optional(&self.pool).await?;
                    if let Some(latest) = &latest
                        && latest.spec_hash == hash
                        && latest.removed_at.is_none()
                    {
                        return Ok(Put { id: latest.id, version: latest.version, created: false });
                    }
                    let version = latest.map_or(1, |latest| latest.version + 1);
                    let id = Uuid::new_v4();
                    let insert = sqlx::query!($insert_sql, id, tenant, spec.key, version, hash, text $(, $pins)?);
                    if insert.execute(&self.pool).await?.rows_affected() == 1 {
                        return Ok(Put { id, version, created: true });
                    }
                }
                Err(StoreError::Conflict(format!("`{}` is being put by too many at once", spec.key)))
            }

            /// The version that `tenant` means by a key: the newest that is not removed, or the numbered one,
            /// removed or not.
            ///
            /// # Errors
            /// Postgres is unavailable, or the stored spec cannot be read.
            pub async fn $resolve(
                &self,
                tenant: Option<TenantId>,
                key: &str,
                version: Option<i32>,
            ) -> Result<Option<Version<$spec>>, StoreError> {
                let tenant = tenant.map(|tenant| tenant.0);
                let row =
                    sqlx::query_as!(VersionRow, $resolve_sql, tenant, key, version).fetch_optional(&self.pool).await?;
                row.map(VersionRow::read).transpose()
            }

            /// Newest version of each key that `tenant` sees, in the order of keys, after `after`.
            ///
            /// # Errors
            /// Postgres is unavailable, or a stored spec cannot be read.
            pub async fn $list(
                &self,
                tenant: Option<TenantId>,
                after: &str,
                limit: i64,
            ) -> Result<Vec<Version<$spec>>, StoreError> {
                let tenant = tenant.map(|tenant| tenant.0);
                let rows = sqlx::query_as!(VersionRow, $list_sql, tenant, after, limit).fetch_all(&self.pool).await?;
                rows.into_iter().map(VersionRow::read).collect()
            }

            /// Removes a version of the owner: no new execution can be submitted to it. Returns false if there is
            /// none, or it was removed before.
            ///
            /// # Errors
            /// Postgres is unavailable.
            pub async fn $remove(&self, tenant: Option<TenantId>, key: &str, version: i32) -> Result<bool, StoreError> {
                let tenant = tenant.map(|tenant| tenant.0);
                let done = sqlx::query!($remove_sql, tenant, key, version).execute(&self.pool).await?;
                Ok(done.rows_affected() == 1)
            }
        }
    };
}

versions! {
    DefinitionSpec: put_definition(), resolve_definition, list_definitions, remove_definition_version;
    r#"
    select id, version, spec_hash, removed_at
    from definition_versions
    where key = $2 and tenant_id is not distinct from $1
    order by version desc
    limit 1
    "#,
    r#"
    insert into definition_versions (id, tenant_id, key, version, spec_hash, spec, agent_key, created_at)
    values ($1, $2, $3, $4, $5, $6::text::json, $6::text::json ->> 'agent_key', longhaul_now())
    on conflict do nothing
    "#,
    r#"
    select id, tenant_id, version, spec::text as "spec!", created_at, removed_at
    from definition_versions
    where key = $2 and (tenant_id = $1 or tenant_id is null)
        and (($3::int is null and removed_at is null) or version = $3)
        and (tenant_id is not null or not exists (
            select from definition_versions own where own.key = $2 and own.tenant_id = $1 and own.removed_at is null
        ))
    order by removed_at is not null, tenant_id nulls last, version desc
    limit 1
    "#,
    r#"
    select distinct on (key) id as "id!", tenant_id, version as "version!", spec::text as "spec!",
        created_at as "created_at!", removed_at
    from (
        select * from definition_versions where tenant_id = $1 and removed_at is null and key > $2
        union all
        select * from definition_versions where tenant_id is null and removed_at is null and key > $2
    ) seen
    order by key, tenant_id nulls last, version desc
    limit $3
    "#,
    r#"
    update definition_versions set removed_at = longhaul_now()
    where tenant_id is not distinct from $1 and key = $2 and version = $3 and removed_at is null
    "#
}

versions! {
    AgentSpec: put_pinned_agent(pins), resolve_agent, list_agents, remove_agent_version;
    r#"
    select id, version, spec_hash, removed_at
    from agent_versions
    where key = $2 and tenant_id is not distinct from $1
    order by version desc
    limit 1
    "#,
    r#"
    insert into agent_versions (id, tenant_id, key, version, spec_hash, spec, skill_version_ids, created_at)
    values ($1, $2, $3, $4, $5, $6::text::json, $7, longhaul_now())
    on conflict do nothing
    "#,
    r#"
    select id, tenant_id, version, spec::text as "spec!", created_at, removed_at
    from agent_versions
    where key = $2 and (tenant_id = $1 or tenant_id is null)
        and (($3::int is null and removed_at is null) or version = $3)
        and (tenant_id is not null or not exists (
            select from agent_versions own where own.key = $2 and own.tenant_id = $1 and own.removed_at is null
        ))
    order by removed_at is not null, tenant_id nulls last, version desc
    limit 1
    "#,
    r#"
    select distinct on (key) id as "id!", tenant_id, version as "version!", spec::text as "spec!",
        created_at as "created_at!", removed_at
    from (
        select * from agent_versions where tenant_id = $1 and removed_at is null and key > $2
        union all
        -- Without the built-in ones, which run no prompt.
        select * from agent_versions where tenant_id is null and removed_at is null and key > $2 and key not like '%:%'
    ) seen
    order by key, tenant_id nulls last, version desc
    limit $3
    "#,
    r#"
    update agent_versions set removed_at = longhaul_now()
    where tenant_id is not distinct from $1 and key = $2 and version = $3 and removed_at is null
    "#
}

/// Key of the built-in definition, which runs an agent without a definition of its own. It is reserved.
pub const AGENT_DEFINITION: &str = "agent";

/// Key of the definition that takes exchanges into memory. Only the sweep submits executions of it.
pub const MEMORY_DEFINITION: &str = "memory_update";
/// Key of the definition that plans projects, and name of its validator.
pub const PLAN_DEFINITION: &str = "project_plan";
/// Key of the definition that is one call of a model.
pub const MODEL_CALL_DEFINITION: &str = "model_call";
/// Keys of built-in definitions, which are reserved.
pub const BUILT_IN_DEFINITIONS: [&str; 4] =
    [AGENT_DEFINITION, MEMORY_DEFINITION, PLAN_DEFINITION, MODEL_CALL_DEFINITION];

/// The built-in definition: input `{prompt}` or `{messages}`, no validators. Its executions carry the agent they
/// name.
#[must_use]
pub fn agent_definition() -> DefinitionSpec {
    let part = json!({
        "type": "object",
        "properties": {
            "type": {"enum": ["text", "file"]},
            "text": {"type": "string", "minLength": 1},
            "file_id": {"type": "string", "pattern": "^file_[0-9a-f]{32}$"},
        },
        "required": ["type"],
        "additionalProperties": false,
        "if": {"properties": {"type": {"const": "file"}}},
        "then": {"required": ["file_id"], "not": {"required": ["text"]}},
        "else": {"required": ["text"], "not": {"required": ["file_id"]}},
    });
    let message = json!({
        "type": "object",
        "properties": {
            "role": {"enum": ["user", "assistant"]},
            "content": {"anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "minItems": 1, "maxItems": MAX_PARTS, "items": part},
            ]},
        },
        "required": ["role", "content"],
        "additionalProperties": false,
    });
    DefinitionSpec {
        name: "Agent".into(),
        description: Some("Runs an agent on a prompt or a list of messages; its answer is `response`.".into()),
        input_schema: json!({
            "type": "object",
            "properties": {
                "prompt": {"type": "string", "minLength": 1},
                "messages": {"type": "array", "minItems": 1, "items": message},
            },
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": false,
        }),
        prompt: Some(
            "{% if input.prompt is defined %}{{ input.prompt }}{% else %}{% for message in input.messages %}\
             {% if input.messages | length > 1 %}{{ message.role }}: {% endif %}{{ message.content }}\
             {% if not loop.last %}\n\n{% endif %}{% endfor %}{% endif %}"
                .into(),
        ),
        validators: Vec::new(),
        ..DefinitionSpec::new(AGENT_DEFINITION, AGENT_DEFINITION)
    }
}

/// Versions that an execution is pinned to.
#[derive(Debug, Clone, PartialEq)]
pub struct PinnedVersions {
    pub definition: DefinitionSpec,
    /// Number of the definition's version.
    pub definition_version: i32,
    pub agent: AgentSpec,
    /// Number of the agent's version.
    pub agent_version: i32,
    /// Owner of the agent; `None` when all tenants share it.
    pub agent_owner: Option<TenantId>,
    /// The agent's skills, in the order of its `skills`.
    pub skills: Vec<PinnedSkill>,
}

impl Store {
    /// Publishes a definition for all tenants, as `longhaul apply` does, and a worker at start for those it
    /// registered.
    ///
    /// # Errors
    /// Postgres refused the spec or is unavailable.
    pub async fn put_shared_definition(&self, spec: &DefinitionSpec) -> Result<Put, StoreError> {
        self.put_definition(None, spec).await
    }

    /// Publishes an agent for all tenants.
    ///
    /// # Errors
    /// Postgres refused the spec or is unavailable.
    pub async fn put_shared_agent(&self, spec: &AgentSpec) -> Result<Put, StoreError> {
        self.put_agent(None, spec).await
    }

    /// Puts an agent as [`put_definition`](Self::put_definition) does a definition. The version pins the newest
    /// versions of its skills: with a newer skill the same spec makes a new version.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if a skill does not exist; Postgres refused the spec or is unavailable.
    pub async fn put_agent(&self, tenant: Option<TenantId>, spec: &AgentSpec) -> Result<Put, StoreError> {
        match self.resolve_skills(tenant, &spec.skills).await? {
            Ok(pins) => self.put_pinned_agent(tenant, spec, &pins).await,
            Err(_unknown) => Err(StoreError::NotFound("skill")),
        }
    }

    /// Publishes the built-in definition of this build; the same content makes no new version.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn put_agent_definition(&self) -> Result<Put, StoreError> {
        self.put_definition(None, &agent_definition()).await
    }

    /// The versions with those ids, removed or not, for an attempt.
    ///
    /// # Errors
    /// There is no such version, it cannot be read, or Postgres is unavailable.
    pub async fn load_versions(
        &self,
        definition: DefinitionVersionId,
        agent: AgentVersionId,
    ) -> Result<PinnedVersions, StoreError> {
        let row = sqlx::query!(
            r#"
            select d.version as definition_version, d.spec::text as "definition!", a.version as agent_version,
                a.spec::text as "agent!", a.tenant_id as agent_owner, a.skill_version_ids
            from definition_versions d, agent_versions a
            where d.id = $1 and a.id = $2
            "#,
            definition.0,
            agent.0,
        )
        .fetch_optional(&self.pool)
        .await?
        .ok_or(StoreError::NotFound("definition or agent version"))?;
        Ok(PinnedVersions {
            definition: read_spec(&row.definition)?,
            definition_version: row.definition_version,
            agent: read_spec(&row.agent)?,
            agent_version: row.agent_version,
            agent_owner: row.agent_owner.map(TenantId),
            skills: self.pinned_skills(&row.skill_version_ids).await?,
        })
    }

    /// Records the requirements of `key` on workers, before the first execution that carries it is submitted.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn put_serve_key(&self, key: &ServeKey, requirements: &[String]) -> Result<(), StoreError> {
        sqlx::query!(
            "insert into serve_keys (key, requirements) values ($1, $2)
             on conflict (key) do update set put_at = excluded.put_at
                 where serve_keys.put_at < clock_timestamp() - interval '1 hour'",
            key.0,
            requirements,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
