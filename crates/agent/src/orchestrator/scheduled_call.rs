//! A call of a reply as the scheduler sees it: declarations, progress and outcome.

use longhaul_domain::CallError;
use longhaul_references::{Instance, Path, PlannedCall};
use longhaul_sdk::spec::Launch;

/// A call whose arguments are complete.
#[derive(Debug)]
pub(crate) struct Streamed {
    /// Id given by the provider.
    pub id: String,
    pub tool: String,
    /// The parsed call; `None` if it cannot run or already has its result.
    pub(crate) planned: Option<PlannedCall>,
    /// Paths that the call declares to write, as far as they can be parsed.
    pub(crate) declares: Vec<Path>,
    /// Instance whose input and state the call uses.
    pub(crate) instance: Option<Instance>,
    pub launch: Launch,
    /// Maximum concurrent calls of its tool.
    pub concurrency: Option<usize>,
    /// True for the final output, which comes after all other calls.
    pub(crate) is_output: bool,
    /// Outcome, if already known.
    pub(crate) fate: Option<Fate>,
}

#[derive(Debug)]
pub(super) enum Progress {
    Pending(PlannedCall),
    Running(PlannedCall),
    Waiting(PlannedCall),
    Done(Fate),
}

/// One call of the reply.
#[derive(Debug)]
pub(super) struct ScheduledCall {
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) declares: Vec<Path>,
    pub(super) instance: Option<Instance>,
    pub(super) launch: Launch,
    pub(super) concurrency: Option<usize>,
    pub(super) is_output: bool,
    /// True if the call is in a cycle of waiting calls and uses its literals instead.
    pub(super) takes_literals: bool,
    pub(super) progress: Progress,
}

impl ScheduledCall {
    pub(super) fn open(&self) -> Option<&PlannedCall> {
        match &self.progress {
            Progress::Pending(planned) | Progress::Running(planned) | Progress::Waiting(planned) => Some(planned),
            Progress::Done(_) => None,
        }
    }

    /// True if the call declares to write at `path`, visibly to a reader of this instance.
    pub(super) fn declares(&self, path: &Path, reader: Option<&Instance>) -> bool {
        let is_seen = self.instance.is_none() || self.instance.as_ref() == reader;
        is_seen && self.declares.iter().any(|declared| declared.is_above_or_below(path))
    }
}

impl From<Streamed> for ScheduledCall {
    fn from(streamed: Streamed) -> Self {
        let Streamed { id, tool, planned, declares, instance, launch, concurrency, is_output, fate } = streamed;
        let progress = match (planned, fate) {
            (Some(planned), None) => Progress::Pending(planned),
            (_, Some(fate)) => Progress::Done(fate),
            (None, None) => Progress::Done(Fate::Failed),
        };
        Self { id, tool, declares, instance, launch, concurrency, is_output, takes_literals: false, progress }
    }
}

/// Reason why a call did not run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Unrun {
    /// The call is invalid; the model receives this error.
    Error(CallError),
    /// The call reads an alternative that its producer did not write.
    UntakenBranch,
    /// The call's condition does not hold.
    UnmetCondition(String),
    /// A later output of the same reply replaces this one.
    Superseded,
}

/// Outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The call has a result.
    Succeeded {
        /// Paths that the result was stored at; may be empty.
        wrote: Vec<Path>,
    },
    /// The call ended with an error.
    Failed,
    /// The call did not run, without an error.
    Skipped,
}
