//! Lexer for references, expressions and conditions: a cursor over one short text, and its syntax errors.

use std::fmt;

use longhaul_sdk::numbers;
use serde_json::Value;

/// First character of a reference.
pub(super) const DAGGER: char = '†';
/// Maximum bytes of one expression or condition. Models write a few dozen.
pub(super) const MAX_TEXT_BYTES: usize = 1_024;

/// Syntax error in a reference, an expression or a condition, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (at character {at} of `{text}`)")]
pub struct SyntaxError {
    reason: String,
    at: usize,
    text: String,
}

#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// # Errors
    /// If the text is longer than [`MAX_TEXT_BYTES`].
    pub(super) fn new(text: &'a str) -> Result<Self, SyntaxError> {
        let cursor = Self { text, at: 0 };
        if text.len() > MAX_TEXT_BYTES {
            return Err(cursor.error(format!("an expression may have {MAX_TEXT_BYTES} bytes, this has {}", text.len())));
        }
        Ok(cursor)
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn error(&self, reason: impl fmt::Display) -> SyntaxError {
        let text: String = self.text.chars().take(120).collect();
        SyntaxError { reason: reason.to_string(), at: self.text[..self.at].chars().count() + 1, text }
    }

    pub(super) fn skip_space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    /// Consumes `token` if it comes next.
    pub(super) fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    /// Skips spaces, then consumes the first of `tokens` that matches.
    pub(super) fn take_any(&mut self, tokens: &[&'static str]) -> Option<&'static str> {
        self.skip_space();
        tokens.iter().copied().find(|token| self.take(token))
    }

    pub(super) fn take_while(&mut self, accepts: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !accepts(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Name of the next character, for an error message.
    pub(super) fn found(&self) -> String {
        match self.rest().chars().next() {
            Some(next) => format!("`{next}`"),
            None => "the end".to_owned(),
        }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest().is_empty()
    }

    /// Reads a number, a quoted text, `true`, `false` or `null`. Returns `None` if the next character starts none
    /// of them.
    pub(super) fn literal(&mut self) -> Result<Option<Value>, SyntaxError> {
        match self.rest().chars().next() {
            Some('"' | '\'') => self.quoted().map(|text| Some(Value::String(text))),
            Some(c) if c == '-' || c.is_ascii_digit() => {
                let start = self.clone();
                let text = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.'));
                let number: Value =
                    serde_json::from_str(text).map_err(|_| start.error(format!("`{text}` is not a number")))?;
                numbers::check(&number).map_err(|error| start.error(error))?;
                Ok(Some(number))
            }
            Some(c) if c.is_ascii_alphabetic() => {
                let start = self.clone();
                let word = self.take_while(|c| c.is_alphanumeric() || c == '_');
                match word {
                    "true" => Ok(Some(Value::Bool(true))),
                    "false" => Ok(Some(Value::Bool(false))),
                    "null" => Ok(Some(Value::Null)),
                    other => Err(start.error(format!(
                        "`{other}` is neither a reference, which begins with {DAGGER}, nor a value; a text is quoted"
                    ))),
                }
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Reads a text in double or single quotes, with the escapes of JSON.
    pub(super) fn quoted(&mut self) -> Result<String, SyntaxError> {
        let start = self.clone();
        let Some(quote) = self.rest().chars().next().filter(|c| matches!(c, '"' | '\'')) else {
            return Err(self.error(format!("expected a quoted text, found {}", self.found())));
        };
        let body = &self.rest()[1..];
        let mut is_escaped = false;
        for (at, c) in body.char_indices() {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                c if c == quote => {
                    self.at += at + 2;
                    return unescaped(&body[..at], quote)
                        .ok_or_else(|| start.error("the quoted text has a bad escape"));
                }
                _ => {}
            }
        }
        Err(start.error("the quoted text does not end"))
    }
}

/// Decodes the inside of a quoted text as JSON.
fn unescaped(inside: &str, quote: char) -> Option<String> {
    let json = if quote == '"' { format!("\"{inside}\"") } else { single_to_double(inside) };
    serde_json::from_str(&json).ok()
}

fn single_to_double(inside: &str) -> String {
    let mut json = String::from("\"");
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => match chars.next() {
                Some('\'') => json.push('\''),
                Some(other) => json.extend(['\\', other]),
                None => json.push('\\'),
            },
            other => json.push(other),
        }
    }
    json.push('"');
    json
}
