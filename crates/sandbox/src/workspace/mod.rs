//! `POST /v1/workspace`: runs a bash command over the files of a workspace and returns the files that it leaves.
//!
//! Invariants: the confined process itself writes the files into its working directory and reads them back, so
//! nothing outside of the confinement ever follows a path that the command made; the service holds no workspace
//! between requests.
//!
//! A request is a frame (four bytes of length, big-endian, then JSON: [`wire::Head`]) and the bytes of its files in
//! the order of their entries. The answer is a frame with the run's [`wire::Run`], a frame with [`wire::Left`], and the
//! bytes of the entries that have `sent`.

mod files;
pub(crate) mod runner;
pub(crate) mod wire;

use std::time::Duration;

use self::wire::{Head, MAX_BYTES, MAX_COMMAND, MAX_HEAD, Run};
use crate::{
    frames,
    job::JobOutcome,
    options::{Language, Options},
    wire::{Invalid, RunError, invalid, over, text},
};

/// Maximum bytes of a request, and of the answer of the confined process.
pub(crate) const MAX_MESSAGE: usize = MAX_HEAD + MAX_BYTES as usize;
/// Time of a run beyond that of its command: to write the files and to read them back.
pub(crate) const TRANSFER: Duration = Duration::from_secs(30);

/// Maximum time a request waits for a run: a worker keeps its place in the line as long as it waits for the answer.
pub(crate) const QUEUE: Duration = Duration::from_secs(100);

/// Reads the beginning of a request.
///
/// # Errors
/// The request is malformed, or asks for what the sandbox does not have.
pub(crate) fn parse(body: &[u8], options: &Options) -> Result<Head, Invalid> {
    let wrong = |message: String| invalid("invalid_payload", message);
    let head = frames::first(body).ok_or_else(|| wrong("the body does not begin with a whole frame".to_owned()))?;
    if head.len() > MAX_HEAD {
        return Err(wrong(format!("the first frame may have {MAX_HEAD} bytes")));
    }
    let head: Head =
        serde_json::from_slice(head).map_err(|error| wrong(format!("the first frame cannot be read: {error}")))?;
    let command = &head.command;
    if command.trim().is_empty() || command.contains('\0') || command.len() > MAX_COMMAND {
        let message = format!("command must be a text of 1 to {MAX_COMMAND} bytes without NUL");
        return Err(invalid("invalid_code", message));
    }
    if !options.languages.contains(&Language::Bash) {
        return Err(invalid("unsupported_language", "this sandbox runs no bash"));
    }
    Ok(head)
}

/// The answer to a request.
///
/// # Errors
/// The answer is too long.
pub(crate) fn answer(head: &Head, ended: JobOutcome, options: &Options) -> std::io::Result<Vec<u8>> {
    let error = match ended.limit {
        Some(limit) => Some(over(limit, head.timeout_seconds.unwrap_or(options.timeout.as_secs_f64()), options)),
        None if ended.answer.is_empty() => {
            let message = format!("the run ended with status {} and returned nothing", ended.exit_code);
            Some(RunError { kind: "SandboxProcessError".to_owned(), message })
        }
        None => None,
    };
    let files = if error.is_none() { ended.answer } else { Vec::new() };
    let run = Run { stdout: text(&ended.stdout), stderr: text(&ended.stderr), error };
    let mut answer = Vec::new();
    frames::write(&mut answer, &serde_json::to_vec(&run)?)?;
    answer.extend(files);
    Ok(answer)
}
