//! One run from the service's side: starts a warden, sends it the setup and the request, and waits for its report.
//!
//! Invariant: when [`run`] returns, the warden is gone, and with it every process it started. Dropping the future
//! is safe (the warden sees the connection close) but the processes may outlive the drop, so callers cancel and let
//! it run to its end.

use std::{io, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::UnixStream,
    process::{Child, Command},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    frames,
    options::Options,
    setup::{Limit, Report, Setup},
};

/// Time the warden may take beyond the code's own: to start, to kill, to clean up.
const AROUND: Duration = Duration::from_secs(20);
/// Time the warden may take to exit after it has answered or its connection was closed.
const TO_END: Duration = Duration::from_secs(15);
/// Exit status that shells report for a killed process.
const KILLED: i32 = 137;

/// Outcome of a run.
#[derive(Debug)]
pub(crate) struct JobOutcome {
    pub(crate) exit_code: i32,
    pub(crate) limit: Option<Limit>,
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
    /// Bytes that the program wrote to its channel.
    pub(crate) answer: Vec<u8>,
}

/// The beginning of a stream, and the number of bytes it had.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    pub(crate) kept: Vec<u8>,
    pub(crate) total: usize,
}

/// Reason why a run has no outcome; never caused by the code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    #[error("the warden cannot be started: {0}")]
    Start(#[source] io::Error),
    #[error("the warden did not answer: {0}")]
    Silent(#[source] io::Error),
    #[error("the sandbox could not run the code: {0}")]
    Failed(String),
    #[error("nobody waits for the run any more")]
    Cancelled,
}

/// # Errors
/// See [`JobError`].
pub(crate) async fn run(
    options: &Options,
    setup: &Setup,
    request: &[u8],
    cancelled: &CancellationToken,
) -> Result<JobOutcome, JobError> {
    let (mut warden, mut connection) = start(options).map_err(JobError::Start)?;
    let flooded = CancellationToken::new();
    let capture = |stream| AbortOnDropHandle::new(tokio::spawn(capture(stream, options.clone_caps(), flooded.clone())));
    let stdout = warden.stdout.take().map(|stream| capture(Box::new(stream) as Stream));
    let stderr = warden.stderr.take().map(|stream| capture(Box::new(stream) as Stream));
    let longest = Duration::from_millis(setup.limits.wall_ms) + AROUND;
    let told = tokio::select! {
        told = timeout(longest, converse(&mut connection, setup, request)) => WaitEnd::Answered(told),
        () = flooded.cancelled() => WaitEnd::Flooded,
        () = cancelled.cancelled() => WaitEnd::Cancelled,
    };
    // Closing the connection ends the warden, if it still runs.
    drop(connection);
    if timeout(TO_END, warden.wait()).await.is_err() {
        tracing::error!(process.pid = warden.id(), "a warden does not end and is killed");
        let _ = warden.kill().await;
    }
    let (stdout, stderr) = (captured(stdout).await, captured(stderr).await);
    let (report, answer) = match told {
        WaitEnd::Answered(Ok(told)) => told.map_err(JobError::Silent)?,
        WaitEnd::Answered(Err(_)) => return Err(JobError::Silent(io::ErrorKind::TimedOut.into())),
        WaitEnd::Flooded => (Report { exit_code: KILLED, limit: Some(Limit::Output), failure: None }, Vec::new()),
        WaitEnd::Cancelled => return Err(JobError::Cancelled),
    };
    match report.failure {
        Some(failure) => Err(JobError::Failed(failure)),
        None => Ok(JobOutcome { exit_code: report.exit_code, limit: report.limit, stdout, stderr, answer }),
    }
}

enum WaitEnd {
    Answered(Result<io::Result<(Report, Vec<u8>)>, tokio::time::error::Elapsed>),
    Flooded,
    Cancelled,
}

type Stream = Box<dyn AsyncRead + Send + Unpin>;

fn start(options: &Options) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let warden = Command::new(&options.program)
        .arg("sandbox-warden")
        .env_clear()
        // The warden runs `chmod` and `rm`.
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(std::os::fd::OwnedFd::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C at a terminal must reach only the service, which ends its wardens.
        .process_group(0)
        .spawn()?;
    Ok((warden, UnixStream::from_std(ours)?))
}

async fn converse(connection: &mut UnixStream, setup: &Setup, request: &[u8]) -> io::Result<(Report, Vec<u8>)> {
    frames::send(connection, &serde_json::to_vec(setup)?).await?;
    frames::send(connection, request).await?;
    let report = serde_json::from_slice(&frames::receive(connection).await?)?;
    Ok((report, frames::receive(connection).await?))
}

/// Limits on the output of a run, in bytes of each of its two streams.
struct Caps {
    /// Kept; the rest is dropped.
    keep: usize,
    /// A run that writes more is stopped.
    flood: usize,
}

impl Options {
    fn clone_caps(&self) -> Caps {
        Caps { keep: self.output_bytes, flood: self.flood_bytes() }
    }
}

/// Reads the stream to its end and keeps the beginning.
async fn capture(mut stream: Stream, caps: Caps, flooded: CancellationToken) -> Captured {
    let mut captured = Captured::default();
    let mut block = vec![0; 64 << 10];
    // A read error counts as the end of the stream.
    while let Ok(read @ 1..) = stream.read(&mut block).await {
        let room = caps.keep.saturating_sub(captured.kept.len()).min(read);
        captured.kept.extend_from_slice(block.get(..room).unwrap_or_default());
        captured.total += read;
        if captured.total > caps.flood {
            flooded.cancel();
        }
    }
    captured
}

async fn captured(reading: Option<AbortOnDropHandle<Captured>>) -> Captured {
    match reading {
        // All writers are gone, so the read ends at once; the timeout covers a machine in trouble.
        Some(reading) => timeout(TO_END, reading).await.ok().and_then(Result::ok).unwrap_or_default(),
        None => Captured::default(),
    }
}
