//! `GET /v1/indexes/{name}`.

use axum::{Json, extract::State};
use longhaul_store::tenants::api_keys::Scope;

use super::{find, view::IndexView};
use crate::{auth::Reader, error::ApiResult, extract::Path, state::ApiState};

/// Returns one of the caller's indexes.
#[utoipa::path(
    get,
    operation_id = "getIndex",
    path = "/v1/indexes/{name}",
    tag = "indexes",
    params(("name" = String, Path, description = "Its name")),
    responses((status = 200, description = "The index", body = IndexView)),
)]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Reader,
    Path(name): Path<String>,
) -> ApiResult<Json<IndexView>> {
    principal.need(Scope::DefinitionsRead)?;
    Ok(Json(find(&state, principal.tenant(), &name).await?.into()))
}
