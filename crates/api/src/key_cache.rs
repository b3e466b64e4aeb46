//! API keys that were used recently, so that not every request reads Postgres.

use std::{fmt, time::Duration};

use quick_cache::sync::Cache;
use tokio::time::Instant;

use crate::auth::Principal;

/// Time to live of a cached key. Half of the promised 10 s, because a look-up may itself take a while.
const REMEMBER: Duration = Duration::from_secs(5);
const MAX_REMEMBERED: usize = 10_000;

/// Recently used keys by HMAC.
pub(crate) struct KeyCache(Cache<Vec<u8>, (Instant, Principal)>);

impl fmt::Debug for KeyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyCache")
    }
}

impl Default for KeyCache {
    fn default() -> Self {
        Self(Cache::new(MAX_REMEMBERED))
    }
}

impl KeyCache {
    pub(crate) fn get(&self, hash: &[u8]) -> Option<Principal> {
        self.0.get(hash).filter(|(since, _)| since.elapsed() < REMEMBER).map(|(_, principal)| principal)
    }

    /// Drops a cached key, so that its next use reads Postgres.
    pub(crate) fn forget(&self, hash: &[u8]) {
        self.0.remove(hash);
    }

    pub(crate) fn remember(&self, hash: Vec<u8>, principal: Principal) {
        self.0.insert(hash, (Instant::now(), principal));
    }
}
