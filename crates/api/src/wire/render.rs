//! One face of the wires' renderers, so that answers are followed, streamed and delivered in one place.

use longhaul_wire::{Fault, Frame, Moment};
use serde_json::Value;

/// A stream that cannot be told to its end: its connection is broken, so that no client takes it for whole.
#[derive(Debug, Default)]
pub(super) struct Broken {
    /// Frames that its reader gets before that.
    pub(super) last: Vec<Frame>,
}

/// Makes a wire's object and frames from moments alone.
pub(super) trait Render: Send {
    /// Frames before the first moment.
    fn begin(&mut self) -> Vec<Frame>;

    /// Frames of a moment at a time in seconds since 1970.
    ///
    /// # Errors
    /// What was sent cannot be taken back, or the run failed and the wire has no frame that says so.
    fn push(&mut self, moment: &Moment, at: i64) -> Result<Vec<Frame>, Broken>;

    /// The whole answer, as it stands.
    fn object(&self) -> Value;

    /// True once the answer is complete.
    fn is_over(&self) -> bool;

    /// True if streams of this wire tell of a failure themselves.
    fn failure_is_told(&self) -> bool;

    /// The error that stands for the answer of a run that failed, on a wire whose answers cannot say so.
    fn failure(&self) -> Option<Fault> {
        None
    }
}
