//! Server errors under load that are about no execution: a rotated password, a revoked grant, a function or a table
//! of another release (core-rules 21).

use std::{str::FromStr, time::Duration};

use longhaul_embedded::PrivatePostgres;
use sqlx::{AssertSqlSafe, ConnectOptions, PgPool, postgres::PgConnectOptions};

use super::{LOAD_PATIENCE, all_finish, asked, count_of, no_call_is_repeated, several_turns, submit_many, worker};
use crate::support::{db::TestDb, fleet::Fleet, redis::TestRedis, servers::dedicated_postgres, wait::eventually};

const EXECUTIONS: usize = 60;
/// Several times the batches' largest backoff.
const FAULT: Duration = Duration::from_secs(4);

/// A fleet that connects as the role `runner`, and an administrator with another role.
struct Refusing {
    postgres: PrivatePostgres,
    admin: PgPool,
    fleet: Fleet,
}

impl Refusing {
    async fn start() -> Self {
        let postgres = dedicated_postgres().await;
        let mut db = TestDb::create_on(postgres.url()).await;
        let admin = db.pool.clone();
        let refusing =
            ["create role runner login password 'before'", "grant all on all tables in schema public to runner"];
        for sql in refusing {
            sqlx::query(sql).execute(&admin).await.unwrap();
        }
        let sequences = "grant all on all sequences in schema public to runner";
        sqlx::query(sequences).execute(&admin).await.unwrap();
        let options = PgConnectOptions::from_str(&db.url).unwrap().username("runner").password("before");
        db.url = options.to_url_lossy().to_string();
        let mut fleet = Fleet::on(db, TestRedis::create().await).await;
        fleet.set("LONGHAUL__WORKER__CONCURRENCY", "30");
        several_turns(&fleet, 4, Duration::from_millis(300)).await;
        Self { postgres, admin, fleet }
    }

    async fn sql(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.admin).await.unwrap();
    }

    /// Runs executions while `fault` holds, ends it by `mend`, and fails if an execution failed, crashed or repeated
    /// a call.
    async fn nobody_fails(self, fault: &str, mend: &str) {
        let workers = [worker(&self.fleet), worker(&self.fleet)];
        submit_many(&self.fleet, "d", EXECUTIONS).await;
        asked(&self.fleet, EXECUTIONS).await;
        self.sql(fault).await;
        // The fault itself, not a wait for something.
        tokio::time::sleep(FAULT).await;
        let failed = count_of(&self.fleet, "select count(*) from executions where status = 'FAILED'").await;
        assert_eq!(failed, 0, "executions failed during the fault");
        self.sql(mend).await;
        all_finish(&self.fleet, EXECUTIONS).await;
        no_call_is_repeated(&self.fleet);
        assert_eq!(count_of(&self.fleet, "select count(*) from executions where crash_count > 0").await, 0);
        for worker in workers {
            worker.drain().await;
        }
        drop(self.postgres);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_grant_fails_no_execution() {
    let refusing = Refusing::start().await;
    refusing.nobody_fails("revoke insert on steps from runner", "grant insert on steps to runner").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn function_of_another_release_fails_no_execution() {
    let refusing = Refusing::start().await;
    refusing
        .nobody_fails(
            // A prepared statement refers to the function by its id, so the sessions are closed as well.
            "alter function longhaul_try_lock(uuid) rename to longhaul_try_lock_of_another_release;
             select pg_terminate_backend(pid) from pg_stat_activity where usename = 'runner'",
            "alter function longhaul_try_lock_of_another_release(uuid) rename to longhaul_try_lock",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn table_of_another_release_fails_no_execution() {
    let refusing = Refusing::start().await;
    refusing
        .nobody_fails("alter table steps rename column body to bytes", "alter table steps rename column bytes to body")
        .await;
}

/// Open connections live on, those of claims among them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotated_password_fails_nothing_and_stops_claims() {
    let refusing = Refusing::start().await;
    let fleet = &refusing.fleet;
    let workers = [worker(fleet), worker(fleet)];
    submit_many(fleet, "d", 2 * EXECUTIONS).await;
    asked(fleet, EXECUTIONS).await;
    refusing.sql("alter role runner password 'after'").await;
    let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity
               where usename = 'runner' and query not like '%longhaul_claim%' and query not like '%update workers%'";
    let claims = async || count_on(&refusing.admin, "select coalesce(sum(attempt), 0) from executions").await;
    // Claims stop once the pending writes have met the refusal, which takes as long as the machine is busy. A
    // connection that claimed may write next, so they are cut again and again.
    let claimed = eventually("no more is claimed", LOAD_PATIENCE, async || {
        let before = claims().await;
        for _ in 0..40 {
            refusing.sql(cut).await;
            tokio::time::sleep(FAULT / 40).await;
        }
        let after = claims().await;
        if before == after { Ok(after) } else { Err(format!("{before}, then {after}")) }
    })
    .await;
    assert!(claimed < 2 * EXECUTIONS, "claims went on while connections were refused");
    assert_eq!(count_on(&refusing.admin, "select count(*) from executions where status = 'FAILED'").await, 0);
    refusing.sql("alter role runner password 'before'").await;

    all_finish(fleet, 2 * EXECUTIONS).await;
    no_call_is_repeated(fleet);
    for worker in workers {
        worker.drain().await;
    }
}

async fn count_on(pool: &PgPool, sql: &'static str) -> usize {
    let count: i64 = sqlx::query_scalar(sql).fetch_one(pool).await.unwrap();
    usize::try_from(count).unwrap()
}
