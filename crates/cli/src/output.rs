//! The one place that prints: answers to standard output, everything said beside them to standard error.
//!
//! A closed pipe (`longhaul list | head`) is no error: what nobody reads need not be written.

#![expect(clippy::print_stderr, reason = "the one module of the command that talks to its user")]

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

/// Prints a line of the answer.
pub fn line(text: impl AsRef<str>) {
    let _ = writeln!(io::stdout().lock(), "{}", text.as_ref());
}

/// Prints the answer as JSON: indented for people, one line otherwise.
pub fn json(value: &impl Serialize) {
    let text = if io::stdout().is_terminal() { pretty(value) } else { compact(value) };
    line(text);
}

/// One line of JSON, for streams.
pub fn json_line(value: &impl Serialize) {
    line(compact(value));
}

/// Says something to the person, beside the answer.
pub fn note(text: impl AsRef<str>) {
    eprintln!("{}", text.as_ref());
}

/// Says why the command failed: the error with its causes.
pub fn failure(error: &anyhow::Error) {
    eprintln!("longhaul: {error:#}");
}

/// Indented JSON.
pub fn pretty(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn compact(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Whether a person reads standard output.
#[must_use]
pub fn to_terminal() -> bool {
    io::stdout().is_terminal()
}
