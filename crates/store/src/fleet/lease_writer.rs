//! Writes of a worker under its leases, in group commit over its executions.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::{
    Store, StoreError,
    database::batch::{BatchLimits, Batcher},
    executions::{
        budgets::{BudgetDone, BudgetOp, Reservation, Reserved},
        lease_end::{EndedLease, LeaseEnd},
    },
    fleet::maintenance::Runnable,
    history::journal::{JournalWrite, Recorded},
    human_requests::{HumanRequest, NewHumanRequest},
};
use longhaul_domain::{ExecutionId, WorkerId};
use longhaul_telemetry::metrics::StoreBatch;

/// Maximum executions of one statement.
const MAX_BATCH: usize = 500;

/// The writes of one worker identity, batched over the executions it holds.
#[derive(Debug, Clone)]
pub struct LeaseWriter {
    worker: WorkerId,
    records: Arc<Batcher<JournalWrite, Recorded>>,
    pub(crate) ends: Arc<Batcher<LeaseEnd, EndedLease>>,
    /// Keys of concurrency limits whose slots were cleared.
    pub(crate) freed: Arc<Batcher<BTreeSet<String>, Vec<Runnable>>>,
    requests: Arc<Batcher<NewHumanRequest, HumanRequest>>,
    budgets: Arc<Batcher<BudgetOp, BudgetDone>>,
}

impl LeaseWriter {
    /// Starts batching for `worker`. A write waits up to `patience` for Postgres; it should be longer than any
    /// lease, because the fence decides if a write still counts, not time.
    #[must_use]
    pub fn spawn(store: &Store, worker: WorkerId, patience: Duration) -> Self {
        let limits = |what| BatchLimits { what, max_items: MAX_BATCH, lanes: 2, max_waiting: 20_000, patience };
        let (for_records, for_ends, for_requests) = (store.clone(), store.clone(), store.clone());
        let (for_freed, for_budgets) = (store.clone(), store.clone());
        let trouble = || store.trouble.clone();
        Self {
            worker,
            records: Arc::new(Batcher::spawn(
                limits(StoreBatch::Record),
                trouble(),
                JournalWrite::bytes,
                move |items: Vec<Arc<JournalWrite>>| {
                    let store = for_records.clone();
                    async move { store.record(worker, &items).await }
                },
            )),
            ends: Arc::new(Batcher::spawn(
                limits(StoreBatch::Conclude),
                trouble(),
                LeaseEnd::bytes,
                move |items: Vec<Arc<LeaseEnd>>| {
                    let store = for_ends.clone();
                    async move { store.conclude(worker, &items).await }
                },
            )),
            freed: Arc::new(Batcher::spawn(
                limits(StoreBatch::HandOver),
                trouble(),
                |_| 0,
                move |items: Vec<Arc<BTreeSet<String>>>| {
                    let store = for_freed.clone();
                    async move { Ok(store.hand_over_of(&items).await) }
                },
            )),
            requests: Arc::new(Batcher::spawn(
                limits(StoreBatch::Request),
                trouble(),
                NewHumanRequest::bytes,
                move |items: Vec<Arc<NewHumanRequest>>| {
                    let store = for_requests.clone();
                    async move { store.request(worker, &items).await }
                },
            )),
            budgets: Arc::new(Batcher::spawn(
                limits(StoreBatch::Budget),
                trouble(),
                |_| 0,
                move |items: Vec<Arc<BudgetOp>>| {
                    let store = for_budgets.clone();
                    async move { store.budget_batch(worker, &items).await }
                },
            )),
        }
    }

    #[must_use]
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Commits steps, messages and events.
    ///
    /// # Errors
    /// The lease is lost, the values were refused, or Postgres is unavailable for `patience`.
    pub async fn record(&self, write: impl Into<Arc<JournalWrite>>) -> Result<Recorded, StoreError> {
        self.records.submit(write).await
    }

    /// Creates a request for a call, at most once, and returns its current state, which may be decided.
    ///
    /// # Errors
    /// The lease is lost, the values were refused, or Postgres is unavailable for `patience`.
    pub async fn request(&self, request: NewHumanRequest) -> Result<HumanRequest, StoreError> {
        self.requests.submit(request).await
    }

    /// Reserves a model call in its tree's budget.
    ///
    /// # Errors
    /// The lease is lost, the values were refused, or Postgres is unavailable for `patience`.
    pub async fn reserve(&self, reservation: Reservation) -> Result<Reserved, StoreError> {
        match self.budgets.submit(BudgetOp::Reserve(reservation)).await? {
            BudgetDone::Reserved(reserved) => Ok(reserved),
            BudgetDone::Folded(_) => Err(StoreError::Corrupt("a reservation was answered with a fold".into())),
        }
    }

    /// Applies a tree's settled reservations to its budget, and wakes executions that now fit.
    ///
    /// # Errors
    /// Postgres is unavailable for `patience`.
    pub async fn fold_budget(&self, root: ExecutionId) -> Result<Vec<Runnable>, StoreError> {
        match self.budgets.submit(BudgetOp::Fold(root)).await? {
            BudgetDone::Folded(woken) => Ok(woken),
            BudgetDone::Reserved(_) => Err(StoreError::Corrupt("a fold was answered with a reservation".into())),
        }
    }
}
