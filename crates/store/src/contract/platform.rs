//! The platform of the agent-execution contract: entries put by operators, the snapshot that a submit takes, and
//! the health of providers.

use std::time::Duration;

use chrono::{DateTime, Utc};
use longhaul_contract::{Capability, PlatformRuntime, catalogue::PlatformSpec};
use longhaul_domain::RuntimeProfile;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sqlx::types::Json;
use strum::EnumString;
use uuid::Uuid;

use crate::{Store, StoreError};

/// Most providers that one process asks at a time.
const MAX_PROBES: i64 = 8;

/// Kind of an entry that can be removed from the platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString)]
pub enum PlatformKind {
    /// A managed model.
    #[strum(serialize = "managed_models")]
    ManagedModel,
    /// A provider without bindings.
    #[strum(serialize = "providers")]
    Provider,
    /// A deployment profile with its bindings.
    #[strum(serialize = "profiles")]
    Profile,
    /// A tool of the catalogue.
    #[strum(serialize = "tools")]
    Tool,
    /// Owner and shares of an agent; without them the agent is open.
    #[strum(serialize = "access")]
    Access,
    /// A policy rule.
    #[strum(serialize = "policy_rules")]
    PolicyRule,
}

impl PlatformKind {
    /// Parses a kind by its name in paths.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// A stored provider.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ProviderRow {
    /// Name.
    pub slug: String,
    /// Id in snapshots.
    pub id: Uuid,
    /// Kind of the provider.
    pub provider_key: String,
    /// `local` or `cloud`.
    pub provider_origin: String,
    /// Name for people.
    pub display_name: String,
    /// Description for people.
    pub description: String,
    /// Protocol.
    pub adapter_kind: String,
    pub endpoint_url: String,
    pub healthcheck_url: Option<String>,
    pub enabled: bool,
    /// Configuration; literal secrets are sealed.
    pub config: Value,
    /// `unknown`, `up` or `down`.
    pub health: String,
    /// Last answer of the health check, for people.
    pub health_detail: Option<String>,
    /// Time since which it is up or down.
    pub health_since: Option<DateTime<Utc>>,
}

/// A stored binding.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct BindingRow {
    pub profile: String,
    pub capability: String,
    /// Slug of the provider.
    pub provider: String,
    /// Resources of the provider that may be used.
    pub resources: Value,
    /// Resource used when none is requested.
    pub default_resource_id: Option<String>,
    /// Rules for the resources.
    pub resource_policy: Value,
    /// Settings of the binding itself.
    pub binding_config: Value,
}

/// A deployment profile.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProfileRow {
    /// Name.
    pub slug: String,
    /// Id in snapshots.
    pub id: Uuid,
    /// Name for people.
    pub display_name: String,
    pub is_active: bool,
}

/// A managed model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ModelRow {
    /// Managed id.
    pub id: String,
    /// Name for people.
    pub display_name: String,
    /// Name at the provider.
    pub provider_model_id: Option<String>,
    pub metadata: Value,
}

/// The whole platform.
#[derive(Debug, Clone, Default)]
pub struct Platform {
    /// Profiles by name.
    pub profiles: Vec<ProfileRow>,
    /// Bindings by profile and capability.
    pub bindings: Vec<BindingRow>,
    /// Providers by name.
    pub providers: Vec<ProviderRow>,
    /// Models by id.
    pub models: Vec<ModelRow>,
    /// Runtime profile of runs that request none.
    pub runtime_profile: Option<RuntimeProfile>,
}

/// Reason why there is no snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSnapshot {
    /// No profile binds the capability, or its provider does not exist.
    BindingNotFound(Capability),
    /// A profile that is not active binds the capability, or none is active.
    ProfileMismatch(Capability),
    /// The capability's provider is disabled.
    ProviderDisabled(Capability),
}

impl Platform {
    /// The active bindings, as a run takes them; `needed` must be among them.
    ///
    /// # Errors
    /// The first of `needed` that cannot be used.
    pub fn snapshot(&self, needed: &[Capability]) -> Result<PlatformRuntime, NoSnapshot> {
        let active = self.profiles.iter().find(|profile| profile.is_active);
        for &capability in needed {
            let mut bound = self.bindings.iter().filter(|binding| binding.capability == capability.as_str()).peekable();
            if bound.peek().is_none() {
                return Err(NoSnapshot::BindingNotFound(capability));
            }
            let own = bound.find(|binding| active.is_some_and(|active| active.slug == binding.profile));
            let own = own.ok_or(NoSnapshot::ProfileMismatch(capability))?;
            match self.providers.iter().find(|provider| provider.slug == own.provider) {
                Some(provider) if provider.enabled => {}
                Some(_) => return Err(NoSnapshot::ProviderDisabled(capability)),
                None => return Err(NoSnapshot::BindingNotFound(capability)),
            }
        }
        let Some(active) = active else { return Ok(PlatformRuntime::default()) };
        let of_profile = self.bindings.iter().filter(|binding| binding.profile == active.slug);
        let capabilities: Map<String, Value> = of_profile
            .filter_map(|binding| {
                let provider = self.providers.iter().find(|provider| provider.slug == binding.provider)?;
                Some((binding.capability.clone(), self.capability(provider, binding)))
            })
            .collect();
        Ok(PlatformRuntime(json!({
            "deployment_profile": {
                "id": active.id.to_string(), "slug": active.slug, "display_name": active.display_name,
            },
            "capabilities": capabilities,
        })))
    }

    fn capability(&self, provider: &ProviderRow, binding: &BindingRow) -> Value {
        let listed = binding.resources.as_array().map(Vec::as_slice).unwrap_or_default();
        let resources: Vec<Value> = listed.iter().map(|resource| self.resource(resource)).collect();
        let default = binding.default_resource_id.as_ref();
        let default_resource =
            resources.iter().find(|resource| resource["id"].as_str() == default.map(String::as_str)).cloned();
        json!({
            "id": provider.id.to_string(),
            "slug": provider.slug,
            "provider_key": provider.provider_key,
            "provider_origin": provider.provider_origin,
            "display_name": provider.display_name,
            "description": provider.description,
            "adapter_kind": provider.adapter_kind,
            "endpoint_url": provider.endpoint_url,
            "healthcheck_url": provider.healthcheck_url,
            "enabled": provider.enabled,
            "config": provider.config,
            "resources": resources,
            "default_resource_id": default,
            "default_resource": default_resource.filter(|_| default.is_some()),
            "resource_policy": binding.resource_policy,
            "binding_config": binding.binding_config,
        })
    }

    /// Expands a resource that is the id of a managed model.
    fn resource(&self, listed: &Value) -> Value {
        let Value::String(id) = listed else { return listed.clone() };
        let model = self.models.iter().find(|model| model.id == *id);
        json!({
            "id": id,
            "resource_kind": "model",
            "ref_type": "managed_model",
            "managed_model_id": id,
            "provider_resource_id": model.and_then(|model| model.provider_model_id.clone()),
            "display_name": model.map_or(id.as_str(), |model| model.display_name.as_str()),
            "metadata": model.map_or_else(|| json!({}), |model| model.metadata.clone()),
        })
    }
}

/// A provider whose health is to be checked.
#[derive(Debug, Clone)]
pub struct Probe {
    pub slug: String,
    /// Address of the health check.
    pub url: String,
}

impl Store {
    /// Puts a document; see [`PlatformSpec`].
    ///
    /// # Errors
    /// The document names a provider or a profile that does not exist, or Postgres is unavailable.
    pub async fn put_platform(&self, spec: &PlatformSpec) -> Result<(), StoreError> {
        let doc = serde_json::to_value(spec.clone().canonical())
            .map_err(|error| StoreError::Conflict(format!("not JSON: {error}")))?;
        sqlx::query_file!("src/sql/put_platform.sql", doc).execute(&self.pool).await?;
        Ok(())
    }

    /// The stored platform. Read in one statement, so that all of it is of one moment: a binding of one document
    /// with the provider of the next would send a secret elsewhere.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn platform(&self) -> Result<Platform, StoreError> {
        let row = sqlx::query_file!("src/sql/platform.sql").fetch_optional(&self.pool).await?;
        Ok(row.map_or_else(Platform::default, |row| Platform {
            profiles: row.profiles.0,
            bindings: row.bindings.0,
            providers: row.providers.0,
            models: row.models.0,
            runtime_profile: row.runtime_profile.as_deref().and_then(RuntimeProfile::parse),
        }))
    }

    /// Runtime profile of runs that request none.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn stored_runtime_profile(&self) -> Result<Option<RuntimeProfile>, StoreError> {
        let stored =
            sqlx::query_scalar!("select runtime_profile from platform_state").fetch_optional(&self.pool).await?;
        Ok(stored.flatten().as_deref().and_then(RuntimeProfile::parse))
    }

    /// Returns true if there is a managed model of that id.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn has_managed_model(&self, id: &str) -> Result<bool, StoreError> {
        let found = sqlx::query_scalar!(r#"select exists (select from managed_models where id = $1) as "found!""#, id);
        Ok(found.fetch_one(&self.pool).await?)
    }

    /// Removes one entry. Returns false if there is none.
    ///
    /// # Errors
    /// Something is bound to the provider, or Postgres is unavailable.
    pub async fn remove_of_platform(&self, kind: PlatformKind, name: &str) -> Result<bool, StoreError> {
        let done = match kind {
            PlatformKind::ManagedModel => sqlx::query!("delete from managed_models where id = $1", name),
            PlatformKind::Provider => sqlx::query!("delete from platform_providers where slug = $1", name),
            PlatformKind::Profile => sqlx::query!("delete from platform_profiles where slug = $1", name),
            PlatformKind::Tool => sqlx::query!("delete from catalogue_tools where tool_ref = $1", name),
            PlatformKind::Access => sqlx::query!("delete from agent_access where agent_key = $1", name),
            PlatformKind::PolicyRule => sqlx::query!("delete from policy_rules where id = $1", name),
        };
        Ok(done.execute(&self.pool).await?.rows_affected() == 1)
    }

    /// Takes the providers that were not asked for `every`, and marks them as asked, so that only one process
    /// asks each.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn take_probes(&self, every: Duration) -> Result<Vec<Probe>, StoreError> {
        let rows = sqlx::query_as!(
            Probe,
            r#"
            update platform_providers p set asked_at = longhaul_now()
            from (
                select slug from platform_providers
                where enabled and healthcheck_url is not null
                    and (asked_at is null or asked_at < longhaul_now() - $1::float8 * interval '1 second')
                order by asked_at nulls first limit $2 for update skip locked
            ) due
            where p.slug = due.slug
            returning p.slug, p.healthcheck_url as "url!"
            "#,
            every.as_secs_f64(),
            MAX_PROBES,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    /// Stores the result of a provider's health check.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn put_health(&self, slug: &str, is_up: bool, detail: &str) -> Result<(), StoreError> {
        sqlx::query!(
            r#"
            update platform_providers
            set health_since = case when health = $2 then health_since else longhaul_now() end, health = $2,
                health_detail = $3
            where slug = $1
            "#,
            slug,
            if is_up { "up" } else { "down" },
            detail,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Numbers of providers with a health check, by its result: up, down, unknown.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn count_health(&self) -> Result<[i64; 3], StoreError> {
        let row = sqlx::query!(
            r#"
            select count(*) filter (where health = 'up') as "up!", count(*) filter (where health = 'down') as "down!",
                count(*) filter (where health = 'unknown') as "unknown!"
            from platform_providers where enabled and healthcheck_url is not null
            "#
        )
        .fetch_one(&self.pool)
        .await?;
        Ok([row.up, row.down, row.unknown])
    }
}
