//! Private servers after their owner is killed. Only a whole process can be killed, so these tests run themselves a
//! second time as the owner.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use longhaul_embedded::{PostgresOptions, PrivatePostgres};
use sqlx::{Connection, PgConnection};
use tokio::process::Child;

use crate::support::servers::{dedicated_postgres, dedicated_redis};
use crate::support::wait::eventually;

/// Variable with the path of the owner's report; set for that process only.
const REPORT: &str = "LONGHAUL_TEST_OWNER_REPORT";

/// Returns true if a process runs.
pub(super) fn exists(pid: i32) -> bool {
    stat(pid).is_some_and(|fields| fields[0] != "Z")
}

/// Fields of `/proc/<pid>/stat` after the name: state, parent, process group, …
fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// Path of the report if this process is the owner.
#[expect(clippy::disallowed_methods, reason = "tells the second process what it is")]
fn as_owner() -> Option<PathBuf> {
    std::env::var_os(REPORT).map(PathBuf::from)
}

/// Runs `test` as an owner and waits for its report.
async fn run_owner(test: &str) -> (Child, String) {
    let report = tempfile::NamedTempFile::new().unwrap();
    let owner = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args([&format!("support_tests::owner::{test}"), "--exact"])
        .env(REPORT, report.path())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let lines = eventually("the owner reports its servers", Duration::from_secs(60), async || {
        let text = std::fs::read_to_string(report.path()).unwrap_or_default();
        if text.ends_with("done\n") { Ok(text) } else { Err(format!("{text:?}")) }
    })
    .await;
    (owner, lines)
}

/// Kills with SIGKILL, which no process can catch.
async fn kill(mut owner: Child) {
    owner.start_kill().unwrap();
    owner.wait().await.unwrap();
}

#[tokio::test]
async fn paused_servers_stop_when_their_owner_is_killed() {
    if let Some(report) = as_owner() {
        own_two_servers(&report).await;
    }
    let (owner, lines) = run_owner("paused_servers_stop_when_their_owner_is_killed").await;
    let reported: Vec<&str> = lines.lines().collect();
    let pids: Vec<i32> = reported[..2].iter().map(|pid| pid.parse().unwrap()).collect();
    let dirs: Vec<&Path> = reported[2..4].iter().map(Path::new).collect();
    assert!(pids.iter().copied().all(exists) && dirs.iter().all(|dir| dir.exists()), "{lines}");
    kill(owner).await;
    eventually("nothing is left of the servers", Duration::from_secs(30), async || {
        let left: Vec<_> = pids.iter().filter(|pid| exists(**pid)).collect();
        let dirs: Vec<_> = dirs.iter().filter(|dir| dir.exists()).collect();
        if left.is_empty() && dirs.is_empty() { Ok(()) } else { Err(format!("{left:?} {dirs:?}")) }
    })
    .await;
}

async fn own_two_servers(report: &Path) -> ! {
    let (postgres, redis) = (dedicated_postgres().await, dedicated_redis().await);
    // A session, so that the server has a child process, which the pause stops too.
    let mut client = PgConnection::connect(postgres.url()).await.unwrap();
    sqlx::query("select 1").execute(&mut client).await.unwrap();
    postgres.pause().await.unwrap();
    let (pids, dirs) = ([postgres.pid(), redis.pid()].map(Option::unwrap), [postgres.dir(), redis.dir()]);
    let text = format!("{}\n{}\n{}\n{}\ndone\n", pids[0], pids[1], dirs[0].display(), dirs[1].display());
    std::fs::write(report, text).unwrap();
    std::future::pending().await
}

#[tokio::test]
async fn directory_of_killed_owner_serves_the_next() {
    if let Some(report) = as_owner() {
        own_a_kept_server(&report).await;
    }
    let (owner, lines) = run_owner("directory_of_killed_owner_serves_the_next").await;
    let dir = PathBuf::from(lines.lines().next().unwrap());
    kill(owner).await;
    // No wait here: the first server is still on its way out.
    let server = PrivatePostgres::start(PostgresOptions::dev(&dir)).await.unwrap();
    let mut client = PgConnection::connect(server.url()).await.unwrap();
    let notes: Vec<String> = sqlx::query_scalar("select text from notes").fetch_all(&mut client).await.unwrap();
    assert_eq!(notes, ["kept"]);
    drop(server);
    std::fs::remove_dir_all(&dir).unwrap();
}

async fn own_a_kept_server(report: &Path) -> ! {
    let dir = std::env::temp_dir().join(format!("longhaul-kept-{}", uuid::Uuid::new_v4().simple()));
    let postgres = PrivatePostgres::start(PostgresOptions::dev(&dir)).await.unwrap();
    let mut client = PgConnection::connect(postgres.url()).await.unwrap();
    sqlx::query("create table notes (text text)").execute(&mut client).await.unwrap();
    sqlx::query("insert into notes values ('kept')").execute(&mut client).await.unwrap();
    std::fs::write(report, format!("{}\ndone\n", dir.display())).unwrap();
    std::future::pending().await
}

#[tokio::test]
async fn ctrl_c_reaches_the_owner_not_its_servers() {
    let (postgres, redis) = (dedicated_postgres().await, dedicated_redis().await);
    let group = |pid| stat(pid).unwrap()[2].clone();
    let own = group(i32::try_from(std::process::id()).unwrap());
    assert_ne!(group(postgres.pid().unwrap()), own);
    assert_ne!(group(redis.pid().unwrap()), own);
}
