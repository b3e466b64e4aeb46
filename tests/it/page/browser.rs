//! The page in a browser: runs `tests/page/run.mjs` against `longhaul dev`.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::support::{
    npm,
    wait::{eventually, within},
};

/// The program; see `tests/Cargo.toml`.
const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul-program");
/// Variable with the path of the browser, or `none`; as for the tests of the browser tools.
const VARIABLE: &str = "LONGHAUL_TEST_BROWSER";
/// Paths in Debian's packages.
const BROWSERS: [&str; 2] = ["/usr/bin/chromium", "/usr/bin/chromium-headless-shell"];
/// Time for the server's start and end, and for all flows on a machine that has other work.
const PATIENCE: Duration = Duration::from_secs(300);
/// Makes a second key, whose calls the page's visitor may approve, and runs the flows.
const RUN: &str = r#". ./.longhaul/env
ROBOT=$("$PROGRAM" keys create --name robot --org dev --scopes executions:read,executions:write,definitions:read,admin)
exec node "$TESTS/run.mjs" "$LONGHAUL_URL" "$LONGHAUL_API_KEY" "$ROBOT" "$PWD" "$PROGRAM" "$BROWSER""#;

#[expect(clippy::disallowed_methods, reason = "a setting of the test run, which shared::config knows nothing about")]
fn browser() -> Option<String> {
    let given = std::env::var(VARIABLE).ok();
    let mut paths = given.iter().map(String::as_str).chain(BROWSERS.into_iter().filter(|_| given.is_none()));
    paths.find(|path| Path::new(path).is_file()).map(str::to_owned)
}

pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copy = to.join(path.file_name().unwrap());
        if path.is_dir() {
            self::copy(&path, &copy);
        } else {
            fs::copy(&path, &copy).unwrap();
        }
    }
}

/// A copy of `tests/page` with its packages; `None` if npm cannot install them here.
async fn scripts(root: &Path) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    copy(&root.join("tests/page"), &folder);
    npm::installed(&folder).await.then_some(folder)
}

/// A command in `dir` without the settings of the test's own environment.
fn command(program: &str, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", dir);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// `longhaul dev` with the agents and definitions of the repository, once it has written its address and keys.
async fn start(root: &Path, dir: &Path) -> Child {
    for name in ["agents", "definitions", "examples/data"] {
        copy(&root.join(name), &dir.join(name));
    }
    let log = dir.join("server.log");
    let mut server = command(PROGRAM, dir)
        .args(["dev", "--listen", "127.0.0.1:0"])
        .stdout(File::create(&log).unwrap())
        .stderr(File::options().append(true).open(&log).unwrap())
        .spawn()
        .unwrap();
    eventually("the server runs", PATIENCE, async || {
        let said = fs::read_to_string(&log).unwrap();
        assert!(server.try_wait().unwrap().is_none(), "the server ended: {said}");
        if dir.join(".longhaul/env").exists() { Ok(()) } else { Err(said) }
    })
    .await;
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_work_with_the_page_in_a_browser() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let Some(browser) = browser() else {
        eprintln!("SKIPPED: no Chromium; install Debian's `chromium` or set {VARIABLE}");
        return;
    };
    let Some(tests) = scripts(root).await else {
        eprintln!("SKIPPED: npm cannot install the packages of tests/page here");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    // Servers that root starts run as another user.
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let mut server = start(root, dir.path()).await;
    let mut flows = command("sh", dir.path());
    flows.args(["-euc", RUN]).env("PROGRAM", PROGRAM).env("TESTS", &tests).env("BROWSER", browser);
    let output = within("all flows end", PATIENCE, flows.output()).await.unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("signing out ends the session"), "{text}");
    let pid = Pid::from_raw(i32::try_from(server.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let ended = within("the server ends", PATIENCE, server.wait()).await.unwrap();
    assert!(ended.success(), "{ended}");
}
