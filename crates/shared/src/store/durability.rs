//! How safe the server keeps what it acknowledged.

use std::time::{Duration, Instant};

use super::{Store, StoreError};

/// The pause before a server that is away is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// The pause before it is said again that it is away.
const SAY_AGAIN: Duration = Duration::from_secs(30);

/// The server's settings on which "committed" depends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durability {
    /// Whether commits reach the disk.
    pub fsync: bool,
    /// Whether a page that was half written when the power went can be read again.
    pub full_page_writes: bool,
    /// `on`, `off`, `local`, `remote_write` or `remote_apply`.
    pub synchronous_commit: String,
    /// The standbys a commit waits for; empty when there are none.
    pub synchronous_standby_names: String,
}

impl Durability {
    /// Settings with which a crash loses what was acknowledged.
    #[must_use]
    pub fn unsafe_settings(&self) -> Vec<&'static str> {
        let settings = [
            ("fsync", !self.fsync),
            ("full_page_writes", !self.full_page_writes),
            ("synchronous_commit", self.synchronous_commit == "off"),
        ];
        settings.into_iter().filter_map(|(name, is_off)| is_off.then_some(name)).collect()
    }
}

impl Store {
    /// Asks the server for them.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn durability(&self) -> Result<Durability, StoreError> {
        let row = sqlx::query!(
            r#"
            select current_setting('fsync')::bool as "fsync!", current_setting('full_page_writes')::bool as "full_page_writes!",
                current_setting('synchronous_commit') as "synchronous_commit!",
                current_setting('synchronous_standby_names') as "synchronous_standby_names!"
            "#
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(Durability {
            fsync: row.fsync,
            full_page_writes: row.full_page_writes,
            synchronous_commit: row.synchronous_commit,
            synchronous_standby_names: row.synchronous_standby_names,
        })
    }

    /// Refuses a server on which the product cannot keep its promises; one that is away is waited for.
    ///
    /// # Errors
    /// As [`Self::check_server`], but for a server that is away.
    pub async fn refuse_unsafe_server(&self) -> Result<(), StoreError> {
        let mut said_at: Option<Instant> = None;
        loop {
            match self.check_server().await {
                Err(error) if error.is_retryable() => {
                    if said_at.is_none_or(|at| at.elapsed() > SAY_AGAIN) {
                        said_at = Some(Instant::now());
                        tracing::warn!(error = %error, "waiting for the database");
                    }
                    tokio::time::sleep(ASK_AGAIN).await;
                }
                checked => return checked,
            }
        }
    }

    /// Refuses a server that may lose what it acknowledged (core-rules 10), and a pooler that gives no sessions.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] says what is wrong; else Postgres is unavailable.
    pub async fn check_server(&self) -> Result<(), StoreError> {
        self.options.session([])?.refuse_pooler().await?;
        match self.durability().await?.unsafe_settings().as_slice() {
            [] => Ok(()),
            off => Err(StoreError::Conflict(format!(
                "the Postgres server runs with {} off: a crash would lose acknowledged executions",
                off.join(" and ")
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_without_which_a_crash_loses_commits_is_named() {
        let safe = Durability {
            fsync: true,
            full_page_writes: true,
            synchronous_commit: "remote_write".into(),
            synchronous_standby_names: String::new(),
        };
        assert_eq!(safe.unsafe_settings(), [""; 0]);
        let lossy = Durability { fsync: false, full_page_writes: false, synchronous_commit: "off".into(), ..safe };
        assert_eq!(lossy.unsafe_settings(), ["fsync", "full_page_writes", "synchronous_commit"]);
    }
}
