//! `PUT /v1/memory/{id}`: replaces the content of an episode, if nothing changed it since it was read.

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, header},
};
use longhaul_domain::TenantId;
use longhaul_sdk::spec::MAX_EPISODE_CHARS;
use longhaul_store::{
    memory::{Changed, Episode, MemoryPlace, TakenEpisode},
    tenants::api_keys::Scope,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{EpisodePath, read::find, view::EpisodeView};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, NO_NUL, read_json},
    error::{ApiError, ApiResult},
    openapi::params::Id,
    state::ApiState,
};

/// A change of an episode.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EpisodeBody {
    /// The new content, for the whole of the old one.
    #[schemars(length(min = 1, max = MAX_EPISODE_CHARS), regex(pattern = NO_NUL))]
    content: String,
}

/// Replaces the content of an episode. Relations that only the old content told of are removed.
#[utoipa::path(
    put,
    operation_id = "putMemory",
    path = "/v1/memory/{id}",
    tag = "memory",
    request_body = ref("#/components/schemas/EpisodeBody"),
    params(Id, ("If-Match" = String, Header, description = "The `hash` of the content that is replaced")),
    responses((status = 200, description = "The episode", body = EpisodeView)),
)]
pub(crate) async fn put(
    State(state): State<ApiState>,
    principal: Principal,
    EpisodePath(id): EpisodePath,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<EpisodeView>> {
    principal.need(Scope::ExecutionsWrite)?;
    let given = headers.get(header::IF_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let expected = hex::decode(given.trim().trim_matches('"')).ok().filter(|hash| hash.len() == 32);
    let expected = expected.ok_or_else(|| ApiError::invalid("/header/if-match", "must be the hash of the episode"))?;
    let EpisodeBody { content } = read_json(&headers, body, BODY_LIMIT).await?;
    let tenant = principal.tenant();
    match state.store.change_episode(tenant, id, &expected, &content).await? {
        Changed::Done(_) => {}
        Changed::Differs(_) => return Err(ApiError::StaleHash),
        Changed::NotFound => return Err(ApiError::NotFound("episode")),
    }
    let changed = find(&state, &principal, id).await?;
    embed(&state, tenant, &changed).await;
    Ok(Json(changed.into()))
}

/// Embeds the new content. Without an embedding it is found by words alone.
async fn embed(state: &ApiState, tenant: TenantId, of: &Episode) {
    let place = MemoryPlace { tenant, agent: of.agent_key.clone(), scope: of.scope.clone() };
    let episode = TakenEpisode { id: of.id, exchange: of.exchange, content: of.content.clone(), hash: of.hash.clone() };
    if let Err(error) = state.indexes.embed_episodes(&place, &[episode]).await {
        tracing::warn!(error = %error, "a changed episode is found by words alone");
    }
}
