//! `GET /v1/skills` and `GET /v1/skills/{name}`.

use axum::{Json, extract::State};
use longhaul_sdk::spec::SKILL_FILE;
use longhaul_store::tenants::api_keys::Scope;

use super::view::{SkillPage, WholeSkillView};
use crate::{
    auth::Reader,
    error::{ApiError, ApiResult},
    extract::{Params, Path},
    openapi::params::Limit,
    routes::definitions::{get::version, list::page},
    state::ApiState,
};

/// Lists the newest version of every skill that the caller sees.
#[utoipa::path(
    get,
    operation_id = "listSkills",
    path = "/v1/skills",
    tag = "skills",
    params(("after" = Option<String>, Query, description = "Names after this one"), Limit),
    responses((status = 200, description = "In the order of names", body = SkillPage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    params: Params,
) -> ApiResult<Json<SkillPage>> {
    principal.need(Scope::DefinitionsRead)?;
    let (after, limit) = page(params)?;
    Ok(Json(SkillPage::of(state.store.list_skills(Some(principal.tenant()), &after, limit).await?, limit)))
}

/// Returns one skill with its texts.
#[utoipa::path(
    get,
    operation_id = "getSkill",
    path = "/v1/skills/{name}",
    tag = "skills",
    params(
        ("name" = String, Path, description = "Its name"),
        ("version" = Option<i32>, Query, description = "The newest when absent"),
    ),
    responses((status = 200, description = "The version", body = WholeSkillView)),
)]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Reader,
    Path(name): Path<String>,
    params: Params,
) -> ApiResult<Json<WholeSkillView>> {
    principal.need(Scope::DefinitionsRead)?;
    let version = version(params, &name)?;
    let found = state.store.resolve_skill(Some(principal.tenant()), &name, version).await?;
    let found = found.ok_or(ApiError::NotFound("skill"))?;
    let mut files = state.store.skill_files(found.id).await?;
    let body = files.remove(SKILL_FILE).unwrap_or_default();
    Ok(Json(WholeSkillView { skill: found.into(), body, files }))
}
