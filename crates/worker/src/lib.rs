//! The runtime that leases executions and runs the agent loop: models, tools, validators.
//!
//! Read `runtime/attempt.rs` (one attempt) and `agent/run.rs` (the loop) first. An application with
//! definitions, tools or validators in Rust registers them on a [`WorkerBuilder`] and builds its own worker.
//!
//! ```no_run
//! use longhaul_shared::config::{Config, Sources};
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

mod agent;
mod agent_definition;
mod builder;
mod contract;
mod deps;
pub mod llm;
pub mod probe;
mod runtime;
mod store_retry;
pub mod tools;
pub mod validators;

pub use builder::{BuildError, Worker, WorkerBuilder, WorkerError};
use longhaul_queue::{QueueName, producer::WakeupPublisher};
use longhaul_shared::domain::{ExecutionId, WaitReason};
pub use runtime::sweep_load::{SweepCounts, SweepLoad};

/// Publishes a wake-up for an execution that is runnable again. A lost wake-up only delays the execution.
pub(crate) fn wake(publisher: &WakeupPublisher, queue: &str, id: ExecutionId, waits_for: Option<WaitReason>) {
    if waits_for == Some(WaitReason::Worker)
        && let Ok(queue) = QueueName::new(queue)
    {
        publisher.publish(&queue, id.0, 1);
    }
}
