//! `POST /v1/indexes/{name}/search`: the search that an agent's `search_dataset` performs.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_domain::retrieval::{
    InvalidRetrieval, MAX_FILTERS, MAX_QUERY_BYTES, MAX_TOP_K, Preprocessing, RetrievalRequest, SearchMethod,
    leaves_method_open,
};
use longhaul_store::tenants::api_keys::Scope;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{SearchError, find};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, read_body},
    error::{ApiError, ApiResult},
    extract::Path,
    openapi::spec,
    state::ApiState,
};

/// A search. Read by [`RetrievalRequest`], as in the agent-execution contract.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "describes the body in OpenAPI")]
#[schemars(description = "A search.")]
pub(crate) struct SearchBody {
    /// Words or a question.
    #[schemars(length(min = 1, max = MAX_QUERY_BYTES), example = "how long is the notice period")]
    query: String,
    /// Maximum number of results; 5 when absent.
    #[schemars(range(min = 1, max = MAX_TOP_K))]
    top_k: Option<u32>,
    /// Method of the search; by default `semantic`, or `keyword` if the index holds no embeddings.
    search_method: Option<SearchMethod>,
    /// `none` when absent.
    query_preprocessing: Option<Preprocessing>,
    /// Weight of the semantic side of a hybrid search; 0.5 when absent.
    #[schemars(range(min = 0, max = 1))]
    hybrid_alpha: Option<f64>,
    /// Metadata that results must have: strings, numbers or booleans by key.
    #[schemars(extend("maxProperties" = MAX_FILTERS))]
    filters: Option<Map<String, Value>>,
}

/// Results, best first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SearchResults {
    /// The query after preprocessing.
    query: String,
    /// `{id, text, metadata, score, score_kind, relevance_score, relevance_kind}`, and `relevance_components` for
    /// a hybrid search.
    #[schema(value_type = Vec<spec::RetrievedItem>)]
    results: Vec<longhaul_domain::retrieval::RetrievedItem>,
}

/// Searches one of the caller's indexes.
#[utoipa::path(
    post,
    operation_id = "searchIndex",
    path = "/v1/indexes/{name}/search",
    tag = "indexes",
    request_body = ref("#/components/schemas/SearchBody"),
    params(("name" = String, Path, description = "Its name")),
    responses((status = 200, description = "Best first", body = SearchResults)),
)]
pub(crate) async fn search(
    State(state): State<ApiState>,
    principal: Principal,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<SearchResults>> {
    principal.need(Scope::DefinitionsRead)?;
    let bytes = read_body(&headers, body, BODY_LIMIT).await?;
    let mut fields: Map<String, Value> =
        serde_json::from_slice(&bytes).map_err(|error| ApiError::MalformedJson(error.to_string()))?;
    find(&state, principal.tenant(), &name).await?;
    let is_open = leaves_method_open(fields.get("search_method"));
    fields.insert("index".into(), name.into());
    let refused = |error: InvalidRetrieval| SearchError::InvalidRetrievalInput(error.to_string());
    let request = RetrievalRequest::read(Some(&Value::Object(fields)), || None).map_err(refused)?;
    let mut request = request.ok_or(ApiError::Internal)?;
    if is_open {
        request.search_method = state.indexes.usual_method(principal.tenant(), &request.index).await?;
    }
    let found = state.indexes.search(principal.tenant(), &request).await?;
    let call = found.retrieval_calls.into_iter().next().ok_or(ApiError::Internal)?;
    Ok(Json(SearchResults { query: call.query, results: call.results }))
}
