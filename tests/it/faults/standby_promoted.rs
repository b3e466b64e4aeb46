//! A synchronous standby takes the place of a primary that died or was cut off, and one that stands still holds
//! commits back.

use std::time::Duration;

use longhaul_embedded::{PostgresOptions, PrivatePostgres};
use sqlx::{Connection as _, PgConnection};

use super::postgres_restarted::nobody_pays_for;
use crate::support::wait::{SOON, eventually};

/// Starts a standby and waits until it confirms commits.
async fn synchronous_standby(primary: &PrivatePostgres) -> PrivatePostgres {
    let standby = primary.standby(PostgresOptions::scratch()).await.unwrap();
    let mut admin = PgConnection::connect(primary.url()).await.unwrap();
    for sql in ["alter system set synchronous_standby_names = '*'", "select pg_reload_conf()"] {
        sqlx::query(sql).execute(&mut admin).await.unwrap();
    }
    eventually("the standby confirms commits", SOON, async || {
        let state: Option<String> =
            sqlx::query_scalar("select min(sync_state) from pg_stat_replication").fetch_one(&mut admin).await.unwrap();
        if state.as_deref() == Some("sync") { Ok(()) } else { Err(format!("{state:?}")) }
    })
    .await;
    admin.close().await.unwrap();
    standby
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promotion_beyond_the_lease_reaps_no_worker() {
    nobody_pays_for(async |primary, proxies| {
        let standby = synchronous_standby(primary).await;
        primary.kill().await.unwrap();
        // The outage itself, not a wait for something.
        tokio::time::sleep(Duration::from_secs(8)).await;
        proxies.move_to(&standby);
        standby.promote().await.unwrap();
        standby
    })
    .await;
}

/// As a host without power: it closes no connection, and answers nothing. Connections to the new primary are new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_primary_is_left_for_its_standby() {
    nobody_pays_for(async |primary, proxies| {
        let standby = synchronous_standby(primary).await;
        proxies.workers.strand_connections();
        primary.kill().await.unwrap();
        proxies.move_to(&standby);
        standby.promote().await.unwrap();
        standby
    })
    .await;
}

/// The server has carried a commit out and does not say so, for longer than any statement may take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_that_stands_still_fails_nothing() {
    nobody_pays_for(async |primary, _| {
        let standby = synchronous_standby(primary).await;
        standby.pause().await.unwrap();
        // The hang itself, not a wait for something.
        tokio::time::sleep(Duration::from_secs(20)).await;
        let mut admin = PgConnection::connect(primary.url()).await.unwrap();
        let sessions: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where backend_type = 'client backend' and wait_event = 'SyncRep'",
        )
        .fetch_one(&mut admin)
        .await
        .unwrap();
        println!("{sessions} sessions wait for the standby");
        assert!(sessions > 0, "no commit waits");
        // Two workers, the fleet's own store and submits.
        assert!(sessions < 20, "{sessions} sessions wait for the standby");
        standby.resume().await.unwrap();
        standby
    })
    .await;
}
