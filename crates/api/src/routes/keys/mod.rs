//! `/v1/keys`: API keys of the caller's tenant, or of others for a key with the scope `admin`.
//!
//! Invariant: no key gives more than it has. A new key, also one of a rotation, has no scope that the asking key lacks,
//! and ends no later than that.

pub(crate) mod create;
mod error;
pub(crate) mod holdings;
pub(crate) mod list;
mod request;
pub(crate) mod revoke;
pub(crate) mod rotate;
mod view;

use chrono::{DateTime, Utc};
use longhaul_domain::ApiKeyId;
use longhaul_store::tenants::{api_keys::Scope, key_management::Issue};
use uuid::Uuid;

pub(crate) use error::KeyError;
pub(crate) use request::{KeyBody, KeyRotationBody};

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    state::ApiState,
};

/// The id in the path. A malformed one is not found.
fn id(text: &str) -> ApiResult<ApiKeyId> {
    Uuid::parse_str(text).map(ApiKeyId).map_err(|_| ApiError::NotFound("API key"))
}

/// # Errors
/// The caller lacks a scope that it would give.
fn holds_all(principal: &Principal, scopes: &[Scope]) -> ApiResult<()> {
    scopes.iter().try_for_each(|scope| principal.need(*scope))
}

/// The end of a new key: as asked, else `otherwise`, else that of the asking key.
///
/// # Errors
/// It is past, or later than the end of the asking key.
fn end(
    state: &ApiState,
    principal: &Principal,
    asked: Option<DateTime<Utc>>,
    otherwise: Option<DateTime<Utc>>,
) -> ApiResult<Option<DateTime<Utc>>> {
    let invalid = |why: &str| Err(ApiError::invalid("/expires_at", why));
    if asked.is_some_and(|end| end <= state.store.believed_now()) {
        return invalid("is in the past");
    }
    let Some(own) = principal.key().expires_at else { return Ok(asked.or(otherwise)) };
    if asked.is_some_and(|end| end > own) {
        return invalid("is later than the end of the key that asks");
    }
    Ok(Some(asked.or(otherwise).map_or(own, |end| end.min(own))))
}

/// The issued key.
fn issued(issue: Issue) -> ApiResult<longhaul_store::tenants::api_keys::IssuedKey> {
    match issue {
        Issue::Issued(key) => Ok(key),
        Issue::TooMany => Err(KeyError::TooManyKeys.into()),
        Issue::NotActive => Err(KeyError::KeyNotActive.into()),
    }
}
