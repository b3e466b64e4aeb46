//! PgBouncer between Longhaul and Postgres: in transaction mode no session belongs to Longhaul, in session mode its
//! sessions lose their settings, so every role refuses to start.

use std::fs::{self, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use longhaul_embedded::free_port;
use longhaul_store::{Store, StoreError, StoreOptions};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions};
use tempfile::TempDir;

use crate::support::db::TestDb;
use crate::support::redis::TestRedis;
use crate::support::wait::{SOON, eventually};

/// Path of the program; see `tests/Cargo.toml`.
const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul-program");
/// Startup parameter that the Postgres client always sends.
const IGNORED: &str = "extra_float_digits";
/// Unprivileged user id, because PgBouncer refuses to run as root.
const NOBODY: u32 = 65_534;

/// Modes of PgBouncer.
const TRANSACTION: &str = "transaction";
const SESSION: &str = "session";

/// A PgBouncer in front of one database; stopped on drop.
struct Pooler {
    child: Child,
    url: String,
    _dir: TempDir,
}

impl Pooler {
    async fn before(db: &TestDb, mode: &str, ignored: &str) -> Self {
        let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].into_iter().find(|path| Path::new(path).exists());
        let program = program.expect("PgBouncer is not installed; run: sh deploy/bootstrap.sh");
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port().unwrap());
        let server = url::Url::parse(&db.url).unwrap();
        let text = format!(
            "[databases]\n{name} = host=127.0.0.1 port={at} user={user} password={password}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = {mode}\n\
             ignore_startup_parameters = {ignored}\n",
            name = db.name,
            at = server.port().unwrap(),
            user = server.username(),
            password = server.password().unwrap_or_default(),
        );
        let file = dir.path().join("pgbouncer.ini");
        fs::write(&file, text).unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(program);
        command.arg("--quiet").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if rustix::process::getuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let child = command.spawn().unwrap();
        eventually("PgBouncer listens", SOON, async || TcpStream::connect(("127.0.0.1", port)).map(drop)).await;
        let url = PgConnectOptions::from_str(&db.url).unwrap().host("127.0.0.1").port(port).to_url_lossy();
        Self { child, url: url.to_string(), _dir: dir }
    }

    /// The start-up refusal of a store behind this pooler.
    async fn refusal(&self) -> String {
        let store = Store::open(StoreOptions::new(&self.url)).unwrap();
        match tokio::time::timeout(SOON, store.refuse_unsafe_server()).await.expect("a verdict") {
            Err(StoreError::Conflict(why)) => why,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Gives every session of the database the settings that a pooler drops.
async fn settings_of_the_database(db: &TestDb) {
    for (name, value) in [
        ("statement_timeout", "30s"),
        ("lock_timeout", "5s"),
        ("idle_in_transaction_session_timeout", "5s"),
        ("jit", "off"),
    ] {
        let set = format!("alter database {} set {name} = '{value}'", db.name);
        sqlx::query(AssertSqlSafe(set)).execute(&db.pool).await.unwrap();
    }
}

/// Gives every session the sign of its options too.
async fn mark_of_the_database(db: &TestDb) {
    let set = format!("alter database {} set longhaul.options = 'kept'", db.name);
    sqlx::query(AssertSqlSafe(set)).execute(&db.pool).await.unwrap();
}

#[tokio::test]
async fn pooler_that_refuses_session_settings_is_named() {
    let db = TestDb::create().await;
    let why = Pooler::before(&db, TRANSACTION, IGNORED).await.refusal().await;
    assert!(why.starts_with("a pooler refuses the settings of a session (unsupported startup parameter"), "{why}");
}

#[tokio::test]
async fn pooler_that_drops_session_settings_is_refused() {
    let db = TestDb::create().await;
    let why = Pooler::before(&db, TRANSACTION, &format!("{IGNORED}, options")).await.refusal().await;
    assert!(why.contains("jit is on instead of off"), "{why}");
    assert!(why.contains("statement_timeout is 0 instead of 30000"), "{why}");
}

#[tokio::test]
async fn pooler_in_session_mode_is_refused_with_right_settings() {
    let db = TestDb::create().await;
    settings_of_the_database(&db).await;
    let why = Pooler::before(&db, SESSION, &format!("{IGNORED}, options")).await.refusal().await;
    assert!(why.contains("(longhaul.options is not set instead of kept)"), "{why}");
}

#[tokio::test]
async fn pooler_in_transaction_mode_is_refused_with_right_settings() {
    let db = TestDb::create().await;
    settings_of_the_database(&db).await;
    mark_of_the_database(&db).await;
    let why = Pooler::before(&db, TRANSACTION, &format!("{IGNORED}, options")).await.refusal().await;
    assert!(why.starts_with("two connections to Postgres share one session"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_role_refuses_to_start_behind_a_pooler() {
    let (db, redis) = (TestDb::create().await, TestRedis::create().await);
    settings_of_the_database(&db).await;
    mark_of_the_database(&db).await;
    let pooler = Pooler::before(&db, TRANSACTION, &format!("{IGNORED}, options")).await;
    let roles: [&[&str]; 5] =
        [&["api"], &["worker"], &["migrate"], &["prune", "--older-than", "365d"], &["keys", "list", "--org", "o"]];
    for role in roles {
        let mut command = tokio::process::Command::new(PROGRAM);
        command.args(role).env_clear().env("DATABASE_URL", &pooler.url).env("REDIS_URL", &redis.url);
        command.env("LONGHAUL_API_KEY_PEPPER", "p".repeat(32)).env("LONGHAUL__API__LISTEN", "127.0.0.1:0");
        command.env("LONGHAUL__LLM__DEFAULT_PROVIDER", "scripted");
        command.kill_on_drop(true).stdin(Stdio::null());
        let ran =
            tokio::time::timeout(Duration::from_secs(60), command.output()).await.expect("the role ends").unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(!ran.status.success() && said.contains("share one session"), "{role:?}: {said}");
    }
}
