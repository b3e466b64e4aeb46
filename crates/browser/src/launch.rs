//! The process of a browser: how it is started, watched and ended.

use std::{
    fs::File,
    io::{self, PipeReader, Read, Seek},
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use longhaul_config::BrowserConfig;
use longhaul_domain::TenantId;
use longhaul_fairness::Share;
use rustix::process::geteuid;
use tempfile::TempDir;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio_util::task::AbortOnDropHandle;

use crate::{facts::Facts, proxy::Proxy, usage};

const GUARD: &str = include_str!("guard.sh");
/// Interval at which memory and disk are measured. Each process has a limit of the kernel meanwhile.
const MEASURE: Duration = Duration::from_millis(250);
/// Bytes of the browser's directory. Pages write to memory only, so it stays far below.
const DISK_BYTES: u64 = 64 << 20;
/// Size of the page, in pixels.
pub(crate) const VIEW: (u32, u32) = (1280, 800);

/// A started browser: its `DevTools` pipes, and what keeps it.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) commands: ChildStdin,
    pub(crate) messages: ChildStdout,
    pub(crate) process: Process,
}

/// The process of a browser. Its guard ends it when `Facts::end` is called or the last [`Facts`] is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    /// What the browser wrote to standard error, from its beginning.
    log: File,
    _watching: AbortOnDropHandle<()>,
}

/// Starts the browser under a guard. `place` is given back when its last process is gone.
pub(crate) fn launch(
    config: &BrowserConfig,
    program: &Path,
    (life, facts): (PipeReader, &Arc<Facts>),
    proxy: &Proxy,
    place: Arc<Share<TenantId>>,
) -> io::Result<Launched> {
    let user = geteuid().is_root().then_some(config.user);
    let dir = directory(config, user)?;
    let log = File::options().read(true).write(true).create_new(true).open(dir.path().join("log"))?;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", GUARD, "longhaul-browser"]).arg(dir.path());
    command.arg(user.map_or_else(String::new, |user| user.to_string()));
    command.arg((config.memory_bytes >> 10).to_string()).arg(program).args(flags(config, dir.path(), proxy));
    command.env_clear().envs([("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LANG", "C.UTF-8")]);
    command.env("HOME", dir.path()).env("TMPDIR", dir.path()).current_dir("/");
    // Ctrl-C at a terminal must reach only the worker.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::from(life)).process_group(0);
    let mut guard = command.spawn()?;
    // The guard removes it, also when the worker is gone.
    let dir = dir.keep();
    let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
    let (commands, messages) = (guard.stdin.take().ok_or_else(broken)?, guard.stdout.take().ok_or_else(broken)?);
    let watching = watch(config, dir, guard.id().ok_or_else(broken)?, Arc::clone(facts));
    // Ends with the guard, which ends with the browser.
    tokio::spawn(wait(guard, place));
    Ok(Launched { commands, messages, process: Process { log, _watching: watching } })
}

async fn wait(mut guard: Child, place: Arc<Share<TenantId>>) {
    let _ = guard.wait().await;
    drop(place);
}

fn directory(config: &BrowserConfig, user: Option<u32>) -> io::Result<TempDir> {
    let parent = config.scratch_dir.as_ref().map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::Builder::new().prefix("longhaul-browser-").tempdir_in(parent)?;
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700))?;
    if user.is_some() {
        chown(dir.path(), user, user)?;
    }
    Ok(dir)
}

/// Flags of the browser. `tests/it/browser/reach.rs` holds those that keep pages from the network.
fn flags(config: &BrowserConfig, dir: &Path, proxy: &Proxy) -> Vec<String> {
    let mut flags = vec![
        "--remote-debugging-pipe".to_owned(),
        format!("--user-data-dir={}", dir.display()),
        // Everything over the proxy, loopback too, and names are resolved nowhere else.
        format!("--proxy-server=socks5://{}", proxy.address),
        "--proxy-bypass-list=<-loopback>".to_owned(),
        "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1".to_owned(),
        // No UDP.
        "--disable-quic".to_owned(),
        "--force-webrtc-ip-handling-policy=disable_non_proxied_udp".to_owned(),
        // A page opens no windows; `Page.windowOpen` tells which it wanted.
        "--block-new-web-contents".to_owned(),
        format!("--window-size={},{}", VIEW.0, VIEW.1),
        // A frame of another site has a process of its own. The shell does not do so by itself.
        "--site-per-process".to_owned(),
        "--renderer-process-limit=4".to_owned(),
    ];
    let others = [
        "--disable-gpu",
        "--disable-3d-apis",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-default-apps",
        "--disable-extensions",
        "--disable-breakpad",
        "--mute-audio",
        "--no-first-run",
        "--no-pings",
    ];
    flags.extend(others.map(str::to_owned));
    if config.dangerously_without_sandbox {
        flags.push("--no-sandbox".to_owned());
    }
    flags
}

/// Ends the browser when it uses too much, is not used, or is to give way.
fn watch(config: &BrowserConfig, dir: PathBuf, guard: u32, facts: Arc<Facts>) -> AbortOnDropHandle<()> {
    let (max_memory, idle) = (config.memory_bytes, config.idle);
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            tokio::time::sleep(MEASURE).await;
            facts.give_way();
            if facts.gone().is_some() {
                return;
            }
            if facts.used().elapsed() > idle {
                return facts.end(&format!("it was closed after {} s without a call", idle.as_secs()));
            }
            let dir = dir.clone();
            let measured = tokio::task::spawn_blocking(move || (usage::memory(guard), usage::disk(&dir))).await;
            match measured {
                Ok((memory, _)) if memory > max_memory => {
                    return facts.end(&format!("the page used more than {max_memory} bytes of memory"));
                }
                Ok((_, disk)) if disk > DISK_BYTES => {
                    return facts.end(&format!("the page used more than {DISK_BYTES} bytes of disk"));
                }
                Ok(_) | Err(_) => {}
            }
        }
    }))
}

impl Process {
    /// The beginning of the browser's standard error, for the worker's log.
    pub(crate) fn log(&mut self) -> String {
        let mut text = String::new();
        let _ = self.log.rewind();
        let _ = (&mut self.log).take(4_096).read_to_string(&mut text);
        text
    }
}
