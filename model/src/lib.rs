//! The lease, claim, outcome and park protocol as a model that stateright checks exhaustively
//! (docs/design/model.md).
//!
//! Reading order: [`rows`] is the contents of Postgres; [`statement`] has the store's statements, `locks` their
//! locks and `writes` their writes; [`machine`] has their senders and the faults; [`properties`] has the
//! properties. A [`Scenario`] bounds a run; a [`Broken`] rule makes a twin that must fail. [`sessions`] is a model of
//! its own.

pub mod check;
mod locks;
pub mod machine;
mod normal;
mod process;
pub mod properties;
pub mod rows;
pub mod scenario;
pub mod sessions;
pub mod statement;
mod writes;

pub use check::{Checked, check};
pub use machine::{Action, Machine};
pub use scenario::{Broken, Scenario, Work};
