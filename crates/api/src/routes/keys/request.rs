//! Bodies of requests about API keys.

use chrono::{DateTime, Utc};
use longhaul_domain::Role;
use longhaul_store::tenants::{accounts::scopes_of, api_keys::Scope};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    body::NO_NUL,
    error::{ApiError, ApiResult},
};

/// An API key to create.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyBody {
    /// Name for people.
    #[schemars(length(min = 1, max = 100), regex(pattern = NO_NUL))]
    pub(super) name: String,
    /// Scopes, each of which the asking key must have: `executions:read`, `executions:write`, `approvals:decide`,
    /// `definitions:read`, `definitions:write`, `keys:write`, `audit:read`, `admin`.
    #[schemars(length(min = 1, max = 20))]
    scopes: Option<Vec<String>>,
    /// Roles whose scopes the key has as well: `viewer`, `operator`, `approver`, `admin`, `superadmin`. The key keeps
    /// the scopes that they have now.
    #[schemars(length(min = 1, max = 5))]
    roles: Option<Vec<String>>,
    /// End of the key; none when absent. A key that ends gives its own end to the keys it creates, unless they end
    /// earlier.
    pub(super) expires_at: Option<DateTime<Utc>>,
    /// Organisation of the key; the caller's tenant when absent. Needs the scope `admin`.
    #[schemars(length(min = 1, max = 200), regex(pattern = NO_NUL))]
    pub(super) org_id: Option<String>,
    /// Group of the key within `org_id`.
    #[schemars(length(min = 1, max = 200), regex(pattern = NO_NUL))]
    pub(super) group_id: Option<String>,
}

impl KeyBody {
    /// The scopes, those of the roles included; sorted, without doubles.
    ///
    /// # Errors
    /// One is unknown, or there is none.
    pub(super) fn scopes(&self) -> ApiResult<Vec<Scope>> {
        if self.scopes.is_none() && self.roles.is_none() {
            return Err(ApiError::invalid("/scopes", "is required, unless there are `roles`"));
        }
        let scopes = named(self.scopes.as_deref(), "scopes", Scope::parse)?;
        Ok(scopes_of(&named(self.roles.as_deref(), "roles", Role::parse)?, &scopes))
    }
}

/// The values of a list of names.
///
/// # Errors
/// One is unknown.
fn named<T>(names: Option<&[String]>, field: &str, parse: fn(&str) -> Option<T>) -> ApiResult<Vec<T>> {
    let known = |(i, name): (usize, &String)| {
        parse(name).ok_or_else(|| ApiError::invalid(format!("/{field}/{i}"), format!("`{name}` is none of {field}")))
    };
    names.unwrap_or_default().iter().enumerate().map(known).collect()
}

/// A rotation.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyRotationBody {
    /// Time for which the old key is still accepted, in seconds, up to 30 days; a day when absent.
    #[schemars(range(max = 2_592_000))]
    pub(super) overlap_seconds: Option<u32>,
    /// End of the new key; that of the old one when absent.
    pub(super) expires_at: Option<DateTime<Utc>>,
}
