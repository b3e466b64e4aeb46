//! The error of a file that `longhaul apply` cannot take.

use std::path::{Path, PathBuf};

/// An unreadable or invalid file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct SpecFileError {
    path: PathBuf,
    what: String,
}

impl SpecFileError {
    pub(crate) fn new(path: &Path, what: impl ToString) -> Self {
        Self { path: path.to_owned(), what: what.to_string() }
    }
}
