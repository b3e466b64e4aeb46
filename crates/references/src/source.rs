//! Source of a value that was put in the place of a reference.

use std::fmt;

use super::path::Path;

/// Source of one substituted argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// JSON pointer into the arguments.
    pub argument: String,
    /// Canonical text of the expression.
    pub expression: String,
    /// Path of the value; `None` for a literal alternative.
    pub path: Option<Path>,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => path.fmt(f),
            None => f.write_str(&self.expression),
        }
    }
}
