//! `POST /v1/memory/search`: the search that an agent's `recall` performs.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_store::{memory::MemoryPlace, tenants::api_keys::Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::MAX_SCOPE_CHARS;
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, NO_NUL, read_json},
    error::ApiResult,
    state::ApiState,
};

/// A search in the memory of an agent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemorySearchBody {
    /// Key of the agent.
    #[schemars(length(min = 1, max = 64), regex(pattern = NO_NUL))]
    agent: String,
    /// Whole scope; the memory that all users share when absent.
    #[serde(default)]
    #[schemars(length(max = MAX_SCOPE_CHARS), regex(pattern = NO_NUL))]
    scope: String,
    /// Words or a question.
    #[schemars(length(min = 1, max = 4_000), regex(pattern = NO_NUL))]
    query: String,
    /// Maximum number of episodes, and of facts; 5 when absent.
    #[serde(default = "five")]
    #[schemars(range(min = 1, max = 20))]
    top_k: u32,
}

fn five() -> u32 {
    5
}

/// Results of a search, best first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MemoryResults {
    results: Vec<FoundView>,
    /// Relations of what the query names.
    facts: Vec<FactView>,
}

/// An episode that fits.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FoundView {
    id: String,
    content: String,
    /// Larger is better.
    relevance: f64,
}

/// A relation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FactView {
    #[schema(example = "Ada owns a cat")]
    text: String,
    /// Episodes that say so.
    episodes: Vec<String>,
}

/// Searches the memory of an agent, by words and by meaning.
#[utoipa::path(
    post,
    operation_id = "searchMemory",
    path = "/v1/memory/search",
    tag = "memory",
    request_body = ref("#/components/schemas/MemorySearchBody"),
    responses((status = 200, description = "Best first", body = MemoryResults)),
)]
pub(crate) async fn search(
    State(state): State<ApiState>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<MemoryResults>> {
    principal.need(Scope::ExecutionsRead)?;
    let MemorySearchBody { agent, scope, query, top_k } = read_json(&headers, body, BODY_LIMIT).await?;
    let place = MemoryPlace { tenant: principal.tenant(), agent, scope };
    let query = state.indexes.memory_query(&place, &query, top_k).await?;
    let recalled = state.indexes.recall(&place, &query).await?;
    let found = recalled.episodes.into_iter().map(|episode| FoundView {
        id: episode.id.to_string(),
        content: episode.content,
        relevance: episode.relevance,
    });
    let facts = recalled
        .facts
        .into_iter()
        .map(|(text, episodes)| FactView { text, episodes: episodes.iter().map(ToString::to_string).collect() });
    Ok(Json(MemoryResults { results: found.collect(), facts: facts.collect() }))
}
