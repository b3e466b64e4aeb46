//! The store's promises, each against a real PostgreSQL.

mod batches;
mod budgets;
mod cancels;
mod children;
mod claims;
mod costs;
mod fences;
mod lost_replies;
mod parking;
mod people;
mod prune;
mod reaping;
mod slots;
mod sweep;
mod trees;
