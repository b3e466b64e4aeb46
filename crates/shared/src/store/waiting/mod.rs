//! Why an execution is where it is: what it waits for, since when, what it stands behind, and what that took lately.
//!
//! Reads only, each bounded: counts stop at a thousand, lists at twenty, history at some hundred rows. Of other tenants nothing is
//! told but numbers.

mod explain;
mod line;
mod standing;

pub use line::COUNT_CAP;
pub use standing::{
    EndpointStanding, Estimate, LastFailure, LimitStanding, LiveWorkers, OpenChild, OpenRequest, PlaceInLine, Waiting,
};
