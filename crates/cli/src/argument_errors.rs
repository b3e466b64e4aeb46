//! Mistakes in a command line, in the words of its user: without those of Rust's parsers, and with what to write.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// Messages of the standard library's parsers, with their meanings.
const JARGON: [(&str, &str); 7] = [
    ("invalid digit found in string", "it is not a whole number"),
    ("cannot parse integer from empty string", "it is empty, and must be a whole number"),
    ("number too large to fit in target type", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
    ("invalid float literal", "it is not a number"),
    ("cannot parse float from empty string", "it is empty, and must be a number"),
    ("provided string was not `true` or `false`", "it must be true or false"),
];

/// The text for the user of a mistake in `arguments`, without the program's name.
#[must_use]
pub fn told(error: &Error, arguments: &[String]) -> String {
    let mut text = error.render().to_string();
    for (jargon, meant) in JARGON {
        text = text.replace(jargon, meant);
    }
    if let Some(tip) = tip(error, arguments) {
        let (message, usage) = text.split_once("\n\n").unwrap_or((&text, ""));
        text = format!("{message}\n\n  tip: {tip}\n\n{usage}");
    }
    text
}

fn tip(error: &Error, arguments: &[String]) -> Option<String> {
    let command = arguments.iter().find(|argument| !argument.starts_with('-'))?.as_str();
    let is_input = |text: &str| text.starts_with(['{', '[', '@']);
    let stray = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(argument))) => Some(argument.as_str()),
        (ErrorKind::ArgumentConflict, _) => arguments.iter().map(String::as_str).find(|argument| is_input(argument)),
        _ => None,
    };
    match (command, error.kind(), stray) {
        ("submit", _, Some(stray)) if is_input(stray) => {
            Some("the input goes after --input: longhaul submit DEFINITION --input '{…}'".into())
        }
        ("submit", ErrorKind::MissingRequiredArgument, _) => {
            Some("for example: longhaul submit DEFINITION --input '{\"text\": \"…\"}' --wait".into())
        }
        ("cancel" | "retry", ErrorKind::MissingRequiredArgument, _) => Some(format!(
            "`longhaul list` shows the ids; filters choose many: longhaul {command} --status {}",
            if command == "cancel" { "IN_PROGRESS" } else { "FAILED" }
        )),
        _ => None,
    }
}
