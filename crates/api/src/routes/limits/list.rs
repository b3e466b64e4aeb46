//! `GET /v1/limits`: the limits that apply to the caller's executions.

use axum::{Json, extract::State};
use longhaul_store::tenants::api_keys::Scope;
use uuid::Uuid;

use super::view::{LimitView, LimitsPage};
use crate::{
    auth::Reader,
    error::ApiResult,
    extract::{Params, take_reach},
    state::ApiState,
};

const PAGE: i64 = 100;

/// Lists the limits that apply to the caller's executions.
///
/// They are set here, come from definitions and agents, or cover all tenants.
#[utoipa::path(get, operation_id = "listLimits", path = "/v1/limits", tag = "limits",
    params(("after" = Option<String>, Query, description = "Limits after this one"),
        ("all_tenants" = Option<bool>, Query, description = "Of everybody; needs the scope `admin`")),
    responses((status = 200, description = "Limits and how they stand", body = LimitsPage)))]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    mut params: Params,
) -> ApiResult<Json<LimitsPage>> {
    principal.need(Scope::DefinitionsRead)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    let after: Option<Uuid> = params.take("after");
    params.finish()?;
    let limits = state.store.list_limits(&reach, after, PAGE).await?;
    let is_full = i64::try_from(limits.len()).is_ok_and(|found| found == PAGE);
    let next_after = limits.last().filter(|_| is_full).map(|limit| limit.id.to_string());
    Ok(Json(LimitsPage { limits: limits.into_iter().map(LimitView::from).collect(), next_after }))
}
