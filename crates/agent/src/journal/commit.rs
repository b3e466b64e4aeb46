//! Writes of an attempt: entries wait for the next commit, and a write with unknown outcome is sent again first.

use std::sync::Arc;

use longhaul_sdk::{Interrupt, Step, StepError};
use longhaul_store::history::journal::{JournalWrite, StepKind};

use super::{Writer, budget::fold_budget, from_store};

impl Writer {
    /// Commits all pending writes.
    ///
    /// # Errors
    /// An interrupt, or a failure of the store.
    pub async fn flush(&mut self) -> Step<()> {
        let is_cancelled = self.resend().await?;
        match self.take_pending() {
            Some(write) => self.commit(Arc::new(write)).await,
            None if is_cancelled => Err(Interrupt::Cancelled.into()),
            None => Ok(()),
        }
    }

    /// Returns the pending writes for the statement that ends the lease, after sending again a write with unknown
    /// outcome.
    ///
    /// # Errors
    /// An interrupt, or a failure of the store while an earlier write is sent again.
    pub async fn last_write(&mut self) -> Step<Option<JournalWrite>> {
        // The end of the lease looks for a cancel itself.
        self.resend().await?;
        Ok(self.take_pending())
    }

    /// Sends a write with unknown outcome again. Returns true if a cancel was requested: pending writes belong to the
    /// record all the same.
    async fn resend(&mut self) -> Step<bool> {
        let Some(write) = self.under_way.take() else { return Ok(false) };
        match self.commit(write).await {
            Ok(()) => Ok(false),
            Err(StepError::Interrupt(Interrupt::Cancelled)) => Ok(true),
            Err(error) => Err(error),
        }
    }

    pub(super) fn has_pending_turn(&self) -> bool {
        self.pending.steps.iter().any(|step| step.kind == StepKind::Turn)
    }

    fn take_pending(&mut self) -> Option<JournalWrite> {
        if self.pending.is_empty() {
            return None;
        }
        let pending = std::mem::take(&mut self.pending);
        Some(JournalWrite {
            id: self.id,
            token: self.control.token,
            write: self.writes + 1,
            steps: pending.steps,
            events: pending.events,
            turns: pending.turns,
            calls: pending.calls,
            settlements: pending.settlements,
        })
    }

    async fn commit(&mut self, write: Arc<JournalWrite>) -> Step<()> {
        self.under_way = Some(write.clone());
        let recorded = self.lease.record(write.clone()).await;
        // The outcome is known now. A refused write leaves its number to the next write.
        self.under_way = None;
        let recorded = recorded.map_err(from_store)?;
        self.writes = write.write;
        if write.is_progress() {
            self.control.clear();
        }
        self.wake_seq = recorded.wake_seq;
        self.deps.publisher.look([self.id]);
        if write.settlements.iter().any(|settlement| !settlement.is_estimate) {
            fold_budget(&self.deps.publisher, &self.lease, self.scope.root).await;
        }
        if recorded.cancel_requested { Err(Interrupt::Cancelled.into()) } else { Ok(()) }
    }
}
