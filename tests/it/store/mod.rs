//! Tests of the store's guarantees against a real PostgreSQL.

mod audit;
mod batches;
mod budgets;
mod cancels;
mod children;
mod claims;
mod connections;
mod costs;
mod counted;
mod expiry;
mod fences;
mod lost_replies;
mod managed_server;
mod model;
mod parking;
mod people;
mod plans;
mod pooler;
mod provider_limits;
mod providers;
mod prune;
mod quarantine;
mod reaping;
mod slots;
mod sweep;
mod trees;
