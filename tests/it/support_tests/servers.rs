//! Private servers as seen from outside: the faults they survive, and their complete removal.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use longhaul_embedded::{PostgresOptions, PrivatePostgres, PrivateRedis, RedisOptions, ServersError, with_servers};
use redis::AsyncCommands;
use sqlx::{Connection, PgConnection};

use crate::support::db::TestDb;
use crate::support::redis::TestRedis;
use crate::support::servers::{dedicated_postgres, dedicated_redis};
use crate::support::wait::SOON;
use crate::support_tests::owner::exists;

async fn redis_connection(url: &str) -> redis::aio::MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

#[tokio::test]
async fn killed_postgres_restarts_with_data_and_port() {
    let server = dedicated_postgres().await;
    let url = server.url().to_owned();
    let mut client = PgConnection::connect(&url).await.unwrap();
    sqlx::query("create table notes (text text)").execute(&mut client).await.unwrap();
    sqlx::query("insert into notes values ('kept')").execute(&mut client).await.unwrap();
    server.kill().await.unwrap();
    assert_eq!(server.pid(), None);
    assert!(sqlx::query("select 1").execute(&mut client).await.is_err());
    server.start_again().await.unwrap();
    let mut client = PgConnection::connect(&url).await.unwrap();
    let notes: Vec<String> = sqlx::query_scalar("select text from notes").fetch_all(&mut client).await.unwrap();
    assert_eq!(notes, ["kept"]);
}

#[tokio::test]
async fn postgres_is_durable_and_closed_to_strangers() {
    let server = dedicated_postgres().await;
    let mut client = PgConnection::connect(server.url()).await.unwrap();
    for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
        let value: String =
            sqlx::query_scalar("select current_setting($1)").bind(setting).fetch_one(&mut client).await.unwrap();
        assert_eq!(value, "on", "{setting}");
    }
    let (encoding, collation): (String, String) = sqlx::query_as(
        "select pg_encoding_to_char(encoding)::text, datcollate::text from pg_database \
         where datname = current_database()",
    )
    .fetch_one(&mut client)
    .await
    .unwrap();
    assert_eq!((encoding.as_str(), collation.as_str()), ("UTF8", "C"));
    let stranger = format!("postgres://longhaul:guess@{}/longhaul", server.address());
    assert!(PgConnection::connect(&stranger).await.is_err());
}

#[tokio::test]
async fn paused_postgres_answers_only_after_resume() {
    let server = dedicated_postgres().await;
    let mut client = PgConnection::connect(server.url()).await.unwrap();
    sqlx::query("select 1").execute(&mut client).await.unwrap();
    server.pause().await.unwrap();
    let mut query = Box::pin(sqlx::query("select 1").execute(&mut client));
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut query).await.is_err(), "an open session was served");
    let connecting = PgConnection::connect(server.url());
    assert!(tokio::time::timeout(Duration::from_millis(200), connecting).await.is_err(), "a new session was served");
    server.resume().await.unwrap();
    tokio::time::timeout(SOON, query).await.unwrap().unwrap();
}

#[tokio::test]
async fn stopped_redis_restarts_empty_on_its_port() {
    let server = dedicated_redis().await;
    let mut client = redis_connection(server.url()).await;
    let _: () = client.set("key", "value").await.unwrap();
    server.stop().await.unwrap();
    assert!(client.get::<_, Option<String>>("key").await.is_err());
    server.start_again().await.unwrap();
    let mut client = redis_connection(server.url()).await;
    assert_eq!(client.get::<_, Option<String>>("key").await.unwrap(), None);
}

#[tokio::test]
async fn dropped_server_leaves_no_process_or_file() {
    let (postgres, redis) = (dedicated_postgres().await, dedicated_redis().await);
    let pids = [postgres.pid().unwrap(), redis.pid().unwrap()];
    let dirs = [postgres.dir().to_owned(), redis.dir().to_owned()];
    assert!(pids.into_iter().all(exists) && dirs.iter().all(|dir| dir.exists()));
    tokio::task::spawn_blocking(|| drop((postgres, redis))).await.unwrap();
    assert!(!pids.into_iter().any(exists));
    assert!(!dirs.iter().any(|dir| dir.exists()), "{dirs:?}");
}

#[tokio::test]
async fn kept_directory_keeps_data_and_password() {
    let dir = std::env::temp_dir().join(format!("longhaul-kept-{}", uuid::Uuid::new_v4().simple()));
    let first = PrivatePostgres::start(PostgresOptions::dev(&dir)).await.unwrap();
    let mut client = PgConnection::connect(first.url()).await.unwrap();
    sqlx::query("create table notes (text text)").execute(&mut client).await.unwrap();
    let password = reqwest::Url::parse(first.url()).unwrap().password().unwrap().to_owned();
    drop(first);
    let second = PrivatePostgres::start(PostgresOptions::dev(&dir)).await.unwrap();
    assert_eq!(reqwest::Url::parse(second.url()).unwrap().password().unwrap(), password);
    let mut client = PgConnection::connect(second.url()).await.unwrap();
    sqlx::query("select * from notes").execute(&mut client).await.unwrap();
    drop(second);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn directory_has_one_owner_at_a_time() {
    let first = dedicated_redis().await;
    let refused = PrivateRedis::start(RedisOptions::dev(first.dir())).await.unwrap_err();
    let own = i32::try_from(std::process::id()).unwrap();
    assert!(matches!(refused, ServersError::InUse { pid, .. } if pid == own), "{refused}");
    assert!(first.pid().is_some());
}

#[tokio::test]
async fn cluster_of_missing_postgres_version_is_untouched() {
    let dir = std::env::temp_dir().join(format!("longhaul-old-{}", uuid::Uuid::new_v4().simple()));
    std::fs::create_dir_all(dir.join("data")).unwrap();
    std::fs::write(dir.join("data/PG_VERSION"), "9\n").unwrap();
    let refused = PrivatePostgres::start(PostgresOptions::dev(&dir)).await.unwrap_err();
    assert!(matches!(refused, ServersError::OtherVersion { wanted: 9, .. }), "{refused}");
    assert_eq!(std::fs::read_to_string(dir.join("data/PG_VERSION")).unwrap(), "9\n");
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Only root changes to another user, so only for root is a closed directory out of reach.
#[tokio::test]
async fn unreachable_directory_links_to_a_lasting_one() {
    let closed = tempfile::tempdir().unwrap();
    std::fs::set_permissions(closed.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let wanted = closed.path().join("redis");
    let start = async || PrivateRedis::start(RedisOptions::dev(&wanted)).await.unwrap();
    let server = start().await;
    let root = rustix::process::geteuid().is_root();
    assert_eq!(server.dir() == wanted, !root, "{}", server.dir().display());
    let dir = server.dir().to_owned();
    drop(server);
    assert!(dir.exists() && (!root || dir.starts_with("/var/lib/longhaul")), "it lasts: {}", dir.display());
    let again = start().await;
    assert_eq!(again.dir(), dir);
    drop(again);
    if root {
        std::fs::remove_file(&wanted).unwrap();
        let afresh = start().await;
        let other = afresh.dir().to_owned();
        drop(afresh);
        assert_ne!(other, dir, "removing what was asked for starts afresh");
        std::fs::remove_dir_all(&other).unwrap();
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn command_gets_server_urls_and_keeps_exit_code() {
    let report = tempfile::NamedTempFile::new().unwrap();
    let script = "echo \"$DATABASE_URL $REDIS_URL\" >\"$0\"; exit 7";
    let args = ["-c".into(), script.into(), report.path().as_os_str().to_owned()];
    assert_eq!(with_servers(Path::new("/bin/sh"), &args).await.unwrap(), 7);
    let report = std::fs::read_to_string(report.path()).unwrap();
    let (postgres, redis) = report.trim().split_once(' ').unwrap();
    assert!(postgres.starts_with("postgres://longhaul:") && redis.starts_with("redis://:"), "{report}");
    for url in [postgres, redis] {
        let url = reqwest::Url::parse(url).unwrap();
        let address = (url.host_str().unwrap(), url.port().unwrap());
        assert!(tokio::net::TcpStream::connect(address).await.is_err(), "{url} is still served");
    }
}

#[tokio::test]
async fn tests_share_a_redis_and_not_their_keys() {
    let (one, other) = (TestRedis::create().await, TestRedis::create().await);
    assert_eq!(one.url, other.url);
    assert_ne!(one.prefix, other.prefix);
    let _: () = redis_connection(&one.url).await.set(&one.prefix, 1).await.unwrap();
}

#[tokio::test]
async fn dedicated_server_can_hold_a_migrated_database() {
    let server = dedicated_postgres().await;
    let db = TestDb::create_on(server.url()).await;
    sqlx::query("select count(*) from _sqlx_migrations").execute(&db.pool).await.unwrap();
}
