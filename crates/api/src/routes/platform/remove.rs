//! `DELETE /v1/platform/{kind}/{name}`.

use axum::{extract::State, http::StatusCode};
use longhaul_store::{StoreError, contract::platform::PlatformKind, tenants::api_keys::Scope};

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::Path,
    state::ApiState,
};

/// Removes one entry of `managed_models`, `providers`, `profiles`, `tools`, `access` or `policy_rules`.
///
/// An agent without `access` is open to every caller that may submit. Needs the scope `admin`.
#[utoipa::path(
    delete,
    operation_id = "removeFromPlatform",
    path = "/v1/platform/{kind}/{name}",
    tag = "operation",
    params(
        ("kind" = String, Path, description = "The list it is in"),
        ("name" = String, Path, description = "Its id, slug, ref or key"),
    ),
    responses((status = 204, description = "It is gone")),
)]
pub(crate) async fn remove(
    State(state): State<ApiState>,
    principal: Principal,
    Path((kind, name)): Path<(String, String)>,
) -> ApiResult<StatusCode> {
    principal.need(Scope::Admin)?;
    let kind = PlatformKind::parse(&kind).ok_or(ApiError::NotFound("list"))?;
    if name.contains('\0') {
        return Err(ApiError::NotFound("entry"));
    }
    let removed = state.store.remove_of_platform(kind, &name).await;
    state.catalog.forget();
    match removed {
        Ok(true) => Ok(StatusCode::NO_CONTENT),
        Ok(false) => Err(ApiError::NotFound("entry")),
        Err(StoreError::Rejected(_)) => Err(ApiError::invalid("/name", "a profile is bound to it")),
        Err(error) => Err(error.into()),
    }
}
