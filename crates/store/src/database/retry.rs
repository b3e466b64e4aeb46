//! Repeats store operations while Postgres is unavailable.

use std::time::Duration;

use crate::{StoreError, database::outage::Trouble};

/// Backoff: starts at `PAUSE` and doubles up to `PAUSE_MAX`.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Repeats `ask` with exponential backoff while its error is retryable: Postgres is unreachable or overloaded,
/// or the lease expired meanwhile and awaits renewal. This is not a failure of the execution and spends no
/// retries. The loop has no limit; the caller's interrupt cancels it by dropping the future.
///
/// # Errors
/// The first error that is not retryable.
pub async fn patiently<T, F: Future<Output = Result<T, StoreError>>>(
    trouble: &Trouble,
    ask: impl Fn() -> F,
) -> Result<T, StoreError> {
    let (mut pause, mut in_trouble) = (PAUSE, None);
    loop {
        match trouble.on_one_server(ask()).await {
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
