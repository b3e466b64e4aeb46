//! Reads the caller of a request: by its API key, which is looked up by its HMAC and cached (`key_cache.rs`), or by the
//! session that such a key began.

use std::ops::Deref;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderName, header, request::Parts},
};
use longhaul_domain::{ApiKeyId, TenantId};
use longhaul_fairness::Share;
use longhaul_store::tenants::{
    api_keys::{self, KeyState},
    scope::TenantScope,
};
use tokio::time::Instant;

use super::principal::Principal;
use crate::{
    audit::AuditSlot,
    error::{ApiError, ApiResult},
    session_cookie::session_of,
    state::ApiState,
};

/// Header in which Anthropic's clients send their key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

impl FromRequestParts<ApiState> for Principal {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let slot = parts.extensions.get::<AuditSlot>().cloned();
        let age = if slot.is_some() { Age::Now } else { Age::Cached };
        let mut principal = match key_hash(state, &parts.headers)? {
            Some(hash) => by_hash(state, hash, age).await?,
            None => of_session(parts, state, age).await?,
        };
        if let Some(slot) = slot {
            principal.act_in(&slot);
        }
        principal.keyed = parts.extensions.get().cloned();
        Ok(principal)
    }
}

/// Age that what is known of a key may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// None: the row is read.
    Now,
    /// As old as the cache of this process.
    Cached,
}

/// The caller of a route that reads, with the place of its tenant until the answer is made. Every `GET` has it but
/// those that `tests/it/tidy` lists.
#[derive(Debug)]
pub(crate) struct Reader {
    principal: Principal,
    _place: Share<TenantId>,
}

impl Deref for Reader {
    type Target = Principal;

    fn deref(&self) -> &Principal {
        &self.principal
    }
}

impl FromRequestParts<ApiState> for Reader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let principal = Principal::from_request_parts(parts, state).await?;
        let place = state.reads.place(principal.tenant()).await?;
        Ok(Self { principal, _place: place })
    }
}

async fn of_session(parts: &Parts, state: &ApiState, age: Age) -> ApiResult<Principal> {
    let session = session_of(state, parts)?;
    match by_hash(state, session.key_hash, age).await {
        Ok(principal) if principal.key().sessions_ended_at.is_none_or(|at| session.began_at > at) => Ok(principal),
        Ok(_) | Err(ApiError::InvalidApiKey) => Err(ApiError::Unauthenticated),
        Err(error) => Err(error),
    }
}

/// The HMAC of the key that a request's headers hold; `None` without a key.
///
/// # Errors
/// They hold something else.
pub(crate) fn key_hash(state: &ApiState, headers: &HeaderMap) -> ApiResult<Option<Vec<u8>>> {
    if headers.contains_key(header::AUTHORIZATION) {
        return hash_of(state, bearer(headers)?).map(Some);
    }
    let Some(key) = headers.get(API_KEY) else { return Ok(None) };
    let key = key.to_str().map_err(|_| ApiError::InvalidApiKey)?;
    hash_of(state, key.trim()).map(Some)
}

fn bearer(headers: &HeaderMap) -> ApiResult<&str> {
    let value = headers.get(header::AUTHORIZATION).ok_or(ApiError::Unauthenticated)?;
    let text = value.to_str().map_err(|_| ApiError::InvalidApiKey)?;
    let (scheme, key) = text.split_once(' ').ok_or(ApiError::Unauthenticated)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(key.trim()) } else { Err(ApiError::Unauthenticated) }
}

/// Authenticates the caller by `key`.
///
/// # Errors
/// The key is unknown, revoked or expired, or Postgres is unavailable.
pub(crate) async fn authenticate(state: &ApiState, key: &str) -> ApiResult<Principal> {
    by_hash(state, hash_of(state, key)?, Age::Cached).await
}

/// The look-up uses a keyed hash, so its timing reveals nothing about other keys.
fn hash_of(state: &ApiState, key: &str) -> ApiResult<Vec<u8>> {
    if api_keys::is_well_formed(key) { Ok(state.pepper.key_hash(key)) } else { Err(ApiError::InvalidApiKey) }
}

/// The caller that holds the key with that id.
///
/// # Errors
/// The key is unknown, revoked or expired, or Postgres is unavailable.
pub(crate) async fn by_id(state: &ApiState, id: ApiKeyId) -> ApiResult<Principal> {
    let found = state.store.find_key_of(&TenantScope::Everybody, id).await?;
    let active = found.filter(|found| found.state == KeyState::Active);
    active.map(Principal::new).ok_or(ApiError::InvalidApiKey)
}

/// Authenticates the caller by the HMAC of its key, as a session cookie stores it.
///
/// # Errors
/// As [`authenticate`].
pub(crate) async fn by_hash(state: &ApiState, hash: Vec<u8>, age: Age) -> ApiResult<Principal> {
    if age == Age::Cached
        && let Some(known) = state.keys.get(&hash)
    {
        return Ok(known);
    }
    let asked = Instant::now();
    match state.store.find_api_key(&hash).await? {
        Some(found) if found.state == KeyState::Active => {
            state.key_uses.note(&found, state.store.believed_now());
            let principal = Principal::new(found);
            state.keys.remember(hash, asked, principal.clone());
            Ok(principal)
        }
        Some(_) | None => Err(ApiError::InvalidApiKey),
    }
}
