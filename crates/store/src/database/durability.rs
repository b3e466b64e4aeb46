//! Durability settings of the server.

use std::time::{Duration, Instant};

use crate::{Store, StoreError};

/// Pause before a server that is away is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Pause before its absence is logged again.
const SAY_AGAIN: Duration = Duration::from_secs(30);

/// Settings of the server that decide if a commit survives a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durability {
    /// True if commits reach the disk.
    pub fsync: bool,
    /// True if a page that was half written at a power loss can be restored.
    pub full_page_writes: bool,
    /// `on`, `off`, `local`, `remote_write` or `remote_apply`.
    pub synchronous_commit: String,
    /// Standbys that a commit waits for; empty if there are none.
    pub synchronous_standby_names: String,
}

impl Durability {
    /// Names of the settings with which a crash loses acknowledged commits.
    #[must_use]
    pub fn unsafe_settings(&self) -> Vec<&'static str> {
        let settings = [
            ("fsync", !self.fsync),
            ("full_page_writes", !self.full_page_writes),
            ("synchronous_commit", self.synchronous_commit == "off"),
        ];
        settings.into_iter().filter_map(|(name, is_off)| is_off.then_some(name)).collect()
    }

    /// Returns true if commits wait for a standby.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        !self.synchronous_standby_names.is_empty()
            && matches!(self.synchronous_commit.as_str(), "on" | "remote_write" | "remote_apply")
    }
}

impl Store {
    /// Reads the settings from the server.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn durability(&self) -> Result<Durability, StoreError> {
        let row = sqlx::query!(
            r#"
            select current_setting('fsync')::bool as "fsync!", current_setting('full_page_writes')::bool
                as "full_page_writes!",
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

    /// Refuses a server on which acknowledged commits may be lost; waits for one that is away.
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

    /// Refuses a server that may lose acknowledged commits (core-rules 10), and a pooler without sessions.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] with the reason; otherwise Postgres is unavailable.
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
    fn settings_that_lose_commits_are_named() {
        let safe = Durability {
            fsync: true,
            full_page_writes: true,
            synchronous_commit: "remote_write".into(),
            synchronous_standby_names: String::new(),
        };
        assert_eq!(safe.unsafe_settings(), [""; 0]);
        assert!(!safe.is_replicated(), "no standby");
        let replicated = Durability { synchronous_standby_names: "*".into(), ..safe.clone() };
        assert!(replicated.is_replicated());
        assert!(!Durability { synchronous_commit: "local".into(), ..replicated }.is_replicated());
        let lossy = Durability { fsync: false, full_page_writes: false, synchronous_commit: "off".into(), ..safe };
        assert_eq!(lossy.unsafe_settings(), ["fsync", "full_page_writes", "synchronous_commit"]);
    }
}
