//! Reasons to wait: concurrency limits, formats that no live worker knows, and the explanation of one execution: its
//! wait reason, since when it waits, its place in line, and how long such waits took lately.
//!
//! The explanation reads only, and each read is bounded: counts stop at a thousand, lists at twenty, history at some
//! hundred rows. Of other tenants only numbers are shown.

mod explain;
pub(crate) mod formats;
mod line;
pub mod slots;
mod state;

pub use line::COUNT_CAP;
pub use state::{
    EndpointStanding, Estimate, LastFailure, LimitStanding, LiveWorkers, OpenChild, OpenRequest, PlaceInLine,
    SessionTurn, Waiting,
};
