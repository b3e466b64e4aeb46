//! `GET /v1/whoami`: the key that the request is made with.

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{auth::Principal, openapi::closed, routes::executions::view::TenantView};

/// The caller as the API knows it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Whoami {
    key_id: String,
    /// Name of the key.
    name: String,
    tenant: TenantView,
    /// What the key may do.
    #[schema(value_type = Vec<closed::KeyScope>)]
    scopes: Vec<&'static str>,
}

/// Returns the key that the request is made with.
#[utoipa::path(get, operation_id = "whoami", path = "/v1/whoami", tag = "operation",
    responses((status = 200, description = "The caller", body = Whoami)))]
pub(crate) async fn whoami(principal: Principal) -> Json<Whoami> {
    let key = principal.key();
    Json(Whoami {
        key_id: key.id.to_string(),
        name: key.name.clone(),
        tenant: TenantView { org_id: key.org_id.clone(), group_id: key.group_id.clone() },
        scopes: key.scopes.iter().map(|scope| scope.as_str()).collect(),
    })
}
