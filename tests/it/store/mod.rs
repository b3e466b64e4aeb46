//! The store's promises, each against a real PostgreSQL.

mod batches;
mod cancels;
mod claims;
mod costs;
mod fences;
mod lost_replies;
mod parking;
mod prune;
mod reaping;
mod sweep;
