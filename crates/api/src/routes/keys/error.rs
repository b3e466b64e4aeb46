//! Errors of API keys. Each is a conflict.

use longhaul_store::tenants::key_management::MAX_KEYS;

#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("the tenant has {} API keys, which is as many as there may be", MAX_KEYS)]
    TooMany,
    #[error("the API key was revoked or has expired; create another")]
    NotActive,
}

impl KeyError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::TooMany => "too_many_keys",
            Self::NotActive => "key_not_active",
        }
    }
}
