//! Errors that stop a worker.

use std::net::SocketAddr;

use longhaul_queue::QueueError;
use longhaul_store::StoreError;

/// Errors that stop a running worker. The process should exit with a failure and be restarted.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Registered definitions or agents cannot be published to Postgres.
    #[error("the worker's definitions could not be published")]
    Publish(#[source] StoreError),
    /// The Postgres server may lose acknowledged writes, for example with `fsync` off.
    #[error("the Postgres server is not safe to work on")]
    UnsafeServer(#[source] StoreError),
    /// The heartbeat thread could not be started.
    #[error("the heartbeat could not be started")]
    Heartbeat(#[source] std::io::Error),
    /// The metrics server cannot listen on its address.
    #[error("the metrics cannot be served at {address}")]
    Metrics {
        /// `worker.metrics_listen`.
        address: SocketAddr,
        source: std::io::Error,
    },
    /// The queue consumer ended.
    #[error("the worker stopped consuming")]
    Queue(#[source] QueueError),
}
