//! A managed server, where Longhaul's role has few rights and other roles have many.

use std::str::FromStr;
use std::time::Duration;

use longhaul_store::{Store, StoreOptions};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions};

use crate::support::leases::World;

/// Another migration's lock, held for longer than the fleet's statement and lock timeouts.
#[tokio::test]
async fn migrate_waits_beyond_the_fleets_lock_timeout() {
    let world = World::create().await;
    let options = StoreOptions {
        statement_timeout: Duration::from_millis(200),
        lock_timeout: Duration::from_millis(100),
        ..StoreOptions::new(&world.db.url)
    };
    let store = Store::open(options).unwrap();
    let mut other = world.pool().begin().await.unwrap();
    sqlx::query("lock table database_functions in access exclusive mode").execute(&mut *other).await.unwrap();
    let release = async {
        // Longer than one lock wait of a migration.
        tokio::time::sleep(Duration::from_secs(3)).await;
        other.rollback().await.unwrap();
    };
    let (migrated, ()) = tokio::join!(store.migrate(), release);
    migrated.unwrap();
}

#[tokio::test]
async fn snapshot_alarm_reports_sessions_hidden_from_the_role() {
    let world = World::create().await;
    assert!(world.store.alarms().await.unwrap().sees_all_sessions, "a superuser sees all");
    let role = format!("blind_{}", world.db.name);
    for sql in [
        format!("create role {role} login password 'p'"),
        format!("grant select on all tables in schema public to {role}"),
    ] {
        sqlx::query(AssertSqlSafe(sql)).execute(world.pool()).await.unwrap();
    }
    let options = PgConnectOptions::from_str(&world.db.url).unwrap().username(&role).password("p");
    let blind = Store::open(StoreOptions::new(options.to_url_lossy().to_string())).unwrap();
    assert!(!blind.alarms().await.unwrap().sees_all_sessions);
    blind.close().await;
    let gone = format!("drop owned by {role}; drop role {role}");
    sqlx::raw_sql(AssertSqlSafe(gone)).execute(world.pool()).await.unwrap();
}
