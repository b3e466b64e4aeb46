//! `GET /v1/indexes`.

use axum::{Json, extract::State};
use longhaul_store::tenants::api_keys::Scope;

use super::view::{IndexView, IndexesPage};
use crate::openapi::params::Limit;
use crate::{auth::Reader, error::ApiResult, extract::Params, state::ApiState};

/// Lists the caller's indexes.
#[utoipa::path(
    get,
    operation_id = "listIndexes",
    path = "/v1/indexes",
    tag = "indexes",
    params(("after" = Option<String>, Query, description = "Names after this one"), Limit),
    responses((status = 200, description = "In the order of names", body = IndexesPage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    mut params: Params,
) -> ApiResult<Json<IndexesPage>> {
    principal.need(Scope::DefinitionsRead)?;
    let (after, limit) = (params.text("after").unwrap_or_default(), params.limit(50, 200));
    params.finish()?;
    let indexes = state.store.list_indexes(principal.tenant(), &after, limit).await?;
    let is_full = i64::try_from(indexes.len()).is_ok_and(|found| found == limit);
    let next_after = indexes.last().filter(|_| is_full).map(|index| index.name.clone());
    Ok(Json(IndexesPage { indexes: indexes.into_iter().map(IndexView::from).collect(), next_after }))
}
