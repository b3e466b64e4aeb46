//! The store's promises, each against a real PostgreSQL.

mod cancels;
mod children;
mod fences;
mod lost_replies;
mod parking;
mod reaping;
mod sweep;
mod trees;
