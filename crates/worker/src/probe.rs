//! Named points in the life of an execution. They do nothing unless a test arms them: a test waits at one, fails at one, or
//! kills the worker there.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use longhaul_shared::domain::ExecutionId;

/// A point that an attempt passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Point {
    /// Claimed, nothing done yet.
    Claimed,
    /// The journal is loaded.
    Restored,
    /// About to ask the model.
    BeforeTurn,
    /// The turn is committed in part: a call of it is about to start, and its reply still streams.
    TurnBegun,
    /// The model answered; nothing is recorded.
    TurnAnswered,
    /// The turn, with the intents of its calls, is committed.
    TurnRecorded,
    /// A call is put before people; nobody waits for them yet.
    PutBeforePeople,
    /// About to run a call.
    BeforeCall,
    /// The call ran; nothing is recorded.
    CallAnswered,
    /// The call's result is committed.
    CallRecorded,
    /// The attempt is decided; nothing is recorded.
    BeforeConclusion,
    /// The end of the lease is committed.
    Concluded,
}

impl Point {
    /// Every point, in order.
    pub const ALL: [Self; 12] = [
        Self::Claimed,
        Self::Restored,
        Self::BeforeTurn,
        Self::TurnBegun,
        Self::TurnAnswered,
        Self::TurnRecorded,
        Self::PutBeforePeople,
        Self::BeforeCall,
        Self::CallAnswered,
        Self::CallRecorded,
        Self::BeforeConclusion,
        Self::Concluded,
    ];
}

type Hook = dyn Fn(Point, ExecutionId) -> BoxFuture<'static, ()> + Send + Sync;

/// What happens at the points.
#[derive(Clone, Default)]
pub struct Probe(Option<Arc<Hook>>);

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Probe(armed)" } else { "Probe" })
    }
}

impl Probe {
    /// Calls `hook` at every point; the attempt goes on when its future ends.
    pub fn armed(hook: impl Fn(Point, ExecutionId) -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    pub(crate) async fn at(&self, point: Point, execution: ExecutionId) {
        if let Some(hook) = &self.0 {
            hook(point, execution).await;
        }
    }
}
