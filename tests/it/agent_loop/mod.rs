//! The agent loop, behaviour by behaviour; docs/guide/loop.md lists them by number.

mod approvals;
mod blocking;
mod detached;
mod durability;
mod errors;
mod every_point;
mod instances;
pub(crate) mod kit;
mod latent;
mod limits;
mod parked;
pub(crate) mod people;
mod questions;
mod references;
mod secrets;
mod streaming;
mod termination;
mod twins;
