//! `PUT /v1/skills/{name}`: a new version for the caller's tenant, or with `?shared=true` for all.

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use longhaul_sdk::{json_pointer, spec::SkillSpec};
use longhaul_shared::visible;

use super::view::SkillView;
use crate::{
    auth::Principal,
    body::SKILL_LIMIT,
    error::{ApiError, ApiResult, Violation},
    extract::{Params, Path},
    routes::definitions::put::{owner, read_spec},
    state::ApiState,
};

/// Puts a skill as a new version, unless its newest version has the same content. Agents that are put later have it.
#[utoipa::path(
    put,
    operation_id = "putSkill",
    path = "/v1/skills/{name}",
    tag = "skills",
    request_body(content = ref("#/components/schemas/SkillSpec"), description = "The skill"),
    params(
        ("name" = String, Path, description = "Its name"),
        ("shared" = Option<bool>, Query, description = "For all tenants; needs the scope `admin`"),
    ),
    responses(
        (status = 201, description = "A new version", body = SkillView),
        (status = 200, description = "Nothing changed", body = SkillView),
    ),
)]
pub(crate) async fn put(
    State(state): State<ApiState>,
    principal: Principal,
    Path(name): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<SkillView>)> {
    let owner = owner(&principal, params)?;
    let skill: SkillSpec = read_spec(&headers, (body, SKILL_LIMIT), |skill| violations(&name, skill)).await?;
    let put = state.store.put_skill(owner, &skill).await?;
    state.store.note_author(put, principal.key_id()).await?;
    let stored = state.store.resolve_skill(owner, &name, Some(put.version)).await?;
    let status = if put.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(stored.ok_or(ApiError::NotFound("skill"))?.into())))
}

fn violations(name: &str, skill: &SkillSpec) -> Vec<Violation> {
    let differs = (skill.name != name).then(|| Violation::new("/name", format!("differs from `{name}` in the path")));
    let problems = skill.problems().into_iter().map(|(path, reason)| Violation::new(path, reason));
    let is_plain = |path: &str| visible::line(path) == path;
    let hidden = skill.files.keys().filter(|path| !is_plain(path)).map(|path| {
        Violation::new(
            format!("/files/{}", json_pointer::token(path)),
            "has characters that are not shown, or turn its text",
        )
    });
    differs.into_iter().chain(problems).chain(hidden).collect()
}
