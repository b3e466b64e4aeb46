//! The limit on the reactions of a process at a time.

use tokio::sync::Semaphore;

/// Subjects of all reactions at a time, in each line: each takes a connection of the pool.
pub(super) const AT_A_TIME: usize = 2;
const AGAIN_AT_A_TIME: usize = 1;

/// The reactions of a process at a time. The lines share nothing, so that the first never waits for the second.
#[derive(Debug)]
pub(crate) struct Reactors {
    pub(super) first: Semaphore,
    pub(super) again: Semaphore,
}

impl Default for Reactors {
    fn default() -> Self {
        Self { first: Semaphore::new(AT_A_TIME), again: Semaphore::new(AGAIN_AT_A_TIME) }
    }
}
