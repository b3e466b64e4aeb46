//! API keys as the API shows them.

use chrono::{DateTime, Utc};
use longhaul_store::tenants::api_keys::{ApiKey, IssuedKey};
use secrecy::ExposeSecret;
use serde::Serialize;
use utoipa::ToSchema;

use crate::openapi::closed;

/// An API key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeyView {
    #[schema(example = "8a6e0804-2bd0-4672-b79d-d97027f9071a")]
    id: String,
    org_id: String,
    group_id: Option<String>,
    name: String,
    /// Its characters after `lh_`, by which people recognise it.
    #[schema(example = "x7Kq2LmN")]
    prefix: String,
    #[schema(value_type = Vec<closed::KeyScope>)]
    scopes: Vec<&'static str>,
    #[schema(value_type = closed::KeyState)]
    state: &'static str,
    created_at: DateTime<Utc>,
    expires_at: Option<DateTime<Utc>>,
    revoked_at: Option<DateTime<Utc>>,
    /// Last use, exact to about a minute.
    last_used_at: Option<DateTime<Utc>>,
    /// Key that the newest rotation made in its place.
    replaced_by: Option<String>,
}

impl From<ApiKey> for KeyView {
    fn from(key: ApiKey) -> Self {
        Self {
            id: key.id.to_string(),
            state: key.state.as_str(),
            org_id: key.org_id,
            group_id: key.group_id,
            name: key.name,
            prefix: key.prefix,
            scopes: key.scopes.iter().map(|scope| scope.as_str()).collect(),
            created_at: key.created_at,
            expires_at: key.expires_at,
            revoked_at: key.revoked_at,
            last_used_at: key.last_used_at,
            replaced_by: key.replaced_by.map(|id| id.to_string()),
        }
    }
}

/// API keys, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeyPage {
    pub(super) keys: Vec<KeyView>,
    /// Value of `cursor` for the next page; null at the end.
    pub(super) next_cursor: Option<String>,
}

/// A new API key with its secret, which no other answer shows.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeySecretView {
    #[serde(flatten)]
    view: KeyView,
    /// The key; null in a repeat under the same `Idempotency-Key`.
    #[schema(example = "lh_x7Kq2LmN_1zZ…")]
    key: Option<String>,
    /// In a repeat, the reason why the secret is not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    withheld: Option<String>,
}

impl KeySecretView {
    pub(super) fn of(key: ApiKey, issued: &IssuedKey) -> Self {
        Self { view: key.into(), key: Some(issued.key.expose_secret().to_owned()), withheld: None }
    }
}
