//! API keys that were used recently, so that not every request reads Postgres.

use std::{fmt, time::Duration};

use quick_cache::sync::Cache;
use tokio::time::Instant;

use crate::auth::Principal;

/// Time to live of a cached key. Half of the promised 10 s, because a look-up may itself take a while.
const REMEMBER: Duration = Duration::from_secs(5);
const MAX_REMEMBERED: usize = 10_000;

/// Recently used keys by HMAC, each with the time of its last change here.
pub(crate) struct KeyCache(Cache<Vec<u8>, (Instant, Cached)>);

#[derive(Clone)]
enum Cached {
    Known(Principal),
    /// Dropped. A look-up that began before is out of date.
    Forgotten,
}

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
        match self.0.get(hash)? {
            (since, Cached::Known(principal)) if since.elapsed() < REMEMBER => Some(principal),
            (_, Cached::Known(_) | Cached::Forgotten) => None,
        }
    }

    /// Drops a cached key, so that its next use reads Postgres.
    pub(crate) fn forget(&self, hash: &[u8]) {
        self.0.insert(hash.to_vec(), (Instant::now(), Cached::Forgotten));
    }

    /// Keeps what a look-up found that began at `asked`, unless the key was dropped since.
    pub(crate) fn remember(&self, hash: Vec<u8>, asked: Instant, principal: Principal) {
        let is_outdated =
            self.0.peek(&hash).is_some_and(|(since, cached)| matches!(cached, Cached::Forgotten) && since >= asked);
        if !is_outdated {
            self.0.insert(hash, (Instant::now(), Cached::Known(principal)));
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_domain::{ApiKeyId, TenantId};
    use longhaul_store::tenants::{
        api_keys::{ApiKey, KeyState},
        audit_log::ActorKind,
    };
    use uuid::Uuid;

    use super::*;

    fn principal() -> Principal {
        Principal::new(ApiKey {
            id: ApiKeyId(Uuid::nil()),
            tenant_id: TenantId(Uuid::nil()),
            org_id: "acme".into(),
            group_id: None,
            name: "a key".into(),
            prefix: "lh_".into(),
            scopes: Vec::new().into(),
            state: KeyState::Active,
            created_at: chrono::DateTime::UNIX_EPOCH,
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
            replaced_by: None,
            sessions_ended_at: None,
            actor: ActorKind::Key,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn look_up_under_way_survives_no_drop() {
        let (cache, hash) = (KeyCache::default(), vec![1]);
        let asked = Instant::now();
        cache.forget(&hash);
        cache.remember(hash.clone(), asked, principal());
        assert!(cache.get(&hash).is_none(), "it was read before the key was dropped");
        tokio::time::advance(Duration::from_millis(1)).await;
        cache.remember(hash.clone(), Instant::now(), principal());
        assert!(cache.get(&hash).is_some());
        tokio::time::advance(REMEMBER).await;
        assert!(cache.get(&hash).is_none(), "it is read again");
    }
}
