//! Servers of the tests: one PostgreSQL and one Redis for the whole process, started by the first test that needs
//! them and stopped when the process ends, however it ends. A test that stops, pauses or empties a server takes one
//! of its own instead.
//!
//! `LONGHAUL_TEST_DATABASE_URL` and `LONGHAUL_TEST_REDIS_URL` name servers to use instead of private ones. The
//! database user must be allowed to create databases.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use longhaul_embedded::{PostgresOptions, PrivatePostgres, PrivateRedis, RedisOptions};

/// Room for the databases of the tests that run at a time and for the write-ahead log, several times over.
const SHARED_SERVER_BYTES: u64 = 8 << 30;

/// A PostgreSQL of the test's own, for faults.
pub(crate) async fn dedicated_postgres() -> PrivatePostgres {
    PrivatePostgres::start(PostgresOptions::scratch()).await.expect("start a dedicated PostgreSQL")
}

/// A Redis of the test's own, for faults.
pub(crate) async fn dedicated_redis() -> PrivateRedis {
    PrivateRedis::start(RedisOptions::scratch()).await.expect("start a dedicated Redis")
}

/// URL of the shared PostgreSQL; tests take a database from [`super::db::TestDb`] instead of using it directly.
pub(crate) fn shared_postgres_url() -> &'static str {
    // Never dropped: the guard stops the server when the process ends and removes its directory.
    static SERVER: OnceLock<PrivatePostgres> = OnceLock::new();
    static GIVEN: OnceLock<Option<String>> = OnceLock::new();
    match GIVEN.get_or_init(|| setting("LONGHAUL_TEST_DATABASE_URL")) {
        Some(url) => url,
        None => SERVER
            .get_or_init(|| {
                let options = PostgresOptions::scratch_of_many_connections(&shared_base());
                PrivatePostgres::start_blocking(&options).expect("start the shared PostgreSQL")
            })
            .url(),
    }
}

/// In memory where there is room: each test copies a database of 800 files, which takes a disk five times as long.
fn shared_base() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(memory).map_or(0, |found| found.f_bavail * found.f_frsize);
    if free < SHARED_SERVER_BYTES { std::env::temp_dir() } else { memory.to_owned() }
}

/// URL of the shared Redis; [`super::redis::TestRedis`] keeps the keys apart.
pub(crate) fn shared_redis_url() -> &'static str {
    static SERVER: OnceLock<PrivateRedis> = OnceLock::new();
    static GIVEN: OnceLock<Option<String>> = OnceLock::new();
    match GIVEN.get_or_init(|| setting("LONGHAUL_TEST_REDIS_URL")) {
        Some(url) => url,
        None => SERVER
            .get_or_init(|| PrivateRedis::start_blocking(&RedisOptions::scratch()).expect("start the shared Redis"))
            .url(),
    }
}

#[expect(clippy::disallowed_methods, reason = "settings of the test run, which shared::config knows nothing about")]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
