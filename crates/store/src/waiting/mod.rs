//! Explains the state of an execution: its wait reason, since when it waits, its place in line, and how long such
//! waits took lately.
//!
//! Reads only, each bounded: counts stop at a thousand, lists at twenty, history at some hundred rows. Of other
//! tenants only numbers are shown.

mod explain;
mod line;
mod state;

pub use line::COUNT_CAP;
pub use state::{
    EndpointStanding, Estimate, LastFailure, LimitStanding, LiveWorkers, OpenChild, OpenRequest, PlaceInLine,
    SessionTurn, Waiting,
};
