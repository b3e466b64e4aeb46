//! The agent-execution contract as a backend and its callers see it, over the real API and, where a run is needed,
//! real workers.

mod access;
mod codes;
mod doors;
mod giving_up;
mod kit;
mod platform;
mod public;
mod refusals;
mod remote;
mod secrets;
mod seed;
mod stream;
mod validation;
