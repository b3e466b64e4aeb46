//! Authenticates callers by bearer API key, which is looked up by its HMAC and cached for a few seconds; browsers by
//! the session that such a key began.
//!
//! Invariants: a revoked or expired key stops working within 10 s, and at once for what leaves a row in the audit log,
//! for which the key is read anew; a caller sees only its own tenant, unless its key
//! has the scope `admin` and the request names another.

use std::{ops::Deref, sync::Arc};

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use longhaul_fairness::Share;
use longhaul_shared::domain::{ApiKeyId, TenantId};
use longhaul_store::tenants::{
    api_keys::{self, ApiKey, KeyState, Scope},
    audit_log::Actor,
    scope::TenantScope,
};

use crate::{
    audit::AuditSlot,
    error::{ApiError, ApiResult},
    keyed_answer::KeyedAnswer,
    session_cookie::session_of,
    state::ApiState,
};

/// The authenticated caller of a request.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    key: Arc<ApiKey>,
    /// The row of this request in the audit log, if it changes something.
    audit: Option<AuditSlot>,
    /// The answer of this request, if it is kept.
    keyed: Option<KeyedAnswer>,
}

impl Principal {
    pub(crate) fn key_id(&self) -> ApiKeyId {
        self.key.id
    }

    pub(crate) fn tenant(&self) -> TenantId {
        self.key.tenant_id
    }

    /// The executions that the caller may read when it names no tenant.
    pub(crate) fn reach(&self) -> TenantScope {
        self.key.tenant_id.into()
    }

    pub(crate) fn key(&self) -> &ApiKey {
        &self.key
    }

    /// Names what the request created, for the audit log.
    pub(crate) fn created(&self, target: impl ToString) {
        if let Some(slot) = &self.audit {
            slot.name_target(target.to_string());
        }
    }

    /// Names the caller as the actor of the request's row in the audit log.
    pub(crate) fn act_in(&mut self, slot: &AuditSlot) {
        let key = self.key();
        slot.name_actor(Actor { kind: key.actor, id: key.id.0, name: key.name.clone(), tenant: key.tenant_id });
        self.audit = Some(slot.clone());
    }

    /// The request's claim on its idempotency key, if its answer is kept.
    pub(crate) fn keyed(&self) -> Option<&KeyedAnswer> {
        self.keyed.as_ref()
    }

    /// The caller's role in agent access policy.
    pub(crate) fn role(&self) -> &'static str {
        if self.key.scopes.contains(&Scope::Admin) { "superadmin" } else { "user" }
    }

    /// # Errors
    /// The key lacks the scope.
    pub(crate) fn need(&self, scope: Scope) -> ApiResult<()> {
        if let Some(keyed) = &self.keyed {
            keyed.note(scope);
        }
        if self.key.scopes.contains(&scope) { Ok(()) } else { Err(ApiError::MissingScope(scope)) }
    }
}

impl FromRequestParts<ApiState> for Principal {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let slot = parts.extensions.get::<AuditSlot>().cloned();
        let age = if slot.is_some() { Age::Now } else { Age::Cached };
        let mut principal = if parts.headers.contains_key(header::AUTHORIZATION) {
            by_hash(state, hash_of(state, bearer(&parts.headers)?)?, age).await?
        } else {
            of_session(parts, state, age).await?
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
    active.map(|found| Principal { key: Arc::new(found), audit: None, keyed: None }).ok_or(ApiError::InvalidApiKey)
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
    match state.store.find_api_key(&hash).await? {
        Some(found) if found.state == KeyState::Active => {
            state.key_uses.note(&found, state.store.believed_now());
            let principal = Principal { key: Arc::new(found), audit: None, keyed: None };
            state.keys.remember(hash, principal.clone());
            Ok(principal)
        }
        Some(_) | None => Err(ApiError::InvalidApiKey),
    }
}
