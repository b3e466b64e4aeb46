//! What can go wrong in the store, as conditions a caller can act on.

use std::sync::Arc;

use longhaul_sdk::failure::FailureClass;

/// A store operation that did not happen, or whose happening is unknown.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// No such row, or not one this caller may see.
    #[error("{0} not found")]
    NotFound(&'static str),
    /// The row is not in the state the operation needs.
    #[error("{0}")]
    Conflict(String),
    /// The lease belongs to another, or to nobody.
    #[error("the lease is lost")]
    LeaseLost,
    /// The worker's lease ran out, nobody declared it dead, and its renewal is still to come: whether the lease is lost is not known.
    #[error("the lease waits for its renewal")]
    LeaseStale,
    /// Postgres refused the values (SQLSTATE 22 or 23): repeating cannot help.
    #[error("the database refused the values: {0}")]
    Rejected(#[source] Arc<sqlx::Error>),
    /// Postgres is away, restarting, read-only or overloaded: repeating may help.
    #[error("the database is unavailable: {0}")]
    Unavailable(#[source] Arc<sqlx::Error>),
    /// The operation was not carried out in the time it had.
    #[error("the database did not answer within {0:?}")]
    TimedOut(std::time::Duration),
    /// What is stored cannot be read.
    #[error("stored data cannot be read: {0}")]
    Corrupt(String),
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
    /// Anything else: a bug.
    #[error("database error: {0}")]
    Unexpected(#[source] Arc<sqlx::Error>),
}

impl StoreError {
    /// The failure class, when an attempt ends because of it.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Unavailable(_) | Self::TimedOut(_) | Self::LeaseLost | Self::LeaseStale | Self::Closed => {
                FailureClass::Transient
            }
            Self::NotFound(_) | Self::Conflict(_) | Self::Rejected(_) | Self::Corrupt(_) | Self::Unexpected(_) => {
                FailureClass::Permanent
            }
        }
    }

    /// Whether the same operation may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::LeaseStale)
    }
}

impl From<sqlx::Error> for StoreError {
    #[expect(clippy::wildcard_enum_match_arm, reason = "sqlx's errors are open-ended; what is not known is unexpected")]
    fn from(error: sqlx::Error) -> Self {
        if let sqlx::Error::Database(database) = &error {
            let code = database.code().unwrap_or_default();
            if code == "25006" {
                super::pool::refused_read_only();
            }
            return match (code.get(..2).unwrap_or_default(), &*code) {
                // 25006: a demoted primary; 40: deadlock or serialization; 53: resources; 55P03: lock timeout;
                // 57: cancelled, shutting down, starting up; 08: connection.
                ("08" | "40" | "53" | "57", _) | (_, "25006" | "55P03") => Self::Unavailable(Arc::new(error)),
                ("22" | "23", _) => Self::Rejected(Arc::new(error)),
                _ => Self::Unexpected(Arc::new(error)),
            };
        }
        match error {
            sqlx::Error::RowNotFound => Self::NotFound("row"),
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_) => {
                Self::Corrupt(error.to_string())
            }
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => Self::Unavailable(Arc::new(error)),
            other => Self::Unexpected(Arc::new(other)),
        }
    }
}
