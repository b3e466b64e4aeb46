//! Accounts as the API shows them.

use chrono::{DateTime, Utc};
use longhaul_store::tenants::accounts::Account;
use serde::Serialize;
use utoipa::ToSchema;

use crate::openapi::closed;

/// A person who signed in with an OpenID Connect provider.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AccountView {
    #[schema(example = "8a6e0804-2bd0-4672-b79d-d97027f9071a")]
    id: String,
    org_id: String,
    group_id: Option<String>,
    name: String,
    email: Option<String>,
    /// Roles as of the newest sign-in.
    #[schema(value_type = Vec<closed::Role>)]
    roles: Vec<String>,
    /// The provider.
    issuer: String,
    /// Identifier of the person at the provider.
    subject: String,
    created_at: DateTime<Utc>,
    /// Newest sign-in.
    signed_in_at: DateTime<Utc>,
    /// Since then the person cannot sign in.
    disabled_at: Option<DateTime<Utc>>,
}

impl From<Account> for AccountView {
    fn from(account: Account) -> Self {
        Self {
            id: account.id.to_string(),
            org_id: account.org_id,
            group_id: account.group_id,
            name: account.name,
            email: account.email,
            roles: account.roles,
            issuer: account.issuer,
            subject: account.subject,
            created_at: account.created_at,
            signed_in_at: account.signed_in_at,
            disabled_at: account.disabled_at,
        }
    }
}

/// Accounts by id.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AccountPage {
    pub(super) accounts: Vec<AccountView>,
    /// Value of `after` for the next page; null at the end.
    pub(super) next_after: Option<String>,
}
