//! One connection with verified settings, to one writable server.
//!
//! A pooler between Longhaul and Postgres drops or refuses the settings of a session, and in transaction mode
//! runs each statement in another session (docs/design/outages.md).

use chrono::{DateTime, Utc};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};

use crate::{StoreError, database::outage::Trouble};

/// Setting that no database has by itself: a session without it has lost the options that it was opened with, even if
/// the database happens to have the demanded settings.
const MARK: (&str, &str) = ("longhaul.options", "kept");

/// Options of a connection, with the settings that correctness depends on.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    connect: PgConnectOptions,
    names: Vec<String>,
    values: Vec<String>,
    trouble: Trouble,
}

/// A connection as its server describes it.
#[derive(sqlx::FromRow)]
struct Inspected {
    is_read_only: bool,
    /// Settings that differ from those demanded.
    differing: Option<String>,
    server_started: DateTime<Utc>,
}

impl Session {
    /// `demanded` are settings by name, in the unit of `pg_settings`.
    pub(crate) fn new(connect: PgConnectOptions, mut demanded: Vec<(&'static str, String)>) -> Self {
        demanded.push((MARK.0, MARK.1.to_owned()));
        let connect = connect.options(demanded.iter().map(|(name, value)| (name, value)));
        let (names, values) = demanded.into_iter().map(|(name, value)| (name.to_owned(), value)).unzip();
        Self { connect, names, values, trouble: Trouble::default() }
    }

    /// Tells `trouble` of the server that each connection reaches.
    pub(crate) fn tells(self, trouble: &Trouble) -> Self {
        Self { trouble: trouble.clone(), ..self }
    }

    pub(crate) fn connect_options(&self) -> &PgConnectOptions {
        &self.connect
    }

    /// Opens a connection and verifies it.
    pub(crate) async fn open(&self) -> sqlx::Result<PgConnection> {
        let mut connection = PgConnection::connect_with(&self.connect).await?;
        self.verify(&mut connection).await?;
        Ok(connection)
    }

    /// Refuses a connection to a read-only server, which would stay so for as long as the connection is kept
    /// (core-rules 20), and one whose settings differ from those it was opened with.
    pub(crate) async fn verify(&self, connection: &mut PgConnection) -> sqlx::Result<()> {
        let found = self.inspect(connection).await?;
        if found.is_read_only {
            return Err(sqlx::Error::Protocol("the server is read-only".into()));
        }
        self.trouble.reached(found.server_started);
        match found.differing {
            Some(differing) => Err(sqlx::Error::Protocol(format!("the session has other settings: {differing}"))),
            None => Ok(()),
        }
    }

    async fn inspect(&self, connection: &mut PgConnection) -> sqlx::Result<Inspected> {
        // Not prepared: it runs once per connection.
        sqlx::query_as(
            "select current_setting('transaction_read_only')::bool as is_read_only, (
                 select string_agg(
                     format('%s is %s instead of %s', d.name, coalesce(f.setting, 'not set'), d.value),
                     ', ' order by d.name
                 )
                 from unnest($1::text[], $2::text[]) as d (name, value)
                     left join pg_settings s on s.name = d.name
                     -- A setting of an application has no row there.
                     cross join lateral (select coalesce(s.setting, current_setting(d.name, true)) as setting) f
                 where f.setting is distinct from d.value
             ) as differing, pg_postmaster_start_time() as server_started",
        )
        .bind(&self.names)
        .bind(&self.values)
        .persistent(false)
        .fetch_one(connection)
        .await
    }

    /// Refuses a pooler behind which no session can be relied on.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the settings are lost or a pooler is in transaction mode; otherwise Postgres
    /// is unavailable.
    pub(crate) async fn refuse_pooler(&self) -> Result<(), StoreError> {
        let mut one = self.open_through_pooler().await?;
        if let Some(differing) = self.inspect(&mut one).await?.differing {
            return Err(StoreError::Conflict(format!(
                "a connection to Postgres does not have the settings it was opened with ({differing}); {ADVICE}"
            )));
        }
        let mut other = self.open_through_pooler().await?;
        // By turns: a pooler gives an idle session of the server to the next client that asks.
        for _ in 0..3 {
            if server_process(&mut one).await? == server_process(&mut other).await? {
                return Err(StoreError::Conflict(format!(
                    "two connections to Postgres share one session, as behind a pooler in transaction mode; {ADVICE}"
                )));
            }
        }
        one.close().await?;
        other.close().await?;
        Ok(())
    }

    async fn open_through_pooler(&self) -> Result<PgConnection, StoreError> {
        PgConnection::connect_with(&self.connect).await.map_err(|error| match error.as_database_error() {
            Some(refusal) if refusal.message().contains("unsupported startup parameter") => StoreError::Conflict(
                format!("a pooler refuses the settings of a session ({}); {ADVICE}", refusal.message()),
            ),
            Some(_) | None => StoreError::connecting(error),
        })
    }
}

const ADVICE: &str = "Longhaul needs sessions of its own: connect to Postgres directly";

async fn server_process(connection: &mut PgConnection) -> sqlx::Result<i32> {
    sqlx::query_scalar("select pg_backend_pid()").persistent(false).fetch_one(connection).await
}
