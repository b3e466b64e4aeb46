//! Tenants: their API keys and accounts, and the scope that limits every read of the API.

pub mod accounts;
pub mod api_keys;
pub mod audit_log;
pub mod holdings;
pub mod kept_answers;
pub mod key_management;
pub mod scope;
