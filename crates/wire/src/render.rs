//! What all wires have in common: an object and frames, made from the moments of a run alone.

use serde_json::Value;

use crate::{Fault, Frame, Moment};

/// A stream that cannot go on: what was told cannot be taken back, or the run failed. The connection is to be broken
/// after these frames, because a stream that merely ends is taken for a whole answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Broken {
    pub frames: Vec<Frame>,
}

/// An answer of a run, as a wire tells it.
pub trait Render: Send {
    /// The frames before the first moment.
    fn begin(&mut self) -> Vec<Frame>;

    /// The frames that a moment adds, which happened `at` this time in seconds since 1970. An answer told whole takes
    /// the moments likewise, whatever this returns.
    ///
    /// # Errors
    /// The stream cannot go on.
    fn push(&mut self, moment: &Moment, at: i64) -> Result<Vec<Frame>, Broken>;

    /// The whole answer, as it stands.
    fn object(&self) -> Value;

    /// True if nothing follows.
    fn is_over(&self) -> bool;

    /// True if the wire's own answers tell of a failure; otherwise [`failure`](Self::failure) is answered instead.
    fn failure_is_told(&self) -> bool;

    /// True if the wire tells the results of calls that workers ran.
    fn tells_results(&self) -> bool {
        false
    }

    /// The error of a run that failed, on a wire whose answers cannot say so.
    fn failure(&self) -> Option<Fault> {
        None
    }
}
