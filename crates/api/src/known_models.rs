//! What a process remembers for requests over the wires of other clients (`wire/`).

use std::{sync::Arc, time::Duration};

use longhaul_domain::{Offers, RunId, TenantId};
use longhaul_store::{Store, StoreError};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tokio::time::Instant;

/// Age that what is known of the fleet's offers may have.
const REMEMBER: Duration = Duration::from_secs(2);

/// Ids of durable runs by tenant and key.
pub(crate) type KnownRuns = Cache<(TenantId, String), RunId>;

/// The fleet's offers, as this process last read them.
#[derive(Debug, Default)]
pub(crate) struct KnownOffers(Mutex<Option<(Instant, Arc<Offers>)>>);

impl KnownOffers {
    /// # Errors
    /// Postgres is unavailable.
    pub(crate) async fn read(&self, store: &Store) -> Result<Arc<Offers>, StoreError> {
        let known = self.0.lock().clone();
        if let Some((since, offers)) = known
            && since.elapsed() < REMEMBER
        {
            return Ok(offers);
        }
        let since = Instant::now();
        let offers = Arc::new(Offers::read(&store.offers().await?));
        *self.0.lock() = Some((since, offers.clone()));
        Ok(offers)
    }
}
