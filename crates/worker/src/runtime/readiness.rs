//! State of the worker for its health endpoint: starting, ready or draining.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio_util::sync::CancellationToken;

/// Shared by the process, which sets it, and its health endpoint.
#[derive(Debug)]
pub(crate) struct Readiness {
    is_registered: AtomicBool,
    shutdown: CancellationToken,
}

/// Present while the process is registered as a worker.
#[derive(Debug)]
pub(crate) struct Registered(Arc<Readiness>);

impl Readiness {
    pub(crate) fn new(shutdown: CancellationToken) -> Arc<Self> {
        Arc::new(Self { is_registered: AtomicBool::new(false), shutdown })
    }

    pub(crate) fn registered(self: &Arc<Self>) -> Registered {
        self.is_registered.store(true, Ordering::Relaxed);
        Registered(Arc::clone(self))
    }

    /// `starting` until the worker is registered, and again while it has lost its lease; `draining` once it is told to
    /// stop; otherwise `ready`.
    pub(crate) fn state(&self) -> &'static str {
        if self.shutdown.is_cancelled() {
            "draining"
        } else if self.is_registered.load(Ordering::Relaxed) {
            "ready"
        } else {
            "starting"
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.0.is_registered.store(false, Ordering::Relaxed);
    }
}
