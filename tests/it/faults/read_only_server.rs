//! A failover that leaves pooled connections on the old primary, which stays read-only for ever.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::AssertSqlSafe;

use super::{all_finish, asked, nothing_ran_twice, several_turns, submit_many, worker};
use crate::support::{db::TestDb, fleet::Fleet, redis::TestRedis, servers::dedicated_postgres};

/// The demotion shows to existing connections (a setting of the server, reloaded) and to new ones; the promotion only
/// to new ones (a setting of the database), as when a name or a proxy points to another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_switch_from_a_demoted_primary() {
    let postgres = dedicated_postgres().await;
    let mut fleet = Fleet::on(TestDb::create_on(postgres.url()).await, TestRedis::create().await).await;
    several_turns(&fleet, 3, Duration::from_millis(200)).await;
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", "50");
    let workers = [worker(&fleet), worker(&fleet)];
    submit_many(&fleet, "d", 200).await;
    asked(&fleet, 150).await;

    let admin = sqlx::PgPool::connect(postgres.url()).await.unwrap();
    for sql in ["alter system set default_transaction_read_only = on", "select pg_reload_conf()"] {
        sqlx::query(sql).execute(&admin).await.unwrap();
    }
    // No primary for a while; the duration is the fault.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let promote = format!("alter database {} set default_transaction_read_only = off", fleet.db.name);
    sqlx::raw_sql(AssertSqlSafe(format!("begin read write; {promote}; commit"))).execute(&admin).await.unwrap();
    let promoted = Instant::now();

    all_finish(&fleet, 200).await;
    let took = promoted.elapsed();
    println!("all were finished {:.1} s after the promotion", took.as_secs_f64());
    assert!(took < Duration::from_secs(30), "all were finished {took:?} after the promotion");
    nothing_ran_twice(&fleet, 200).await;
    assert_eq!(fleet.json("select to_jsonb(max(crash_count)) from executions").await, json!(0));
    for worker in workers {
        worker.drain().await;
    }
}
