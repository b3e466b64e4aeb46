//! Trouble with Postgres, as this process meets it: while there is any, claims are held back (core-rules 21).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::StoreError;
use longhaul_shared::telemetry::metrics::{self, StoreBatch};

/// State of the gate before claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimGate {
    /// Statements succeed, and claims pass.
    Open,
    /// The server answers, but refuses statements that are not at fault: now and then one claim tests if it still
    /// does.
    HalfOpen,
    /// No connection can be opened, and no claim passes.
    Closed,
}

/// Writers of one store that are in trouble. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Trouble {
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    refused: AtomicUsize,
    unreachable: AtomicUsize,
}

impl Counts {
    fn of(&self, is_unreachable: bool) -> &AtomicUsize {
        if is_unreachable { &self.unreachable } else { &self.refused }
    }
}

/// One writer in trouble, until it is dropped.
#[derive(Debug)]
pub struct InTrouble {
    trouble: Trouble,
    is_unreachable: bool,
    what: &'static str,
}

impl Trouble {
    /// Records a batch that failed because of the server. `before` is the result of the previous failure.
    pub(crate) fn enter(&self, before: Option<InTrouble>, what: StoreBatch, error: &StoreError) -> InTrouble {
        self.note(before, what.as_str(), error)
    }

    /// As `enter`, for a read, which tells something about the server only if no connection can be had.
    pub fn unreachable(&self, before: Option<InTrouble>, error: &StoreError) -> Option<InTrouble> {
        matches!(error, StoreError::Unreachable(_)).then(|| self.note(before, "read", error))
    }

    fn note(&self, before: Option<InTrouble>, what: &'static str, error: &StoreError) -> InTrouble {
        let is_unreachable = matches!(error, StoreError::Unreachable(_));
        if let Some(before) = before.filter(|before| before.is_unreachable == is_unreachable) {
            return before;
        }
        tracing::warn!(batch = what, error = %error, "statements are repeated until the database takes them");
        self.counts.of(is_unreachable).fetch_add(1, Ordering::Relaxed);
        metrics::store_in_trouble(self.total());
        InTrouble { trouble: self.clone(), is_unreachable, what }
    }

    /// Current state of the gate before claims.
    #[must_use]
    pub fn gate(&self) -> ClaimGate {
        if self.counts.unreachable.load(Ordering::Relaxed) > 0 {
            return ClaimGate::Closed;
        }
        if self.counts.refused.load(Ordering::Relaxed) > 0 { ClaimGate::HalfOpen } else { ClaimGate::Open }
    }

    fn total(&self) -> usize {
        self.counts.unreachable.load(Ordering::Relaxed) + self.counts.refused.load(Ordering::Relaxed)
    }
}

impl Drop for InTrouble {
    fn drop(&mut self) {
        self.trouble.counts.of(self.is_unreachable).fetch_sub(1, Ordering::Relaxed);
        metrics::store_in_trouble(self.trouble.total());
        tracing::info!(batch = self.what, "statements are no longer repeated");
    }
}
