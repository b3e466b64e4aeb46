//! The mistakes that `longhaul apply` finds in its files.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::Serialize;

/// One mistake: `agents/clerk.yaml:5: /modle: unknown field; did you mean `model`?`.
#[derive(Debug, Clone, Serialize)]
pub struct SpecProblem {
    pub file: PathBuf,
    /// From 1, where it is known.
    pub line: Option<usize>,
    pub what: String,
}

impl fmt::Display for SpecProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file.display(), self.what),
            None => write!(f, "{}: {}", self.file.display(), self.what),
        }
    }
}

/// All mistakes in a set of files.
#[derive(Debug, Default)]
pub struct SpecFileError(pub Vec<SpecProblem>);

impl SpecFileError {
    pub(crate) fn new(path: &Path, what: impl ToString) -> Self {
        Self::at(path, None, what)
    }

    pub(crate) fn at(path: &Path, line: Option<usize>, what: impl ToString) -> Self {
        Self(vec![SpecProblem { file: path.to_owned(), line, what: what.to_string() }])
    }
}

impl fmt::Display for SpecFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for SpecFileError {}
