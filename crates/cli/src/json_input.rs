//! JSON and other text from a command-line argument, a file or standard input.

use std::io::Read;

use anyhow::Context as _;
use serde_json::Value;

use crate::exit::UsageError;

/// Parses JSON given as by [`text_input`].
pub(crate) fn json_input(what: &str, from: &str) -> anyhow::Result<Value> {
    let text = text_input(what, from)?;
    Ok(serde_json::from_str(&text).map_err(|error| UsageError(format!("{what} is not JSON: {error}")))?)
}

/// A text given as the argument itself, as `@FILE`, or as `-` for standard input. `what` names it in errors.
pub(crate) fn text_input(what: &str, from: &str) -> anyhow::Result<String> {
    Ok(match from.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path).with_context(|| format!("{what} {from}"))?,
        None if from == "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).with_context(|| format!("{what} -"))?;
            text
        }
        None => from.to_owned(),
    })
}
