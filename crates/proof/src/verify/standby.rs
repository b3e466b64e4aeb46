//! A synchronous standby of the fleet's PostgreSQL, and its promotion under load.

use std::{fs, time::Duration};

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use longhaul_embedded::PostgresOptions;
use longhaul_shared::clock::{Clock, SystemClock};
use tokio::time::{Instant, sleep};

use super::{LOOK_EVERY, fleet::Fleet};

/// Longest wait for the standby to confirm commits.
const FOLLOWS: Duration = Duration::from_secs(60);
/// Time under load with the standby before the primary is killed: longer than the rate before a fault is measured.
const REPLICATED: Duration = Duration::from_secs(5);

/// Adds a standby that every commit waits for, kills the primary, and makes the standby the primary. Returns the time
/// of the kill.
///
/// # Errors
/// The standby does not start, does not follow, or is not promoted.
pub(super) async fn promote(fleet: &mut Fleet) -> anyhow::Result<DateTime<Utc>> {
    let dirs = (2..).map(|number| fleet.postgres.dir().with_file_name(format!("postgres-{number}")));
    let dir = dirs.into_iter().find(|dir| !dir.exists()).context("a directory for the standby")?;
    let standby = fleet.postgres.standby(PostgresOptions::dev(dir)).await?;
    fleet.store.replicate_synchronously().await?;
    let give_up = Instant::now() + FOLLOWS;
    while !fleet.store.has_synchronous_standby().await? {
        anyhow::ensure!(Instant::now() < give_up, "the standby does not follow after {} s", FOLLOWS.as_secs());
        sleep(LOOK_EVERY).await;
    }
    sleep(REPLICATED).await;
    let killed_at = SystemClock::new().now();
    fleet.postgres.kill().await?;
    // The name of the server moves before the promotion is over: connections to a read-only server must not last.
    fleet.proxies_of_postgres().for_each(|proxy| proxy.set_upstream(standby.address()));
    standby.promote().await?;
    let former = std::mem::replace(&mut fleet.postgres, standby);
    // A long run would fill the disk. The log stays.
    let data = former.dir().join("data");
    fs::remove_dir_all(&data).with_context(|| format!("remove {}", data.display()))?;
    Ok(killed_at)
}
