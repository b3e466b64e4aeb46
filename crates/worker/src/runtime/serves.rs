//! Serve keys: the requirements of submitted executions, and those that this worker satisfies.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use longhaul_domain::{
    Offers, WorkerId,
    requirements::{is_met, is_other_build},
};
use longhaul_store::{Store, StoreError};
use parking_lot::{Mutex, MutexGuard};

use super::build;

/// Maximum age of the serve keys when a claim finds nothing: a submit may have just added a key, and its wake-up
/// caused the claim.
const SERVES_FRESH: Duration = Duration::from_millis(50);

/// Serve keys that this worker satisfies.
#[derive(Debug)]
pub(crate) struct Serves {
    has: BTreeSet<String>,
    build: String,
    current: Mutex<SatisfiedKeys>,
    /// True if the worker satisfies all serve keys.
    all: Arc<AtomicBool>,
}

#[derive(Debug, Clone)]
struct SatisfiedKeys {
    keys: Arc<Vec<String>>,
    /// Time of the last read; `None` before the first.
    read_at: Option<Instant>,
}

impl Serves {
    /// `has` lists the requirements that this worker satisfies beyond those that all do; `named` is the configured
    /// build name, or empty.
    pub(crate) fn new(has: BTreeSet<String>, named: &str) -> Self {
        let known = SatisfiedKeys { keys: Arc::new(vec![String::new()]), read_at: None };
        Self { has, build: build::of_this_process(named), current: Mutex::new(known), all: Arc::default() }
    }

    pub(crate) fn current(&self) -> Arc<Vec<String>> {
        self.lock().keys.clone()
    }

    /// True while the worker satisfies all serve keys.
    pub(crate) fn all(&self) -> Arc<AtomicBool> {
        self.all.clone()
    }

    /// The names that this worker knows.
    pub(crate) fn offers(&self) -> Vec<String> {
        self.has.iter().filter(|has| Offers::is_one(has)).cloned().collect()
    }

    pub(crate) fn build(&self) -> &str {
        &self.build
    }

    fn lock(&self) -> MutexGuard<'_, SatisfiedKeys> {
        self.current.lock()
    }

    /// Reads the serve keys. Returns true if the satisfied ones changed.
    pub(crate) async fn refresh(&self, store: &Store) -> Result<bool, StoreError> {
        let read_at = Some(Instant::now());
        let keys = store.serve_keys().await?;
        let has = |need: &String| is_other_build(need, &self.build).unwrap_or_else(|| is_met(need, &self.has));
        let there_are = keys.len();
        let satisfied: Vec<_> = keys.into_iter().filter(|(_, needs)| needs.iter().all(has)).collect();
        self.all.store(satisfied.len() == there_are, Ordering::Relaxed);
        let serves: BTreeSet<String> = satisfied.into_iter().map(|(key, _)| key).chain([String::new()]).collect();
        let serves: Vec<String> = serves.into_iter().collect();
        let mut known = self.lock();
        known.read_at = read_at;
        let is_new = *known.keys != serves;
        if is_new {
            known.keys = Arc::new(serves);
        }
        Ok(is_new)
    }

    /// Like `refresh`, and publishes the serve keys of `worker` if they changed.
    pub(crate) async fn refresh_and_publish(&self, store: &Store, worker: WorkerId) -> Result<bool, StoreError> {
        let is_new = self.refresh(store).await?;
        if is_new {
            store.publish_serves(worker, &self.current()).await?;
        }
        Ok(is_new)
    }

    /// Like `refresh_and_publish`, unless the serve keys were read a moment ago. A failure counts as no change.
    pub(crate) async fn refresh_if_stale(&self, store: &Store, worker: WorkerId) -> bool {
        if self.lock().read_at.is_some_and(|at| at.elapsed() < SERVES_FRESH) {
            return false;
        }
        self.refresh_and_publish(store, worker).await.unwrap_or_else(|error| {
            tracing::warn!(error = %error, "serve keys could not be refreshed");
            false
        })
    }
}
