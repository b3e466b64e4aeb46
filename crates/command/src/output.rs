//! All output of the program: results to standard output, messages to standard error.
//!
//! Write errors are ignored: a closed pipe (`longhaul list | head`) is not a failure.

#![expect(clippy::print_stderr, reason = "the one module of the command that talks to its user")]

use std::io::{self, IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// Prints a line to standard output.
pub fn line(text: impl AsRef<str>) {
    let _ = writeln!(io::stdout().lock(), "{}", text.as_ref());
}

/// Prints one line of a conversation: who speaks, and what.
pub fn said(speaker: &str, text: &str) {
    line(format!("  {speaker:<7} {text}"));
}

/// Prints JSON to standard output: indented on a terminal, on one line otherwise.
pub fn json(value: &impl Serialize) {
    let text = if io::stdout().is_terminal() { pretty(value) } else { compact(value) };
    line(text);
}

/// Prints JSON on one line, for streams.
pub fn json_line(value: &impl Serialize) {
    line(compact(value));
}

/// A table without borders, so that `cut` and `grep` work on it.
pub fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// Prints a message to standard error.
pub fn note(text: impl AsRef<str>) {
    eprintln!("{}", text.as_ref());
}

/// Prints an error with its causes to standard error.
pub fn failure(error: &anyhow::Error) {
    eprintln!("longhaul: {error:#}");
}

/// Prints an error as JSON to standard error.
pub fn failure_json(error: &impl Serialize) {
    eprintln!("{}", compact(error));
}

/// Indented JSON.
pub fn pretty(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn compact(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Returns true if standard output is a terminal.
#[must_use]
pub fn to_terminal() -> bool {
    io::stdout().is_terminal()
}
