//! `GET /v1/whoami`: the key or the person that the request is made by.

use axum::{Json, extract::State};
use longhaul_store::tenants::audit_log::ActorKind;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::Principal, error::ApiResult, openapi::closed, routes::executions::view::TenantView, state::ApiState,
};

/// The caller as the API knows it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Whoami {
    /// `person` for a person who signed in with the OpenID Connect provider.
    #[schema(value_type = closed::ActorKind)]
    kind: &'static str,
    /// Id of the key, or of the person's account.
    key_id: String,
    /// Name of the key or the person.
    name: String,
    email: Option<String>,
    /// Roles of a person; empty for a key.
    #[schema(value_type = Vec<closed::Role>)]
    roles: Vec<String>,
    tenant: TenantView,
    /// Rights of the caller.
    #[schema(value_type = Vec<closed::KeyScope>)]
    scopes: Vec<&'static str>,
}

/// Returns the key or the person that the request is made by.
#[utoipa::path(get, operation_id = "whoami", path = "/v1/whoami", tag = "operation",
    responses((status = 200, description = "The caller", body = Whoami)))]
pub(crate) async fn whoami(State(state): State<ApiState>, principal: Principal) -> ApiResult<Json<Whoami>> {
    let key = principal.key();
    let account = match key.actor {
        ActorKind::Person => state.store.find_account(&principal.reach(), key.id).await?,
        ActorKind::Key => None,
    };
    let (email, roles) = account.map_or_else(Default::default, |account| (account.email, account.roles));
    Ok(Json(Whoami {
        kind: key.actor.as_str(),
        key_id: key.id.to_string(),
        name: key.name.clone(),
        email,
        roles,
        tenant: TenantView { org_id: key.org_id.clone(), group_id: key.group_id.clone() },
        scopes: key.scopes.iter().map(|scope| scope.as_str()).collect(),
    }))
}
