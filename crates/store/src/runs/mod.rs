//! Durable runs (docs/design/runs.md): the model calls of a script outside, each recorded once, so that a script that
//! is started again is answered from the record.
//!
//! Invariants:
//! - One content and occurrence of a run has one execution at a time; one that failed, or whose texts are gone, is
//!   replaced by the next request.
//! - The occurrence begins at 1 with each attempt, and advances only when the answer before was delivered.
//! - An execution and its link are stored in one transaction. A run that has ended makes no calls.

mod calls;
mod end;
mod list;
mod run;

pub use calls::{MAX_ATTEMPTS, MAX_CALLS, MAX_POSITIONS, RunAnswer, RunLimit, RunRequest};
pub use end::RunEnd;
pub use list::{RunCall, RunFilter, RunSummary};
pub use run::{NewRun, Run};
