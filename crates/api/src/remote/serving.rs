//! Serve keys that a remote worker satisfies. A definition that it registered is a requirement that it meets; further
//! ones come and go with quarantine, which keeps executions from a build that they killed.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use longhaul_domain::{
    DefinitionVersionId, ServeKey, WorkerId,
    requirements::{WIRE_REQUIREMENT, is_other_build, remote_requirement},
};
use longhaul_store::{Store, StoreError};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Age at which the serve keys of all executions are read again.
const FRESH: Duration = Duration::from_secs(2);

/// Serve keys that a worker satisfies.
#[derive(Debug)]
pub(crate) struct Serving {
    /// Those of its definitions alone, which it satisfies before the first execution is submitted.
    own: BTreeSet<String>,
    current: Mutex<(Arc<Vec<String>>, Option<Instant>)>,
}

/// Serve keys of these versions of definitions.
pub(crate) fn own_keys(versions: impl IntoIterator<Item = DefinitionVersionId>) -> Vec<String> {
    let keys = versions.into_iter().flat_map(|version| {
        let plain = BTreeSet::from([remote_requirement(version)]);
        let mut over_a_wire = plain.clone();
        over_a_wire.insert(WIRE_REQUIREMENT.to_owned());
        [ServeKey::of(&plain).0, ServeKey::of(&over_a_wire).0]
    });
    keys.collect()
}

impl Serving {
    /// Begins with what the worker's row says.
    pub(crate) fn of(serves: &[String]) -> Self {
        // A single requirement's key is the requirement itself.
        let own = serves.iter().filter(|key| key.starts_with("remote:")).cloned().collect();
        Self { own, current: Mutex::new((Arc::new(serves.to_vec()), None)) }
    }

    /// The serve keys as they are now. Publishes a change.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub(crate) async fn now(
        &self,
        store: &Store,
        (worker, build): (WorkerId, &str),
    ) -> Result<Arc<Vec<String>>, StoreError> {
        let (known, read_at) = self.current.lock().clone();
        if read_at.is_some_and(|at| at.elapsed() < FRESH) {
            return Ok(known);
        }
        let at = Instant::now();
        let meets = |need: &String| is_other_build(need, build).unwrap_or_else(|| self.meets(need));
        let all = store
            .serve_keys()
            .await?
            .into_iter()
            .filter(|(_, needs)| needs.iter().any(|need| need.starts_with("remote:")) && needs.iter().all(meets));
        let keys: BTreeSet<String> = all.map(|(key, _)| key).chain(self.own.iter().cloned()).collect();
        let keys: Vec<String> = keys.into_iter().collect();
        let is_new = *known != keys;
        let keys = if is_new { Arc::new(keys) } else { known };
        if is_new {
            store.publish_serves(worker, &keys).await?;
        }
        *self.current.lock() = (Arc::clone(&keys), Some(at));
        Ok(keys)
    }

    fn meets(&self, need: &str) -> bool {
        need == WIRE_REQUIREMENT || self.own.contains(need)
    }
}
