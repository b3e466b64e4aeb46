//! Shared needs of the commands of the `longhaul` program: the global flags, the exit codes, output, signals, a
//! runtime.

pub mod context;
pub mod env_file;
mod exit;
pub mod output;
pub mod run;
pub mod signals;
pub mod times;

pub use self::{
    context::Context,
    exit::{EXIT_CODES, Exit},
};
