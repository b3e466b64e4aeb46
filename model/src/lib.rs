//! The lease, claim, outcome and park protocol as a model that stateright checks exhaustively (docs/adr/0010-model-of-the-core.md).
//!
//! Read in this order: [`rows`] is what Postgres holds, [`statement`] is what the store's statements ask for and `locks` how
//! they get it, `writes` is what they do to it,
//! [`machine`] is who sends them and what can go wrong, [`properties`] is what must hold. A [`Scenario`] bounds a run; a
//! [`Broken`] rule makes a twin that must fail.

pub mod check;
mod locks;
pub mod machine;
mod normal;
mod process;
pub mod properties;
pub mod rows;
pub mod scenario;
pub mod statement;
mod writes;

pub use check::{Checked, check};
pub use machine::{Action, Machine};
pub use scenario::{Broken, Scenario, Work};
