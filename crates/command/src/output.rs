//! All output of the program: results to standard output, messages to standard error.
//!
//! Write errors are ignored: a closed pipe (`longhaul list | head`) is not a failure. Texts of models, callers and
//! tenants cannot steer the terminal: control characters, and those that hide or turn text, are written as codes.

use std::{
    io::{self, IsTerminal, Write},
    sync::OnceLock,
};

use clap::ColorChoice;
use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement, Table, presets};
use longhaul_shared::visible::{self, visible};
use serde::Serialize;

/// Streams that are written in colours.
#[derive(Debug, Clone, Copy, Default)]
struct Colours {
    out: bool,
    err: bool,
}

static COLOURS: OnceLock<Colours> = OnceLock::new();

/// Decides once if output is in colours: `auto` means on a terminal, unless `no_color` is set.
pub fn set_colours(choice: ColorChoice, no_color: bool) {
    let colours = match choice {
        ColorChoice::Always => Colours { out: true, err: true },
        ColorChoice::Never => Colours::default(),
        ColorChoice::Auto => {
            Colours { out: !no_color && io::stdout().is_terminal(), err: !no_color && io::stderr().is_terminal() }
        }
    };
    let _ = COLOURS.set(colours);
}

fn colours() -> Colours {
    COLOURS.get().copied().unwrap_or_default()
}

/// Sequences that set the colours of [`state`], as the table writes them.
const COLOUR_SEQUENCES: [&str; 5] = ["\x1b[38;5;10m", "\x1b[38;5;9m", "\x1b[38;5;11m", "\x1b[39m", "\x1b[0m"];

/// The text as it is printed, with the colours of tables if the stream has colours.
fn shown(text: &str, has_colours: bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for (place, part) in text.split('\x1b').enumerate() {
        let colour = COLOUR_SEQUENCES.iter().find(|colour| has_colours && part.starts_with(&colour[1..]));
        let rest = match (place, colour) {
            (0, _) => part,
            (_, Some(colour)) => {
                shown.push_str(colour);
                &part[colour.len() - 1..]
            }
            (_, None) => {
                shown.extend(visible("\x1b"));
                part
            }
        };
        shown.extend(visible(rest));
    }
    shown
}

/// Prints a line to standard output.
pub fn line(text: impl AsRef<str>) {
    let _ = writeln!(io::stdout().lock(), "{}", shown(text.as_ref(), colours().out));
}

/// Prints text of a model as it comes, without a line break.
pub fn text(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(shown(text, false).as_bytes());
    let _ = out.flush();
}

/// Writes what this program made for another one, as it is.
pub fn bytes(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(bytes);
    let _ = out.flush();
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

/// A table without borders, so that `cut` and `grep` work on it. On a terminal its cells wrap at the terminal's width,
/// except those of the first column, which people copy.
pub fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    if colours().out {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    if io::stdout().is_terminal()
        && let Some(width) = Table::new().width()
    {
        wrap(&mut table, width);
    }
    table
}

fn wrap(table: &mut Table, width: u16) {
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    if let Some(first) = table.column_mut(0) {
        first.set_constraint(ColumnConstraint::ContentWidth);
    }
}

/// A cell with a state, coloured if the output is.
#[must_use]
pub fn state(text: &str) -> Cell {
    let cell = Cell::new(text);
    let colour = match text {
        "FINISHED" | "live" | "completed" | "delivered" | "approved" | "answered" => Color::Green,
        "FAILED" | "dead" | "failed" | "rejected" | "revoked" => Color::Red,
        "late" | "draining" | "waiting" | "paused" | "expired" => Color::Yellow,
        _ => return cell,
    };
    if colours().out { cell.fg(colour) } else { cell }
}

/// An error without the numbers of the operating system, which follow its words.
fn in_words(error: &str) -> String {
    let mut parts = error.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |words, part| words + part.split_once(')').map_or(part, |(_, rest)| rest))
}

fn to_stderr(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Prints a message to standard error.
pub fn note(text: impl AsRef<str>) {
    to_stderr(&shown(text.as_ref(), false));
}

/// Prints an error with its causes to standard error.
pub fn failure(error: &anyhow::Error) {
    let name = if colours().err { "\x1b[31mlonghaul:\x1b[0m" } else { "longhaul:" };
    to_stderr(&format!("{name} {}", shown(&in_words(&format!("{error:#}")), false)));
}

/// Prints an error as JSON to standard error.
pub fn failure_json(error: &impl Serialize) {
    to_stderr(&compact(error));
}

/// Indented JSON.
pub fn pretty(value: &impl Serialize) -> String {
    visible::json(serde_json::to_string_pretty(value).unwrap_or_default())
}

fn compact(value: &impl Serialize) -> String {
    visible::json(serde_json::to_string(value).unwrap_or_default())
}

/// Returns true if standard output is a terminal.
#[must_use]
pub fn to_terminal() -> bool {
    io::stdout().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_steer_a_terminal() {
        let hostile = "\x1b]0;owned\x07\x1b[2Ja\rb\u{202e}c\n";
        assert_eq!(shown(hostile, true), "\\u{1b}]0;owned\\u{7}\\u{1b}[2Ja\\u{d}b\\u{202e}c\n");
        assert_eq!(shown("\x1b[38;5;9mFAILED\x1b[39m", true), "\x1b[38;5;9mFAILED\x1b[39m");
        assert_eq!(shown("\x1b[38;5;9mFAILED", false), "\\u{1b}[38;5;9mFAILED");
        assert!(pretty(&"a\u{200b}").contains(r"a\u200b"));
    }

    #[test]
    fn colours_of_states_pass() {
        let mut table = table(["state"]);
        table.enforce_styling().add_row([Cell::new("FAILED").fg(Color::Red), Cell::new("live").fg(Color::Green)]);
        let text = table.to_string();
        assert!(text.contains('\x1b'));
        assert_eq!(shown(&text, true), text);
    }

    #[test]
    fn cells_wrap_at_the_width_except_ids() {
        let id = "0197fca0-1c6e-7aa2-9a40-6a3d7b0f2a11";
        let mut table = table(["ID", "STATUS", "PREVIEW"]);
        table.add_row([id, "FINISHED", &"many words ".repeat(9)]);
        assert_eq!(table.trim_fmt().lines().count(), 2, "not on a terminal: a row is a line");
        wrap(&mut table, 70);
        let text = table.trim_fmt();
        assert!(text.lines().all(|line| line.chars().count() <= 70), "{text}");
        assert!(text.lines().any(|line| line.starts_with(id)), "{text}");
        assert!(text.lines().count() > 3, "{text}");
    }

    #[test]
    fn states_are_plain_without_a_terminal() {
        let mut table = table(["STATUS"]);
        table.add_row([state("FAILED")]);
        assert_eq!(table.trim_fmt(), "STATUS\nFAILED");
    }
}
