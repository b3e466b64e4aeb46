//! Reads of this process: lists, overviews and other answers that are read with a connection of the pool.
//!
//! Invariant: reads of one tenant never take the whole pool. A tenth of its connections, at least one, stays with
//! tenants that read nothing at the moment. Event streams have places of their own.

use std::time::Duration;

use longhaul_domain::TenantId;
use longhaul_fairness::{FairShare, Share};
use tokio::time::timeout;

use crate::error::{ApiError, ApiResult};

/// Longest wait for a place.
const PATIENCE: Duration = Duration::from_secs(10);

/// Places for the reads of this process.
#[derive(Debug)]
pub(crate) struct Reads(FairShare<TenantId>);

impl Reads {
    /// As many places as the pool has connections.
    pub(crate) fn new(connections: u32) -> Self {
        let connections = u64::from(connections);
        let kept = (connections / 10).max(1);
        Self(FairShare::new(connections.saturating_sub(kept).max(1)).keeping(kept))
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// None is free in time.
    pub(crate) async fn place(&self, tenant: TenantId) -> ApiResult<Share<TenantId>> {
        timeout(PATIENCE, self.0.take(tenant, 1)).await.ok().flatten().ok_or(ApiError::Busy)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn one_tenant_leaves_connections_to_others() {
        for (connections, alone) in [(2, 1), (4, 3), (30, 27)] {
            let reads = Reads::new(connections);
            let tenant = TenantId(Uuid::from_u128(1));
            let mut held = Vec::new();
            while let Some(place) = reads.place(tenant).now_or_never() {
                held.push(place.unwrap());
            }
            assert_eq!(held.len(), alone, "of {connections}");
            assert!(reads.place(TenantId(Uuid::from_u128(2))).now_or_never().is_some(), "of {connections}");
        }
    }
}
