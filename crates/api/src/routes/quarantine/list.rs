//! `GET /v1/quarantine` and `GET /v1/quarantine/{id}`.

use axum::{Json, extract::State};
use longhaul_store::tenants::api_keys::Scope;
use uuid::Uuid;

use super::view::{QuarantinePage, QuarantinedView};
use crate::{
    auth::Reader,
    error::{ApiError, ApiResult},
    extract::{ExecutionPath, Params, take_reach},
    state::ApiState,
};

const PAGE: i64 = 100;

/// Lists executions that killed their workers, oldest first.
///
/// Shows the last activity of each, the workers that died and what it waits for.
#[utoipa::path(
    get,
    operation_id = "listQuarantine",
    path = "/v1/quarantine",
    tag = "quarantine",
    params(
        (
            "state" = Option<String>,
            Query,
            description = "`all`: also those that were released, withdrawn or are overdue",
        ),
        ("after" = Option<String>, Query, description = "Executions after this one"),
        ("all_tenants" = Option<bool>, Query, description = "Of everybody; needs the scope `admin`"),
    ),
    responses((status = 200, description = "The quarantine", body = QuarantinePage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    mut params: Params,
) -> ApiResult<Json<QuarantinePage>> {
    principal.need(Scope::ExecutionsRead)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    let with_past = params.named("state", |text| (text == "all").then_some(())).is_some();
    let after: Option<Uuid> = params.take("after");
    params.finish()?;
    let found = state.store.list_quarantined(&reach, with_past, after, PAGE).await?;
    let is_full = i64::try_from(found.len()).is_ok_and(|found| found == PAGE);
    let next_after = found.last().filter(|_| is_full).map(|last| last.id.to_string());
    Ok(Json(QuarantinePage { quarantined: found.into_iter().map(QuarantinedView::from).collect(), next_after }))
}

/// Returns one execution that killed its workers.
#[utoipa::path(get, operation_id = "getQuarantine", path = "/v1/quarantine/{id}", tag = "quarantine",
    params(("id" = String, Path, description = "The execution's id"),
        ("all_tenants" = Option<bool>, Query, description = "Of all tenants; needs the scope `admin`")),
    responses((status = 200, description = "Its deaths, its last step and what it waits for", body = QuarantinedView)))]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Reader,
    ExecutionPath(id): ExecutionPath,
    mut params: Params,
) -> ApiResult<Json<QuarantinedView>> {
    principal.need(Scope::ExecutionsRead)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    params.finish()?;
    let found = state.store.find_quarantined(&reach, id).await?.ok_or(ApiError::NotFound("quarantined execution"))?;
    Ok(Json(found.into()))
}
