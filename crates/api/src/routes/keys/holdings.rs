//! `GET /v1/keys/{id}/holdings`.

use axum::{Json, extract::State};
use longhaul_store::tenants::{
    api_keys::Scope,
    holdings::{HeldWebhook, Holdings, QueuedMessage},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::id;
use crate::{
    auth::Reader,
    error::{ApiError, ApiResult},
    extract::{Params, Path, take_reach},
    openapi::params::Tenants,
    state::ApiState,
};

/// Most entries of each list.
const MAX_ENTRIES: usize = 200;

/// Objects that a key or an account wrote and that act after it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HoldingsView {
    /// Webhooks and channels that it wrote last. The channels of a revoked key or a disabled account are off.
    webhooks: Vec<HeldWebhookView>,
    /// Keys of its schedules. Those of a revoked key or a disabled account start nothing.
    schedules: Vec<String>,
    /// Messages that wait for their turn; they are answered, unless they are cancelled.
    queued_messages: Vec<QueuedMessageView>,
    /// True if a list has more than its 200 entries.
    is_cut: bool,
}

/// A webhook or a channel.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HeldWebhookView {
    id: String,
    /// `standard`, `slack` or `email`.
    kind: String,
    is_enabled: bool,
}

/// A message that waits for its turn.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueuedMessageView {
    session_id: String,
    execution_id: String,
}

impl From<Holdings> for HoldingsView {
    fn from(mut of: Holdings) -> Self {
        let is_cut = [of.webhooks.len(), of.schedules.len(), of.queued_messages.len()].iter().any(|n| *n > MAX_ENTRIES);
        of.webhooks.truncate(MAX_ENTRIES);
        of.schedules.truncate(MAX_ENTRIES);
        of.queued_messages.truncate(MAX_ENTRIES);
        let webhook = |held: HeldWebhook| HeldWebhookView {
            id: held.id.to_string(),
            kind: held.kind,
            is_enabled: held.is_enabled,
        };
        let message = |queued: QueuedMessage| QueuedMessageView {
            session_id: queued.session_id.to_string(),
            execution_id: queued.execution_id.to_string(),
        };
        Self {
            webhooks: of.webhooks.into_iter().map(webhook).collect(),
            schedules: of.schedules,
            queued_messages: of.queued_messages.into_iter().map(message).collect(),
            is_cut,
        }
    }
}

/// Lists the objects of a key, or of the account of a person, that act after its revocation.
///
/// Needs the scope `keys:write`.
#[utoipa::path(
    get,
    operation_id = "listKeyHoldings",
    path = "/v1/keys/{id}/holdings",
    tag = "keys",
    params(("id" = String, Path, description = "Id of the key or the account"), Tenants),
    responses((status = 200, description = "Objects that it made or holds", body = HoldingsView)),
)]
pub(crate) async fn holdings(
    State(state): State<ApiState>,
    principal: Reader,
    Path(text): Path<String>,
    mut params: Params,
) -> ApiResult<Json<HoldingsView>> {
    principal.need(Scope::KeysWrite)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    params.finish()?;
    let key = state.store.find_key_of(&reach, id(&text)?).await?.ok_or(ApiError::NotFound("API key"))?;
    let limit = i64::try_from(MAX_ENTRIES + 1).unwrap_or(i64::MAX);
    Ok(Json(state.store.holdings(key.tenant_id, key.id, limit).await?.into()))
}
