//! `DELETE /v1/skills/{name}/versions/{version}`: keeps the version from agents that are put later; versions of agents
//! that have it keep it.

use axum::{extract::State, http::StatusCode};

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::{Params, Path},
    routes::definitions::put::owner,
    state::ApiState,
};

/// Removes a version of a skill.
#[utoipa::path(
    delete,
    operation_id = "removeSkillVersion",
    path = "/v1/skills/{name}/versions/{version}",
    tag = "skills",
    params(
        ("name" = String, Path, description = "Its name"),
        ("version" = i32, Path, description = "Its version"),
        ("shared" = Option<bool>, Query, description = "The shared one; needs the scope `admin`"),
    ),
    responses((status = 204, description = "Removed")),
)]
pub(crate) async fn remove(
    State(state): State<ApiState>,
    principal: Principal,
    Path((name, version)): Path<(String, String)>,
    params: Params,
) -> ApiResult<StatusCode> {
    let owner = owner(&principal, params)?;
    let version = version.parse().map_err(|_| ApiError::NotFound("version"))?;
    let removed = !name.contains('\0') && state.store.remove_skill_version(owner, &name, version).await?;
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::NotFound("version")) }
}
