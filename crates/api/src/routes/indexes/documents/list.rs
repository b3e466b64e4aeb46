//! `GET /v1/indexes/{name}/documents`.

use axum::{Json, extract::State};
use longhaul_store::tenants::api_keys::Scope;

use crate::{
    auth::Reader,
    error::ApiResult,
    extract::{Params, Path},
    openapi::params::Limit,
    routes::indexes::{
        find,
        view::{DocumentView, DocumentsPage},
    },
    state::ApiState,
};

/// Lists the documents of one of the caller's indexes.
#[utoipa::path(
    get,
    operation_id = "listDocuments",
    path = "/v1/indexes/{name}/documents",
    tag = "indexes",
    params(
        ("name" = String, Path, description = "The index"),
        ("after" = Option<String>, Query, description = "Ids after this one"),
        Limit,
    ),
    responses((status = 200, description = "In the order of ids", body = DocumentsPage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    Path(name): Path<String>,
    mut params: Params,
) -> ApiResult<Json<DocumentsPage>> {
    principal.need(Scope::DefinitionsRead)?;
    let (after, limit) = (params.text("after").unwrap_or_default(), params.limit(50, 200));
    params.finish()?;
    let index = find(&state, principal.tenant(), &name).await?;
    let documents = state.store.list_documents(&index, &after, limit).await?;
    let is_full = i64::try_from(documents.len()).is_ok_and(|found| found == limit);
    let next_after = documents.last().filter(|_| is_full).map(|document| document.id.clone());
    Ok(Json(DocumentsPage { documents: documents.into_iter().map(DocumentView::from).collect(), next_after }))
}
