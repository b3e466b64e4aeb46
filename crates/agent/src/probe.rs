//! Named points in the life of an execution. They do nothing unless a test arms them to wait, to fail or to
//! kill the worker.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use longhaul_domain::ExecutionId;

/// A named point of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Point {
    /// The execution is claimed; nothing else has happened.
    Claimed,
    Restored,
    /// The exchanges that a memory update takes are written as episodes; a model has not been asked about them.
    EpisodesWritten,
    /// The model call is about to start.
    BeforeTurn,
    /// The turn is partly committed: one of its calls is about to start while the reply still streams.
    TurnBegun,
    /// The model has replied; nothing is recorded.
    TurnAnswered,
    /// The turn and the intents of its calls are committed.
    TurnRecorded,
    /// The approval request is committed; the execution is not parked yet.
    PutBeforePeople,
    /// A model's answer about the outputs of children is committed; the call that asked for it is not.
    Aggregated,
    /// A tool call is about to run.
    BeforeCall,
    /// The tool call has returned; its result is not recorded.
    CallAnswered,
    /// The tool call's result is committed.
    CallRecorded,
    /// What the model found in the episodes of a memory update is written; the update has not ended.
    GraphWritten,
    /// The outcome of the attempt is decided but not recorded.
    BeforeConclusion,
    /// The end of the lease is committed.
    Concluded,
}

impl Point {
    /// Every point, in the order an attempt passes them.
    pub const ALL: [Self; 15] = [
        Self::Claimed,
        Self::Restored,
        Self::EpisodesWritten,
        Self::BeforeTurn,
        Self::TurnBegun,
        Self::TurnAnswered,
        Self::TurnRecorded,
        Self::PutBeforePeople,
        Self::Aggregated,
        Self::BeforeCall,
        Self::CallAnswered,
        Self::CallRecorded,
        Self::GraphWritten,
        Self::BeforeConclusion,
        Self::Concluded,
    ];
}

type Hook = dyn Fn(Point, ExecutionId) -> BoxFuture<'static, ()> + Send + Sync;

/// The hook that runs at each point, if armed.
#[derive(Clone, Default)]
pub struct Probe(Option<Arc<Hook>>);

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Probe(armed)" } else { "Probe" })
    }
}

impl Probe {
    /// Calls `hook` at every point. The attempt continues when the returned future completes.
    pub fn armed(hook: impl Fn(Point, ExecutionId) -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    /// Runs the hook, if armed.
    pub async fn at(&self, point: Point, execution: ExecutionId) {
        if let Some(hook) = &self.0 {
            hook(point, execution).await;
        }
    }
}
