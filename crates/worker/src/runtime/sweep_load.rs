//! The sweeps of many workers in one process, for `longhaul bench sweep`: the looks that each worker makes every tick,
//! and the duties that they take.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use longhaul_config::WorkerConfig;
use longhaul_llm::health;
use longhaul_store::StoreError;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at},
};

use super::maintenance::{
    reap::reap_once,
    sweep::sweeper,
    sweeper::{DutiesRun, Sweeper},
};
use crate::deps::Deps;

/// Looks and runs of duties since the start.
#[derive(Debug, Clone, Default)]
pub struct SweepCounts {
    /// Looks for due duties, for workers to bury, and at the state of model endpoints: one of each per worker and tick.
    pub looks: u64,
    /// Looks and runs that failed.
    pub failures: u64,
    /// Runs of each duty, by name.
    pub runs: BTreeMap<&'static str, u64>,
}

/// Simulated workers that sweep. Dropping it ends them.
#[derive(Debug)]
pub struct SweepLoad {
    counts: Arc<Mutex<SweepCounts>>,
    _workers: JoinSet<()>,
}

impl SweepLoad {
    pub(crate) fn start(deps: &Arc<Deps>, config: &WorkerConfig, workers: u32) -> Self {
        let counts = Arc::<Mutex<SweepCounts>>::default();
        let (config, started) = (Arc::new(config.clone()), Instant::now());
        let mut tasks = JoinSet::new();
        for worker in 0..workers {
            // Workers do not start together, so their looks are spread over the tick.
            let share = f64::from(worker) / f64::from(workers);
            let ticks = |every: Duration| Ticks { first: started + every.mul_f64(share), every };
            let (sweeps, reaps, refreshes) =
                (ticks(config.sweep_tick), ticks(config.reaper_tick), ticks(health::REFRESH_EVERY));
            let (deps, counts, config) = (deps.clone(), counts.clone(), config.clone());
            let sweeper = tokio::sync::Mutex::new(sweeper(&deps, &config));
            tasks.spawn(async move {
                tokio::join!(
                    sweeps.repeat(&counts, || async { sweeper.lock().await.once().await }),
                    reaps.repeat(&counts, || reap_once(&deps, &config)),
                    refreshes.repeat(&counts, || async { deps.health.refresh().await.map(|()| DutiesRun::default()) }),
                );
            });
        }
        Self { counts, _workers: tasks }
    }

    /// The counts until now.
    #[must_use]
    pub fn counts(&self) -> SweepCounts {
        self.counts.lock().clone()
    }
}

/// The duties of the sweep one by one, for benchmarks and tests: each with what the run before it told.
pub struct Duties {
    sweeper: Sweeper,
    told: Mutex<BTreeMap<String, Value>>,
}

impl Duties {
    pub(crate) fn of(deps: &Arc<Deps>, config: &WorkerConfig) -> Self {
        Self { sweeper: sweeper(deps, config), told: Mutex::default() }
    }

    /// Names of the duties, in the order of their table.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        self.sweeper.names()
    }

    /// Ends the sessions of this worker.
    pub async fn close(self) {
        self.sweeper.close().await;
    }

    /// Runs a duty now, whether it is due or not.
    ///
    /// # Errors
    /// Postgres is unavailable, the duty failed, or there is none of this name.
    pub async fn run(&self, name: &str) -> Result<(), StoreError> {
        let told = || self.told.lock();
        let before = told().get(name).cloned().unwrap_or_default();
        if let Some(next) = self.sweeper.run_one(name, before).await? {
            told().insert(name.to_owned(), next);
        }
        Ok(())
    }
}

struct Ticks {
    first: Instant,
    every: Duration,
}

impl Ticks {
    async fn repeat<F>(self, counts: &Mutex<SweepCounts>, look: impl Fn() -> F)
    where
        F: Future<Output = Result<DutiesRun, StoreError>>,
    {
        let mut tick = interval_at(self.first, self.every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let looked = look().await;
            counts.lock().add(looked);
        }
    }
}

impl SweepCounts {
    fn add(&mut self, looked: Result<DutiesRun, StoreError>) {
        self.looks += 1;
        match looked {
            Ok(DutiesRun { ran, failures }) => {
                self.failures += failures;
                for duty in ran {
                    *self.runs.entry(duty).or_default() += 1;
                }
            }
            Err(error) => {
                self.failures += 1;
                tracing::warn!(error = %error, "a look of a simulated worker failed");
            }
        }
    }
}
