//! Ends of leases: finish, fail, retry, park, release. One guarded statement ends a whole batch, each lease with
//! its event.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use longhaul_domain::{ExecutionId, ExecutionStatus, WaitReason, WorkerId};
use uuid::Uuid;

pub use super::lease_end::{AttemptOutcome, Concluded, LeaseEnd, LeaseKey, MAX_OUTPUT_BYTES};
use super::{lease_end::EndedLease, lease_state::lease_state};
use crate::{
    Store, StoreError, database::batch::Flushed, fleet::lease_writer::LeaseWriter, history::journal::WriteContents,
};

impl LeaseWriter {
    /// Commits the end of a lease and hands over its slots.
    ///
    /// # Errors
    /// The lease is lost, the values were refused, or Postgres is unavailable for `patience`.
    pub async fn conclude(&self, end: impl Into<Arc<LeaseEnd>>) -> Result<Concluded, StoreError> {
        let (concluded, freed) = self.ends.submit(end).await?;
        if freed.is_empty() {
            return Ok(concluded);
        }
        // A separate batch, so that ends of executions without a limit do not wait for a limit's row.
        let woken = self.freed.submit(freed).await.unwrap_or_default();
        Ok(Concluded { woken, ..concluded })
    }
}

impl Store {
    /// Ends a batch of leases. Returns one result per item, in order.
    ///
    /// # Errors
    /// Postgres refused an item's value, or is unavailable.
    pub(crate) async fn conclude(
        &self,
        worker: WorkerId,
        items: &[Arc<LeaseEnd>],
    ) -> Result<Vec<Flushed<EndedLease>>, StoreError> {
        let contents = WriteContents::of(items.iter().filter_map(|item| item.write()));
        let mut connection = self.commits.lend().await?;
        let rows = sqlx::query_file!(
            "src/sql/conclude.sql",
            worker.0,
            &items.iter().map(|item| LeaseEnd::clone(item)).collect::<Vec<_>>() as _,
            &contents.steps as _,
            &contents.events as _,
            &contents.settlements as _,
        )
        .fetch_all(&mut *connection)
        .await;
        let rows = connection.back(rows)?;
        let mut ended = HashMap::new();
        for row in rows {
            let freed: BTreeSet<String> = row.slot_keys.into_iter().flatten().collect();
            let mut concluded = concluded(&row.status, row.wait_reason.as_deref(), row.queue, row.parent, row.tokens)?;
            concluded.is_followed = row.is_followed;
            ended.insert(row.id, (concluded, freed));
        }
        let missing: Vec<Uuid> = items.iter().map(|item| item.id().0).filter(|id| !ended.contains_key(id)).collect();
        let states = self.lease_states(&missing).await?;
        let before = self.leases_ended(&missing).await?;
        let mut results = Vec::with_capacity(items.len());
        for item in items {
            results.push(match (ended.remove(&item.id().0), states.get(&item.id().0)) {
                (Some(ended), _) => Flushed::Done(Ok(ended)),
                (None, Some(state)) if let Some(last) = lease_state(worker, item.token(), state) => {
                    // A write that is not the next of its lease never will be.
                    let is_next = item.write().is_none_or(|write| write.write == last + 1);
                    if is_next { Flushed::Locked } else { Flushed::Done(Err(StoreError::LeaseLost)) }
                }
                // Already ended by this lease: the reply to the first write was lost.
                (None, Some(state)) if before.contains(&item.token().0) => {
                    let queue = state.queue.clone();
                    let (reason, tokens) = (state.wait_reason.as_deref(), state.tokens);
                    let concluded = concluded(&state.status, reason, queue, state.parent, tokens);
                    // The freed slots were handed over by that write or by the sweep.
                    Flushed::Done(concluded.map(|concluded| (concluded, BTreeSet::new())))
                }
                (None, _) => Flushed::Done(Err(StoreError::LeaseLost)),
            });
        }
        Ok(results)
    }
}

fn concluded(
    status: &str,
    wait_reason: Option<&str>,
    queue: String,
    parent: Option<ExecutionId>,
    tokens: i64,
) -> Result<Concluded, StoreError> {
    let unknown = |what: &str| StoreError::Corrupt(format!("unknown {what}"));
    Ok(Concluded {
        status: ExecutionStatus::parse(status).ok_or_else(|| unknown("status"))?,
        wait_reason: wait_reason
            .map(|name| WaitReason::parse(name).ok_or_else(|| unknown("wait reason")))
            .transpose()?,
        queue,
        parent,
        is_followed: false,
        tokens,
        woken: Vec::new(),
    })
}
