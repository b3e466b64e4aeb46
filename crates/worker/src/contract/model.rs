//! The model of a run: the managed model, its endpoint, and the provider's id for it.

use std::sync::Arc;

use longhaul_contract::{Binding, Capability, ContractRun, ExecCode, ExecFailure, Resource};
use longhaul_domain::noted::NotedModel;
use longhaul_llm::{
    health::Route,
    platform::{PlatformConfig, PlatformModel, RequestFormat},
};
use longhaul_sdk::{Failure, spec::ModelSpec};
use serde_json::Value;

use super::{failure, platform::Platform};
use crate::deps::Deps;

const ADAPTER: &str = "openai_compatible_llm";
const COMPLETIONS: &str = "/v1/chat/completions";
const MODELS: &str = "/v1/models";

/// A model that a run may call.
#[derive(Debug, Clone)]
pub(super) struct BoundModel {
    pub(super) binding: Binding,
    /// The model's managed id and provider id.
    pub(super) noted: NotedModel,
    /// True if this attempt asked the provider for the id. It must be pinned, since another request may return
    /// another id.
    pub(super) is_new: bool,
}

/// Resolves the model from the record of an earlier attempt, from the snapshot, or from the provider's list of
/// models.
///
/// # Errors
/// A failure with one of the contract's codes.
pub(super) async fn bind(
    run: &ContractRun,
    recorded: Option<NotedModel>,
    deps: &Deps,
) -> Result<(BoundModel, Route), Failure> {
    let binding = run.platform_runtime.binding(Capability::LlmInference).map_err(ExecFailure::from)?;
    check_adapter(&binding, &[ADAPTER])?;
    let resource = binding.select_resource(run.model.as_deref())?;
    let config = config(&binding, &deps.platform)?;
    let model = client(&binding, &config, &deps.platform)?;
    let is_new = recorded.is_none() && resource.provider_id().is_none();
    let noted = match recorded {
        Some(noted) => noted,
        None => {
            let provider_model = provider_id(&binding, resource, &deps.platform).await?;
            NotedModel { model_ref: resource.id.clone().unwrap_or_default(), provider_model }
        }
    };
    let spec = ModelSpec { name: Some(noted.provider_model.clone()), stream: false, ..ModelSpec::default() };
    let route = deps.health.route(spec, model, config.fingerprint());
    Ok((BoundModel { binding, noted, is_new }, route))
}

/// Checks that the protocol of a binding is supported.
///
/// # Errors
/// `EXEC_INTERNAL_ERROR` if it is not.
pub(super) fn check_adapter(binding: &Binding, known: &[&str]) -> Result<(), Failure> {
    let kind = binding.adapter_kind.as_deref().unwrap_or_default().trim();
    if known.contains(&kind) {
        Ok(())
    } else {
        Err(unusable(binding, &format!("adapter_kind `{kind}` is not supported")))
    }
}

fn client(binding: &Binding, config: &PlatformConfig, platform: &Platform) -> Result<Arc<PlatformModel>, Failure> {
    platform.model(config).map_err(|error| unusable(binding, &error.to_string()))
}

fn config(binding: &Binding, platform: &Platform) -> Result<PlatformConfig, Failure> {
    let url = |setting, default| {
        binding.url(setting, default).ok_or_else(|| unusable(binding, "the binding has no endpoint_url"))
    };
    let format = match binding.text("request_format").map(str::to_lowercase).as_deref() {
        None | Some("responses_api") => RequestFormat::Responses,
        Some("openai_chat") => RequestFormat::Chat,
        Some(other) => return Err(unusable(binding, &format!("request_format `{other}` is not supported"))),
    };
    Ok(PlatformConfig {
        url: url("chat_completion_path", COMPLETIONS)?,
        models_url: url("models_path", MODELS)?,
        key: platform.api_key(binding)?,
        format,
        timeout: binding.request_timeout(),
    })
}

/// The provider's id for a resource, from the snapshot or from the provider's list of models.
pub(super) async fn provider_id(
    binding: &Binding,
    resource: &Resource,
    platform: &Platform,
) -> Result<String, Failure> {
    if let Some(id) = resource.provider_id() {
        return Ok(id.to_owned());
    }
    let mut names: Vec<String> = resource.served_names().map(str::to_owned).collect();
    names.extend(loaded_names(binding, resource));
    let model = client(binding, &config(binding, platform)?, platform)?;
    let listed = model.first_listed(&names).await.map_err(|error| failure::of_model(binding, &error).0)?;
    listed.ok_or_else(|| {
        ExecFailure::new(ExecCode::InternalError)
            .detail("provider_slug", binding.slug.clone().unwrap_or_default())
            .detail("reason", "model_not_served")
            .detail("served_model_id", resource.id.clone().map_or(Value::Null, Value::String))
            .into()
    })
}

/// The names under which a local runtime lists its loaded model, if that model is this resource.
fn loaded_names(binding: &Binding, resource: &Resource) -> Vec<String> {
    let own = |name: &str| resource.rest.get(name).and_then(Value::as_str);
    let managed = own("managed_model_id").or(resource.id.as_deref());
    let is_same = |setting: &str, own: Option<&str>| binding.text(setting).is_some_and(|loaded| Some(loaded) == own);
    let is_loaded = is_same("loaded_local_path", own("local_path")) || is_same("loaded_managed_model_id", managed);
    if !is_loaded {
        return Vec::new();
    }
    let names = ["loaded_runtime_model_id", "forced_model_id", "canonical_local_model_id", "local_fallback_model_id"];
    names.iter().filter_map(|name| binding.text(name)).map(str::to_owned).collect()
}

/// The failure for a binding that cannot be used.
pub(super) fn unusable(binding: &Binding, reason: &str) -> Failure {
    ExecFailure::new(ExecCode::InternalError)
        .detail("provider_slug", binding.slug.clone().unwrap_or_default())
        .detail("reason", reason)
        .into()
}
