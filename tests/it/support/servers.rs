//! Servers of the tests: one PostgreSQL and one Redis for the whole process, started by the first test that needs
//! them and stopped when the process ends, however it ends. A test that stops, pauses or empties a server takes one
//! of its own instead.
//!
//! `LONGHAUL_TEST_DATABASE_URL` and `LONGHAUL_TEST_REDIS_URL` name servers to use instead of private ones. The
//! database user must be allowed to create databases.

use std::sync::OnceLock;

use longhaul_embedded::{PostgresOptions, PrivatePostgres, PrivateRedis, RedisOptions};

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
                PrivatePostgres::start_blocking(&PostgresOptions::scratch()).expect("start the shared PostgreSQL")
            })
            .url(),
    }
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
