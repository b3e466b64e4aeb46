//! The behaviours of the agent loop, one test each, named for the behaviour and ending in its number (docs/loop.md).

mod approvals;
mod parked;
mod people;
mod questions;
