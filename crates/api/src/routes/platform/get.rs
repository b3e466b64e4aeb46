//! `GET /v1/platform`.

use std::{collections::BTreeMap, convert::Infallible};

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use longhaul_contract::platform::change_secrets;
use longhaul_domain::RuntimeProfile;
use longhaul_guards::agent_secrets::SECRET;
use longhaul_store::{contract::platform::ProviderRow, tenants::api_keys::Scope};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::{
    auth::Reader,
    error::ApiResult,
    openapi::{closed, spec},
    state::ApiState,
};

/// A model under the name that requests use.
#[derive(Debug, Serialize, ToSchema)]
struct ModelView {
    id: String,
    display_name: String,
    provider_model_id: Option<String>,
    #[schema(value_type = Object)]
    metadata: Value,
}

/// Last result of a provider's `healthcheck_url`.
#[derive(Debug, Serialize, ToSchema)]
struct ProviderHealthView {
    #[schema(value_type = closed::ProviderHealthState)]
    state: String,
    detail: Option<String>,
    since: Option<DateTime<Utc>>,
}

/// A provider. Secrets are shown only if they are references.
#[derive(Debug, Serialize, ToSchema)]
struct ProviderView {
    slug: String,
    provider_key: String,
    provider_origin: String,
    display_name: String,
    description: String,
    adapter_kind: String,
    endpoint_url: String,
    healthcheck_url: Option<String>,
    enabled: bool,
    #[schema(value_type = Object)]
    config: Value,
    health: ProviderHealthView,
}

/// A capability bound to a provider.
#[derive(Debug, Serialize, ToSchema)]
struct BindingView {
    provider: String,
    #[schema(value_type = Vec<Value>)]
    resources: Value,
    default_resource_id: Option<String>,
    #[schema(value_type = Object)]
    resource_policy: Value,
    #[schema(value_type = Object)]
    binding_config: Value,
}

/// A deployment profile.
#[derive(Debug, Serialize, ToSchema)]
struct ProfileView {
    slug: String,
    display_name: String,
    is_active: bool,
    bindings: BTreeMap<String, BindingView>,
}

/// The current platform.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlatformView {
    active_profile: Option<String>,
    /// Runtime profile of runs that ask for none; `offline` when null.
    #[schema(value_type = Option<spec::RuntimeProfile>)]
    runtime_profile: Option<&'static str>,
    profiles: Vec<ProfileView>,
    providers: Vec<ProviderView>,
    managed_models: Vec<ModelView>,
    /// Tools, as in the document of `PUT /v1/platform`.
    #[schema(value_type = Vec<spec::CatalogueToolSpec>)]
    tools: Vec<Value>,
    /// Access to agents, as in the document.
    #[schema(value_type = Vec<spec::AccessSpec>)]
    access: Vec<Value>,
    /// Policy rules, as in the document.
    #[schema(value_type = Vec<spec::RuleSpec>)]
    policy_rules: Vec<Value>,
}

impl From<ProviderRow> for ProviderView {
    fn from(of: ProviderRow) -> Self {
        let mut config = of.config;
        let hidden = change_secrets(&mut config, |text| {
            let is_reference = text.starts_with("env://") || text.starts_with("modelops://");
            Ok::<_, Infallible>((!is_reference).then(|| SECRET.to_owned()))
        });
        let Ok(()) = hidden;
        Self {
            slug: of.slug,
            provider_key: of.provider_key,
            provider_origin: of.provider_origin,
            display_name: of.display_name,
            description: of.description,
            adapter_kind: of.adapter_kind,
            endpoint_url: of.endpoint_url,
            healthcheck_url: of.healthcheck_url,
            enabled: of.enabled,
            config,
            health: ProviderHealthView { state: of.health, detail: of.health_detail, since: of.health_since },
        }
    }
}

/// Returns deployment profiles with bindings, providers with health, models, tools, and access to agents.
///
/// Needs the scope `admin`.
#[utoipa::path(get, operation_id = "getPlatform", path = "/v1/platform", tag = "operation",
    responses((status = 200, description = "The platform", body = PlatformView)))]
pub(crate) async fn platform(State(state): State<ApiState>, principal: Reader) -> ApiResult<Json<PlatformView>> {
    principal.need(Scope::Admin)?;
    Ok(Json(view(&state).await?))
}

pub(super) async fn view(state: &ApiState) -> ApiResult<PlatformView> {
    let platform = state.store.platform().await?;
    let tools = state.store.catalogue_tools(None).await?;
    let (access, rules) = state.store.access_statements().await?;
    let bindings_of = |slug: &str| {
        let own = platform.bindings.iter().filter(|binding| binding.profile == slug);
        own.map(|binding| {
            let view = BindingView {
                provider: binding.provider.clone(),
                resources: binding.resources.clone(),
                default_resource_id: binding.default_resource_id.clone(),
                resource_policy: binding.resource_policy.clone(),
                binding_config: binding.binding_config.clone(),
            };
            (binding.capability.clone(), view)
        })
        .collect()
    };
    let profiles = platform.profiles.iter().map(|profile| ProfileView {
        bindings: bindings_of(&profile.slug),
        slug: profile.slug.clone(),
        display_name: profile.display_name.clone(),
        is_active: profile.is_active,
    });
    let active = platform.profiles.iter().find(|profile| profile.is_active);
    Ok(PlatformView {
        active_profile: active.map(|profile| profile.slug.clone()),
        runtime_profile: platform.runtime_profile.map(RuntimeProfile::as_str),
        profiles: profiles.collect(),
        managed_models: platform
            .models
            .iter()
            .map(|model| ModelView {
                id: model.id.clone(),
                display_name: model.display_name.clone(),
                provider_model_id: model.provider_model_id.clone(),
                metadata: model.metadata.clone(),
            })
            .collect(),
        providers: platform.providers.into_iter().map(ProviderView::from).collect(),
        tools: tools
            .into_iter()
            .map(|tool| {
                json!({
                    "tool_ref": tool.tool_ref, "tool_name": tool.tool_name, "description": tool.description,
                    "transport": tool.transport, "connection_profile_ref": tool.connection_profile_ref,
                    "input_schema": tool.input_schema, "safety_policy": tool.safety_policy,
                    "offline_compatible": tool.offline_compatible, "effect": tool.effect,
                })
            })
            .collect(),
        access: access.into_iter().map(|one| json!(one)).collect(),
        policy_rules: rules.into_iter().map(|one| json!(one)).collect(),
    })
}
