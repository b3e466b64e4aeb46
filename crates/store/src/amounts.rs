//! Amounts of money in columns.

use longhaul_sdk::Usd;

/// A column in billionths of a dollar, which a query reads as [`Usd`].
#[derive(Debug, Clone, Copy, sqlx::Type)]
#[sqlx(transparent)]
pub(crate) struct Nanos(i64);

impl From<Nanos> for Usd {
    fn from(Nanos(nanos): Nanos) -> Self {
        Self::from_nanos(nanos)
    }
}
