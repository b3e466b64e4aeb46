//! Waiting for a condition. A test never sleeps for a guessed time: it names the condition, and fails with the last
//! state seen if the condition does not come about.

use std::fmt::Display;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(5);

/// Enough for anything that should happen "soon", on a machine that has other work and may stand still for seconds.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Polls `condition` until it returns `Ok`, and returns its value. A condition that is not met yet returns the state
/// it saw.
///
/// # Panics
///
/// After `timeout`, with the last state; also if the condition itself hangs.
pub(crate) async fn eventually<T, S: Display>(
    what: &str,
    timeout: Duration,
    mut condition: impl AsyncFnMut() -> Result<T, S>,
) -> T {
    let deadline = Instant::now() + timeout;
    let mut last = "never looked".to_owned();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, condition()).await {
            Ok(Ok(value)) => return value,
            Ok(Err(state)) => last = state.to_string(),
            Err(_) => panic!("{what}: looking hung until the timeout of {timeout:?}; last state: {last}"),
        }
        assert!(Instant::now() < deadline, "{what}: not within {timeout:?}; last state: {last}");
        tokio::time::sleep(POLL).await;
    }
}

/// Awaits `future` for at most `timeout`.
///
/// # Panics
///
/// After `timeout`, naming `what`.
pub(crate) async fn within<T>(what: &str, timeout: Duration, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(timeout, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {timeout:?}"),
    }
}
