//! Takes the duties that are due and runs them side by side, few at a time. It knows no duty.
//!
//! A duty that is slow, fails or panics delays no other (core-rules 28): timers wait for no place, the others share
//! some, and one that is still under way is not taken again. What a duty holds up by its locks it holds up for
//! `database.lock_timeout_seconds`.

use std::{collections::HashSet, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures::{FutureExt as _, future::BoxFuture};
use longhaul_store::{StoreError, fleet::duties::DoneDuty, quarantine::QuarantineRules};
use serde_json::Value;
use tokio::{
    sync::{Semaphore, oneshot},
    task::JoinSet,
    time::timeout,
};

use super::pace::{between, failed};
use crate::deps::Deps;

/// Longest run of a duty: all its statements have limits of their own.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Longest wait of a timer for the one before it in the table.
const HEAD_START: Duration = Duration::from_millis(100);
/// Most duties at a time, besides timers. Each may hold a connection of the pool; one is left for timers and attempts.
const MOST_PLACES: usize = 5;

pub(super) type Run = for<'a> fn(&'a Deps, &'a QuarantineRules) -> BoxFuture<'a, Result<(), StoreError>>;
/// Work that is given what the run before told, and tells something itself.
pub(super) type Count = for<'a> fn(&'a Deps, Value) -> BoxFuture<'a, Result<Value, StoreError>>;

/// Work of a duty.
pub(super) enum Work {
    Do(Run),
    /// Looks at a portion of what stands, and returns where the next look goes on.
    Walk(Count),
    /// A count made by one worker and exported by all; it is given the one before.
    Tell(Count, fn(&Value)),
}

/// One duty of the sweep.
pub(super) struct Duty {
    pub(super) name: &'static str,
    /// Minimum period; zero for every tick.
    pub(super) every: Duration,
    pub(super) work: Work,
    pub(super) is_timer: bool,
}

impl Duty {
    async fn run(&self, deps: &Deps, rules: &QuarantineRules, before: Value) -> Result<Option<Value>, StoreError> {
        match self.work {
            Work::Do(run) => run(deps, rules).await.map(|()| None),
            Work::Walk(count) | Work::Tell(count, _) => count(deps, before).await.map(Some),
        }
    }
}

/// Duties that were run.
#[derive(Debug, Default)]
pub(in crate::runtime) struct DutiesRun {
    pub(in crate::runtime) ran: Vec<&'static str>,
    pub(in crate::runtime) failures: u64,
}

/// One run of a duty that has ended.
struct Ended {
    duty: &'static Duty,
    taken_at: DateTime<Utc>,
    period: Duration,
    told: Result<Option<Value>, StoreError>,
}

/// The duties of a table, as one worker takes and runs them. Dropping it ends them.
pub(in crate::runtime) struct Sweeper {
    deps: Arc<Deps>,
    rules: QuarantineRules,
    /// Each duty with the time after which it is due again.
    duties: Vec<(&'static Duty, Duration)>,
    places: Arc<Semaphore>,
    runs: JoinSet<Ended>,
    under_way: HashSet<&'static str>,
    /// Duties that have ended and are not yet recorded.
    done: Vec<DoneDuty<'static>>,
    tally: DutiesRun,
}

impl Sweeper {
    pub(super) fn new(deps: Arc<Deps>, rules: QuarantineRules, duties: &'static [Duty], tick: Duration) -> Self {
        let connections = deps.store.options().max_connections as usize;
        let places = connections.saturating_sub(1).clamp(2, MOST_PLACES);
        let duties = duties.iter().map(|duty| (duty, between(duty.every.max(tick), tick))).collect();
        Self {
            deps,
            rules,
            duties,
            places: Arc::new(Semaphore::new(places)),
            runs: JoinSet::new(),
            under_way: HashSet::new(),
            done: Vec::new(),
            tally: DutiesRun::default(),
        }
    }

    /// Takes the duties that are due and starts them. Waits for none.
    pub(in crate::runtime) async fn look(&mut self) -> Result<(), StoreError> {
        while let Some(Ok(ended)) = self.runs.try_join_next() {
            self.note(ended);
        }
        self.record().await?;
        let is_free = |(duty, _): &&(&'static Duty, Duration)| !self.under_way.contains(duty.name);
        let asked: Vec<(&str, Duration)> =
            self.duties.iter().filter(is_free).map(|(duty, period)| (duty.name, *period)).collect();
        let looked = self.deps.store.take_duties(&asked).await?;
        let mut before = None;
        for (duty, period) in self.duties.clone() {
            let Some(found) = looked.iter().find(|found| found.name == duty.name) else { continue };
            match (found.taken_at, &duty.work, &found.told) {
                (Some(taken_at), _, told) => {
                    let after = if duty.is_timer { before.take() } else { None };
                    let over = self.start(duty, (taken_at, period), told.clone().unwrap_or_default(), after);
                    if duty.is_timer {
                        before = Some(over);
                    }
                }
                (None, Work::Tell(_, show), Some(told)) => show(told),
                (None, _, _) => {}
            }
        }
        Ok(())
    }

    /// Starts a duty. The receiver that it returns ends with the run.
    fn start(
        &mut self,
        duty: &'static Duty,
        (taken_at, period): (DateTime<Utc>, Duration),
        told: Value,
        after: Option<oneshot::Receiver<()>>,
    ) -> oneshot::Receiver<()> {
        let (deps, rules, places) = (self.deps.clone(), self.rules, self.places.clone());
        let (running, over) = oneshot::channel();
        self.under_way.insert(duty.name);
        self.runs.spawn(async move {
            let _running = running;
            if let Some(after) = after {
                let _ = timeout(HEAD_START, after).await;
            }
            let _place = if duty.is_timer { None } else { places.acquire_owned().await.ok() };
            let run = AssertUnwindSafe(duty.run(&deps, &rules, told)).catch_unwind();
            let run = async { run.await.unwrap_or_else(|_| Err(StoreError::Conflict("the duty panicked".into()))) };
            let run = timeout(TIME_LIMIT, deps.store.trouble().on_one_server(run));
            let told = run.await.unwrap_or(Err(StoreError::TimedOut(TIME_LIMIT)));
            Ended { duty, taken_at, period, told }
        });
        over
    }

    /// Waits for the end of one run, and records the ends once no duty is under way. Waits for ever if none is.
    pub(in crate::runtime) async fn ended(&mut self) {
        let Some(Ok(ended)) = self.runs.join_next().await else { return std::future::pending().await };
        self.note(ended);
        if self.runs.is_empty()
            && let Err(error) = self.record().await
        {
            failed("record duties", &error);
        }
    }

    fn note(&mut self, ended: Ended) {
        let Ended { duty, taken_at, period, told } = ended;
        self.under_way.remove(duty.name);
        let told = told.unwrap_or_else(|error| {
            failed(duty.name, &error);
            self.tally.failures += 1;
            None
        });
        if let (Work::Tell(_, show), Some(told)) = (&duty.work, &told) {
            show(told);
        }
        self.tally.ran.push(duty.name);
        self.done.push(DoneDuty { name: duty.name, taken_at, period, told });
    }

    async fn record(&mut self) -> Result<(), StoreError> {
        if !self.done.is_empty() {
            self.deps.store.finish_duties(&self.done).await?;
            self.done.clear();
        }
        Ok(())
    }

    /// One look, and the ends of all that it started.
    pub(in crate::runtime) async fn once(&mut self) -> Result<DutiesRun, StoreError> {
        self.look().await?;
        while !self.runs.is_empty() {
            self.ended().await;
        }
        Ok(std::mem::take(&mut self.tally))
    }

    /// Runs one duty now, whether it is due or not, and returns what it told.
    pub(in crate::runtime) async fn run_one(&self, name: &str, before: Value) -> Result<Option<Value>, StoreError> {
        let found = self.duties.iter().find(|(duty, _)| duty.name == name);
        let (duty, _) = found.ok_or(StoreError::NotFound("duty"))?;
        duty.run(&self.deps, &self.rules, before).await
    }

    pub(in crate::runtime) async fn close(self) {
        self.deps.store.close().await;
    }

    pub(in crate::runtime) fn names(&self) -> Vec<&'static str> {
        self.duties.iter().map(|(duty, _)| duty.name).collect()
    }
}
