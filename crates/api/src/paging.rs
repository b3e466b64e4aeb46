//! Pages of a list, newest first: how long, and where the next one begins.

use uuid::Uuid;

use crate::extract::{Params, write_cursor};

const DEFAULT_LENGTH: i64 = 50;
const MAX_LENGTH: i64 = 200;

/// How long a page is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageLength(i64);

impl PageLength {
    /// The parameter `limit`; a bad one is a violation of `params`.
    pub(crate) fn take(params: &mut Params) -> Self {
        Self(params.limit(DEFAULT_LENGTH, MAX_LENGTH))
    }

    /// The rows to ask for: one more than shown says whether there is a next page.
    pub(crate) fn rows(self) -> i64 {
        self.0 + 1
    }

    /// Cuts what was found to the page, and gives the cursor of the next one.
    pub(crate) fn cut<T>(self, found: &mut Vec<T>, id: impl Fn(&T) -> Uuid) -> Option<String> {
        let length = usize::try_from(self.0).unwrap_or_default();
        let has_more = found.len() > length;
        found.truncate(length);
        found.last().filter(|_| has_more).map(|last| write_cursor(id(last)))
    }
}
