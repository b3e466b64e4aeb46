//! Waiting for Postgres where an attempt can do nothing without it.

use std::time::Duration;

use longhaul_shared::store::{StoreError, trouble::Trouble};

/// The first pause, doubled up to the second.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Repeats what may be repeated while Postgres is away or overloaded, and while a lease that ran out meanwhile waits for its renewal:
/// that is no failure of the execution and spends none of its retries. The caller's interrupt ends the wait.
pub(crate) async fn patiently<T, F: Future<Output = Result<T, StoreError>>>(
    trouble: &Trouble,
    ask: impl Fn() -> F,
) -> Result<T, StoreError> {
    let (mut pause, mut in_trouble) = (PAUSE, None);
    loop {
        match ask().await {
            Err(error) if error.is_retryable() => {
                tracing::debug!(error = %error, "a statement is repeated: the database is unavailable");
                in_trouble = trouble.unreachable(in_trouble, &error);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            result => return result,
        }
    }
}
