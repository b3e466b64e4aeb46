//! Processes that start before `longhaul migrate`.

use std::{
    fs::{self, File},
    process::{Child, Command, Stdio},
};

use longhaul_store::database::schema;
use tempfile::TempDir;

use crate::support::{
    db::TestDb,
    redis::TestRedis,
    wait::{SOON, eventually},
};

/// Path of the program; see `tests/Cargo.toml`.
const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul-program");
const SAID: &str = "run `longhaul migrate`";

/// A role as a process; killed on drop.
struct Role {
    child: Child,
    dir: TempDir,
}

impl Role {
    fn start(name: &str, db: &TestDb, redis: &TestRedis) -> Self {
        Self::start_on(name, &db.url, redis)
    }

    fn start_on(name: &str, database_url: &str, redis: &TestRedis) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = File::create(dir.path().join("log")).unwrap();
        let child = Command::new(PROGRAM)
            .arg(name)
            .env_clear()
            .env("DATABASE_URL", database_url)
            .env("REDIS_URL", &redis.url)
            .env("LONGHAUL__REDIS__PREFIX", &redis.prefix)
            .env("LONGHAUL_API_KEY_PEPPER", "a pepper of the tests, long enough")
            .env("LONGHAUL__API__LISTEN", "127.0.0.1:0")
            .env("LONGHAUL__LLM__DEFAULT_PROVIDER", "scripted")
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, dir }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    async fn says(&self, what: &str) {
        eventually("the role says it", SOON, async || {
            let log = self.log();
            if log.contains(what) { Ok(()) } else { Err(log) }
        })
        .await;
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A role that starts before the migration, as when all start at once, waits instead of exiting.
#[tokio::test(flavor = "multi_thread")]
async fn roles_log_once_that_they_await_migration() {
    let (db, redis) = (TestDb::empty().await, TestRedis::create().await);
    let mut roles = ["api", "worker"].map(|name| Role::start(name, &db, &redis));
    for role in &roles {
        role.says(SAID).await;
    }
    let mut connection = db.pool.acquire().await.unwrap();
    schema::migrate(&mut connection).await.unwrap();
    eventually("the worker registers", SOON, async || {
        let workers = "select count(*) from live_workers";
        let workers: i64 = sqlx::query_scalar(workers).fetch_one(&db.pool).await.unwrap();
        if workers == 1 { Ok(()) } else { Err(workers) }
    })
    .await;
    for role in &mut roles {
        assert!(role.child.try_wait().unwrap().is_none(), "{}", role.log());
        assert_eq!(role.log().matches(SAID).count(), 1, "{}", role.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_log_that_the_database_cannot_be_reached() {
    let redis = TestRedis::create().await;
    // Nothing listens on port 1.
    let nowhere = "postgres://longhaul:secret-of-the-test@127.0.0.1:1/longhaul";
    for mut role in ["api", "worker"].map(|name| Role::start_on(name, nowhere, &redis)) {
        role.says("waiting for the database").await;
        assert!(role.child.try_wait().unwrap().is_none(), "{}", role.log());
        assert!(!role.log().contains("secret-of-the-test"), "{}", role.log());
    }
}
