//! Tests of the API as its callers use it, arranged like its URLs.

mod access;
mod audit;
mod batch;
mod budget;
mod cancel;
mod definitions;
pub(crate) mod erase;
mod events;
pub(crate) mod files;
mod fleet;
mod fork;
mod keys;
mod limits;
mod list;
mod many_streams;
mod operation;
mod people;
mod providers;
mod quarantine;
mod refusals;
mod retry;
mod shares;
mod submit;
mod usage;
mod wait;
mod waiting;
mod workers;
