//! Authenticates callers by bearer API key; browsers by the session that such a key began.
//!
//! Invariants: a revoked or expired key stops working when the cache (`key_cache.rs`) has dropped it, and at once for
//! what leaves a row in the audit log, for which the key is read anew; a caller sees only its own tenant, unless its
//! key has the scope `admin` and the request names another.

mod authenticate;
mod principal;

pub(crate) use authenticate::{Age, Reader, authenticate, by_hash, by_id, key_hash};
pub(crate) use principal::Principal;
