//! Cursor pagination of lists, newest first.

use uuid::Uuid;

use crate::extract::{Params, write_cursor};

const DEFAULT_LENGTH: i64 = 50;
const MAX_LENGTH: i64 = 200;

/// Rows per page, 1 to 200.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageLength(i64);

impl PageLength {
    /// Reads the parameter `limit`; an invalid value becomes a violation of `params`.
    pub(crate) fn take(params: &mut Params) -> Self {
        Self(params.limit(DEFAULT_LENGTH, MAX_LENGTH))
    }

    /// Rows to query: one more than the page shows tells if there is a next page.
    pub(crate) fn rows(self) -> i64 {
        self.0 + 1
    }

    /// Truncates `found` to the page and returns the cursor of the next page.
    pub(crate) fn cut<T>(self, found: &mut Vec<T>, id: impl Fn(&T) -> Uuid) -> Option<String> {
        let length = usize::try_from(self.0).unwrap_or_default();
        let has_more = found.len() > length;
        found.truncate(length);
        found.last().filter(|_| has_more).map(|last| write_cursor(id(last)))
    }
}
