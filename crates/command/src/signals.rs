//! SIGTERM and SIGINT: the first starts a graceful shutdown, the second ends the command at once.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{Exit, output};

/// Runs `work`. The first signal cancels `shutdown`, upon which `work` should end by itself; the second returns
/// [`Exit::Interrupted`].
///
/// # Errors
/// As for `work`.
pub async fn with_shutdown<F>(shutdown: CancellationToken, work: F) -> anyhow::Result<Exit>
where
    F: Future<Output = anyhow::Result<Exit>>,
{
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut work = Box::pin(work);
    loop {
        tokio::select! {
            ended = &mut work => return ended,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if shutdown.is_cancelled() {
            return Ok(Exit::Interrupted);
        }
        output::note("stopping; once more to stop at once");
        shutdown.cancel();
    }
}
