//! The store's promises, each against a real PostgreSQL.

mod cancels;
mod fences;
mod lost_replies;
mod parking;
mod people;
mod reaping;
mod sweep;
