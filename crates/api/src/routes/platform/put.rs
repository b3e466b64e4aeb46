//! `PUT /v1/platform`: puts the entries of a document in one statement.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_contract::catalogue::PlatformSpec;
use longhaul_guards::agent_secrets::SECRET;
use longhaul_store::{contract::platform::Platform, tenants::api_keys::Scope};
use serde_json::Value;

use super::get::{PlatformView, view};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, in_turn, read_body, read_storable},
    error::{ApiError, ApiResult, Violation},
    schema,
    state::ApiState,
};

/// Puts the entries of a document; entries that it does not name stay as they are.
///
/// Needs the scope `admin`.
#[utoipa::path(
    put,
    operation_id = "putPlatform",
    path = "/v1/platform",
    tag = "operation",
    request_body(
        content = ref("#/components/schemas/PlatformSpec"),
        description = "The document, as in YAML; docs/reference/agent-execution-contract.md",
    ),
    responses((status = 200, description = "The platform as it stands", body = PlatformView)),
)]
pub(crate) async fn platform(
    State(state): State<ApiState>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<PlatformView>> {
    principal.need(Scope::Admin)?;
    let bytes = read_body(&headers, body, BODY_LIMIT).await?;
    let known = state.store.platform().await?;
    let mut spec = in_turn(bytes.len(), || read_storable(&bytes, |spec| violations(&known, spec))).await?;
    let violations = keep_secrets(&known, &mut spec);
    if !violations.is_empty() {
        return Err(ApiError::InvalidRequest(violations));
    }
    let sealer = &state.options.contract.sealer;
    let spec = spec.sealed(|literal| sealer.seal(literal));
    let spec = spec.map_err(|error| ApiError::invalid("/providers", error.to_string()))?;
    state.store.put_platform(&spec).await?;
    state.catalog.forget();
    Ok(Json(view(&state).await?))
}

/// Violations of the rules that the schema cannot express.
fn violations(known: &Platform, spec: &PlatformSpec) -> Vec<Violation> {
    let mut violations = names(known, spec);
    violations.extend(spec.problems().into_iter().map(|(path, reason)| Violation::new(path, reason)));
    for (at, tool) in spec.tools.iter().enumerate() {
        if let Err(error) = schema::compile(&tool.input_schema) {
            violations.push(Violation::new(format!("/tools/{at}/input_schema"), error));
        }
    }
    violations
}

/// Violations for providers and profiles that exist neither in the document nor in the store.
fn names(known: &Platform, spec: &PlatformSpec) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (at, profile) in spec.profiles.iter().enumerate() {
        for (capability, binding) in &profile.bindings {
            let name = &binding.provider;
            let is_known = spec.providers.iter().any(|provider| provider.slug == *name)
                || known.providers.iter().any(|provider| provider.slug == *name);
            if !is_known {
                let path = format!("/profiles/{at}/bindings/{capability}/provider");
                violations.push(Violation::new(path, format!("there is no provider `{name}`")));
            }
        }
    }
    if let Some(active) = &spec.active_profile {
        let is_known = spec.profiles.iter().any(|profile| profile.slug == *active)
            || known.profiles.iter().any(|profile| profile.slug == *active);
        if !is_known {
            violations.push(Violation::new("/active_profile", format!("there is no profile `{active}`")));
        }
    }
    violations
}

/// Replaces [`SECRET`] by the secret stored for the same endpoint. Without one it is a violation: it is not a key, and
/// another endpoint must be given its secrets by someone who knows them.
fn keep_secrets(known: &Platform, spec: &mut PlatformSpec) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (at, provider) in spec.providers.iter_mut().enumerate() {
        let stored = known.providers.iter().find(|stored| stored.slug == provider.slug);
        let stored = stored.filter(|stored| stored.endpoint_url == provider.endpoint_url);
        let refs = provider.config.get_mut("secret_refs").and_then(Value::as_object_mut);
        for (name, secret) in refs.into_iter().flatten() {
            if secret.as_str().map(str::trim) != Some(SECRET) {
                continue;
            }
            match stored.and_then(|stored| stored.config.get("secret_refs")?.get(name)) {
                Some(kept) => secret.clone_from(kept),
                None => {
                    let path = format!("/providers/{at}/config/secret_refs/{name}");
                    violations.push(Violation::new(
                        path,
                        "stands for a secret stored for the same endpoint_url, and there is none",
                    ));
                }
            }
        }
    }
    violations
}
