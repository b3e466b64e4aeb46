//! The agent loop, behaviour by behaviour; docs/loop.md lists them by number.

mod approvals;
mod blocking;
mod instances;
mod kit;
mod latent;
mod parked;
mod people;
mod questions;
mod references;
