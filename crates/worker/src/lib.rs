//! The runtime that leases executions and runs the agent loop: models, tools, validators.
//!
//! Read `runtime/attempt.rs` (one attempt) first; the loop is in `longhaul_agent`. An application with
//! definitions, tools or validators in Rust registers them on a [`WorkerBuilder`] and builds its own worker.
//!
//! ```no_run
//! use longhaul_config::{Config, Sources};
//! use longhaul_worker::WorkerBuilder;
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main]
//! # async fn main() -> anyhow::Result<()> {
//! // The stock worker: built-in tools and validators, and no definition in Rust.
//! let config = Config::load(&Sources::of_process(None, Vec::new()))?;
//! WorkerBuilder::new(config).build()?.run(CancellationToken::new()).await?;
//! # Ok(())
//! # }
//! ```

mod agent_definition;
mod builder;
mod contract;
mod credentials;
mod deps;
mod error;
mod memory_update;
mod model_call;
mod runtime;
mod worker;

pub use builder::{BuildError, WorkerBuilder};
pub use error::WorkerError;
pub use runtime::sweep_load::{Duties, SweepCounts, SweepLoad};
pub use worker::Worker;
