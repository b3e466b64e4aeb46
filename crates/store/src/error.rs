//! Errors of the store, as conditions that a caller can act on.

use std::{array::TryFromSliceError, num::TryFromIntError, sync::Arc};

use longhaul_sdk::failure::FailureClass;
use sqlx::{error::DatabaseError, postgres::PgDatabaseError};

use longhaul_domain::UnknownName;
use longhaul_telemetry::metrics::{self, RefusalSubject};

/// A store operation that failed, or whose outcome is unknown.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// No such row, or not one this caller may see.
    #[error("{0} not found")]
    NotFound(&'static str),
    /// The row is not in the state the operation needs.
    #[error("{0}")]
    Conflict(String),
    /// Another worker holds the lease, or none does.
    #[error("the lease is lost")]
    LeaseLost,
    /// The worker still holds the lease, but the write was not applied because another statement had locked the
    /// row. Retry it.
    #[error("the execution is at hand elsewhere")]
    LeaseStale,
    /// Postgres refused the values (SQLSTATE 21, 22, 23 or 54): repeating cannot help.
    #[error("the database refused the values: {0}")]
    Rejected(#[source] Arc<sqlx::Error>),
    /// The statement took too long (57014), too much memory (53200), or was too large to send (08P01): a smaller
    /// one may pass.
    #[error("the statement was too much for the database: {0}")]
    TooMuch(#[source] Arc<sqlx::Error>),
    /// The server or its schema cannot carry the statement out now: repeating may help.
    #[error("the database is unavailable: {0}")]
    Unavailable(#[source] Arc<sqlx::Error>),
    /// No connection could be opened or kept: repeating may help.
    #[error("the database cannot be reached: {0}")]
    Unreachable(#[source] Arc<sqlx::Error>),
    /// The operation took longer than it may.
    #[error("the database did not answer within {0:?}")]
    TimedOut(std::time::Duration),
    /// Stored data cannot be read.
    #[error("stored data cannot be read: {0}")]
    Corrupt(String),
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
    /// The connection settings cannot be read.
    #[error("the database settings are unusable: {0}")]
    Misconfigured(#[source] Arc<sqlx::Error>),
}

impl StoreError {
    /// Failure class of an attempt that ends because of this error.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        match self {
            Self::TooMuch(_)
            | Self::Unavailable(_)
            | Self::Unreachable(_)
            | Self::TimedOut(_)
            | Self::LeaseLost
            | Self::LeaseStale
            | Self::Closed => FailureClass::Transient,
            Self::NotFound(_) | Self::Conflict(_) | Self::Rejected(_) | Self::Corrupt(_) | Self::Misconfigured(_) => {
                FailureClass::Permanent
            }
        }
    }

    /// Returns true if the same operation may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::TooMuch(_) | Self::Unavailable(_) | Self::Unreachable(_) | Self::LeaseStale)
    }

    /// Returns true if the error is about the item at hand, so that others may pass: a duty sets it aside and goes on.
    #[must_use]
    pub fn is_about_item(&self) -> bool {
        match self {
            Self::NotFound(_) | Self::Conflict(_) | Self::Rejected(_) | Self::TooMuch(_) | Self::Corrupt(_) => true,
            Self::LeaseLost
            | Self::LeaseStale
            | Self::Unavailable(_)
            | Self::Unreachable(_)
            | Self::TimedOut(_)
            | Self::Closed
            | Self::Misconfigured(_) => false,
        }
    }

    /// Kind of the error, without texts of what was stored or sent.
    #[must_use]
    pub fn summary(&self) -> String {
        let refused = |what: &str, error: &sqlx::Error| {
            let code = error.as_database_error().and_then(|error| error.code());
            code.map_or_else(|| what.to_owned(), |code| format!("{what} (SQLSTATE {code})"))
        };
        match self {
            Self::NotFound(_) | Self::LeaseLost | Self::LeaseStale | Self::TimedOut(_) | Self::Closed => {
                self.to_string()
            }
            Self::Conflict(_) => "the row is not in the state that the operation needs".to_owned(),
            Self::Corrupt(_) => "stored data cannot be read".to_owned(),
            Self::Rejected(error) => refused("the database refused the values", error),
            Self::TooMuch(error) => refused("the statement was too much for the database", error),
            Self::Unavailable(error) => refused("the database is unavailable", error),
            Self::Unreachable(error) => refused("the database cannot be reached", error),
            Self::Misconfigured(error) => refused("the database settings are unusable", error),
        }
    }

    /// Returns true if the server ended the statement because of a deadlock.
    pub(crate) fn is_deadlock(&self) -> bool {
        let Self::Unavailable(error) = self else { return false };
        error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "40P01")
    }

    /// Classifies an error of opening a connection. It is about the server whatever its code says (core-rules
    /// 21).
    pub(crate) fn connecting(error: sqlx::Error) -> Self {
        if matches!(error, sqlx::Error::Configuration(_)) { error.into() } else { Self::unreachable(error) }
    }

    fn rejected(error: sqlx::Error) -> Self {
        metrics::store_refused(RefusalSubject::Values);
        Self::Rejected(Arc::new(error))
    }

    fn too_much(error: sqlx::Error) -> Self {
        metrics::store_refused(RefusalSubject::Amount);
        Self::TooMuch(Arc::new(error))
    }

    fn unavailable(error: sqlx::Error) -> Self {
        metrics::store_refused(RefusalSubject::Server);
        Self::Unavailable(Arc::new(error))
    }

    fn unreachable(error: sqlx::Error) -> Self {
        metrics::store_refused(RefusalSubject::Connection);
        Self::Unreachable(Arc::new(error))
    }
}

/// True if the error was raised in what the end of an execution or a request to people does beside its own statement:
/// it is about the server or its schema, never about an item of the batch (core-rules 27).
fn is_below_a_trigger(error: &dyn DatabaseError) -> bool {
    let context = error.try_downcast_ref::<PgDatabaseError>().and_then(PgDatabaseError::r#where).unwrap_or_default();
    ["longhaul_execution_over()", "longhaul_asked()"].iter().any(|function| context.contains(function))
}

/// Classifies by the subject of the error (core-rules 21): the values of a statement, its amount, or else the
/// server.
impl From<sqlx::Error> for StoreError {
    #[expect(clippy::wildcard_enum_match_arm, reason = "an error that is not known is about the server")]
    fn from(error: sqlx::Error) -> Self {
        if let sqlx::Error::Database(database) = &error {
            let code = database.code().unwrap_or_default().into_owned();
            if is_below_a_trigger(database.as_ref()) {
                return Self::unavailable(error);
            }
            return match (code.get(..2).unwrap_or_default(), code.as_str()) {
                ("21" | "22" | "23" | "54", _) => Self::rejected(error),
                (_, "57014" | "53200" | "08P01") => Self::too_much(error),
                // No session was opened: role, password, database, or no place left (53300), not yet or no longer
                // open (57P).
                ("28" | "3D", _) | (_, "53300" | "57P01" | "57P02" | "57P03") => Self::unreachable(error),
                (_, code) => {
                    // A demoted primary, a cached plan of another schema, a lost prepared statement: each would
                    // give the same answer for as long as the connection is kept.
                    if matches!(code, "25006" | "0A000" | "26000") {
                        crate::database::connection_age::distrust_connections();
                    }
                    Self::unavailable(error)
                }
            };
        }
        match error {
            sqlx::Error::RowNotFound => Self::NotFound("row"),
            sqlx::Error::Encode(_) => Self::rejected(error),
            // A value of a newer release, or a damaged one: it is about its row.
            sqlx::Error::ColumnDecode { ref source, .. }
                if source.is::<UnknownName>()
                    || source.is::<TryFromSliceError>()
                    || source.is::<TryFromIntError>()
                    || source.is::<serde_json::Error>() =>
            {
                Self::Corrupt(source.to_string())
            }
            sqlx::Error::ColumnDecode { source, .. } if source.is::<Self>() => {
                source.downcast().map_or_else(|other| Self::Corrupt(other.to_string()), |own| *own)
            }
            sqlx::Error::Configuration(_) => Self::Misconfigured(Arc::new(error)),
            sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => Self::unreachable(error),
            other => Self::unavailable(other),
        }
    }
}
