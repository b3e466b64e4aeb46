//! Permits for the calls of one process: a limit over all tools, and one for each tool with a limit of its own.
//!
//! A call waits for its permits inside its own future, so that journaling, the other calls and the stream continue.
//! Dropping the future returns its permits and its place in the queue.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Semaphores shared by all calls of a process.
#[derive(Debug, Clone)]
pub struct CallPermits {
    all: Arc<Semaphore>,
    by_tool: Arc<BTreeMap<String, Arc<Semaphore>>>,
}

/// Permit to run one call; returned when dropped.
#[derive(Debug)]
pub(super) struct CallPermit {
    _of_tool: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl CallPermits {
    /// Allows `max` concurrent calls, and of each tool in `limits` at most its own number.
    pub fn new(max: usize, limits: &BTreeMap<String, usize>) -> Self {
        let by_tool = limits.iter().map(|(tool, limit)| (tool.clone(), Arc::new(Semaphore::new(*limit)))).collect();
        Self { all: Arc::new(Semaphore::new(max)), by_tool: Arc::new(by_tool) }
    }

    /// Waits until a call of `tool` may run.
    pub(super) async fn acquire(&self, tool: &str) -> CallPermit {
        // The tool's permit first: a call that waits for its own tool must not hold a permit that other tools need.
        // Neither semaphore is ever closed; if one were, running without a permit is the lesser harm.
        let of_tool = match self.by_tool.get(tool) {
            Some(semaphore) => Arc::clone(semaphore).acquire_owned().await.ok(),
            None => None,
        };
        CallPermit { _of_tool: of_tool, _of_all: Arc::clone(&self.all).acquire_owned().await.ok() }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn waiting_call_holds_no_process_permit() {
        let permits = CallPermits::new(2, &BTreeMap::from([("slow".to_owned(), 1)]));
        let first = permits.acquire("slow").await;
        let mut second = Box::pin(permits.acquire("slow"));
        assert!(second.as_mut().now_or_never().is_none());
        let other = permits.acquire("other").now_or_never().expect("the last permit of the process");
        let mut third = Box::pin(permits.acquire("other"));
        assert!(third.as_mut().now_or_never().is_none(), "two run");
        drop(other);
        let third = third.await;
        let mut last = Box::pin(permits.acquire("slow"));
        assert!(last.as_mut().now_or_never().is_none());
        drop(second);
        drop((first, third));
        last.now_or_never().expect("nobody is before it any more");
    }
}
