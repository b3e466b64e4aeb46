//! `GET /v1/approvals/{id}` and `GET /v1/questions/{id}`.

use axum::{Json, extract::State};
use longhaul_domain::RequestKind;
use longhaul_store::tenants::api_keys::Scope;

use super::{
    find,
    view::{Approval, Question},
};
use crate::{
    auth::Reader,
    error::ApiResult,
    extract::{Params, Path, take_reach},
    state::ApiState,
};

/// Returns one approval with everything that a decider must see.
#[utoipa::path(
    get,
    operation_id = "getApproval",
    path = "/v1/approvals/{id}",
    tag = "people",
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "The approval", body = Approval)),
)]
pub(crate) async fn approval(
    State(state): State<ApiState>,
    principal: Reader,
    path: Path<String>,
    mut params: Params,
) -> ApiResult<Json<Approval>> {
    principal.need(Scope::ExecutionsRead)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    params.finish()?;
    Ok(Json(Approval::full(&find(&state, &reach, RequestKind::Approval, path).await?)?))
}

/// Returns one question with the schema of its answer.
#[utoipa::path(
    get,
    operation_id = "getQuestion",
    path = "/v1/questions/{id}",
    tag = "people",
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "The question", body = Question)),
)]
pub(crate) async fn question(
    State(state): State<ApiState>,
    principal: Reader,
    path: Path<String>,
    mut params: Params,
) -> ApiResult<Json<Question>> {
    principal.need(Scope::ExecutionsRead)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    params.finish()?;
    Ok(Json(Question::full(&find(&state, &reach, RequestKind::Question, path).await?)?))
}
