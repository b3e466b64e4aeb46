//! The tools over a browser: a real headless Chromium, pages that the tests serve on loopback, and pages that try to
//! get out.

mod hostile;
mod life;
mod reach;
mod tools;

use std::{
    convert::Infallible,
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    http::header,
    response::{IntoResponse, Redirect, Response},
};
use futures::StreamExt;
use longhaul_browser::{Browser, BrowserError, Browsers, Transfer};
use longhaul_config::{BrowserConfig, Config, Sources};
use longhaul_domain::TenantId;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::support::wait::eventually;

/// Variable with the path of the browser, or `none` where no package has one: then nothing here is tested.
const VARIABLE: &str = "LONGHAUL_TEST_BROWSER";
/// Path in Debian's package `chromium-headless-shell`, which `deploy/browser.sh` installs.
const PROGRAM: &str = "/usr/bin/chromium-headless-shell";
/// Time limit of a call that is not about time.
const PATIENCE: Duration = Duration::from_secs(40);

/// The browser of this machine; `None` if the tests were told that there is none.
#[expect(clippy::disallowed_methods, reason = "a setting of the test run, which shared::config knows nothing about")]
fn program() -> Option<String> {
    let program = std::env::var(VARIABLE).unwrap_or_else(|_| PROGRAM.to_owned());
    if program == "none" {
        eprintln!("{VARIABLE} is none: no browser is tested");
        return None;
    }
    assert!(
        Path::new(&program).is_file(),
        "{program} does not exist; run: sh deploy/browser.sh, or set {VARIABLE} to its path or to none"
    );
    Some(program)
}

/// Settings of a browser that reaches these hosts.
fn config(private_hosts: &[&str], more: &[(&str, &str)]) -> Option<BrowserConfig> {
    let program = program()?;
    let hosts = private_hosts.join(",");
    // Slow machines start a browser in seconds.
    let given = [("program", program.as_str()), ("call_seconds", "60"), ("load_seconds", "20")];
    let flags = given.iter().chain(more).map(|(key, value)| (format!("browser.{key}"), (*value).to_owned()));
    let mut environment = std::collections::BTreeMap::new();
    if !hosts.is_empty() {
        environment.insert("LONGHAUL__BROWSER__PRIVATE_HOSTS".to_owned(), hosts);
    }
    let sources = Sources { flags: flags.collect(), environment, ..Sources::default() };
    Some(Config::load(&sources).unwrap().browser)
}

const TENANT: TenantId = TenantId(Uuid::nil());

/// Starts a browser, once less than the maximum run.
async fn open(browsers: &Browsers, transfer: &Arc<Transfer>) -> Result<Browser, BrowserError> {
    browsers.open(transfer, browsers.slot(TENANT).await?).await
}

/// A browser that reaches these hosts.
async fn browser(private_hosts: &[&str], more: &[(&str, &str)]) -> Option<Browser> {
    let config = config(private_hosts, more)?;
    let transfer = Transfer::new(config.transfer_bytes);
    let browsers = Browsers::new(&config).unwrap().unwrap();
    Some(tokio::time::timeout(PATIENCE, open(&browsers, &transfer)).await.expect("it starts in time").unwrap())
}

/// A web site on loopback.
struct Site {
    host: String,
    /// Method, path with query, and body of each request.
    requests: Arc<Mutex<Vec<String>>>,
    _serving: AbortOnDropHandle<()>,
}

impl Site {
    /// Serves these pages. Beside them: `/endless` never ends, `/silent` never answers, `/to?URL` redirects, `/file`
    /// is a download.
    async fn start(pages: &'static [(&'static str, &'static str)]) -> Self {
        Self::serve(move |path| pages.iter().find(|(at, _)| *at == path).map(|(_, page)| (*page).to_owned())).await
    }

    async fn serve(page: impl Fn(&str) -> Option<String> + Clone + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        let router = Router::new().fallback(move |request: Request| {
            let (page, seen) = (page.clone(), seen.clone());
            async move { respond(page, &seen, request).await }
        });
        let serving = AbortOnDropHandle::new(tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }));
        Self { host, requests, _serving: serving }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.host)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    async fn requested(&self, request: &str) {
        eventually(request, PATIENCE, || async {
            let seen = self.requests();
            if seen.iter().any(|one| one == request) { Ok(()) } else { Err(seen.join(", ")) }
        })
        .await;
    }
}

async fn respond(page: impl Fn(&str) -> Option<String>, seen: &Mutex<Vec<String>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap_or_default();
    let said = format!("{} {} {}", parts.method, parts.uri, String::from_utf8_lossy(&body)).trim_end().to_owned();
    seen.lock().unwrap().push(said);
    let html = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    match parts.uri.path() {
        "/silent" => std::future::pending().await,
        "/to" => Redirect::temporary(parts.uri.query().unwrap_or_default()).into_response(),
        "/endless" => {
            let part = || async { Ok::<_, Infallible>(Bytes::from_static(b"<p>more</p>")) };
            let first = futures::stream::once(part());
            (html, Body::from_stream(first.chain(futures::stream::pending()))).into_response()
        }
        "/file" => ([(header::CONTENT_DISPOSITION, "attachment; filename=x.bin")], vec![0_u8; 100]).into_response(),
        path => match page(path) {
            Some(page) => (html, page).into_response(),
            None => (axum::http::StatusCode::NOT_FOUND, html, "<title>none</title>").into_response(),
        },
    }
}

/// Number of the element in a page's text whose description has these words.
fn number(text: &str, words: &str) -> u32 {
    let markers = text.split('[').skip(1).filter_map(|rest| rest.split(']').next());
    let found = markers.into_iter().find(|marker| marker.contains(words));
    let found = found.unwrap_or_else(|| panic!("no element `{words}` in {text}"));
    found.split(' ').next().unwrap().parse().unwrap()
}

/// A live process.
struct Process {
    id: i32,
    session: i32,
    /// Command line, then environment.
    line: String,
}

fn all_processes() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let read = |id: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let of = |file: &str| std::fs::read(format!("/proc/{id}/{file}")).unwrap_or_default();
        let line =
            [of("cmdline"), of("environ")].map(|text| String::from_utf8_lossy(&text).replace('\0', " ")).concat();
        (!["Z", "X"].contains(&fields[0])).then(|| Process { id, session: fields[3].parse().unwrap(), line })
    };
    ids.filter_map(read).collect()
}

/// The processes of browsers and their guards.
#[derive(Default)]
struct Running {
    /// Sessions of the browsers.
    sessions: Vec<i32>,
    /// Path that is in the command lines or environments of the first processes, and of the guards.
    dir: String,
}

impl Running {
    /// The browsers below this directory.
    fn below(scratch: &str) -> Self {
        let dir = format!("{scratch}/longhaul-browser-");
        // Each leads a session of its own. Helpers of the guards are in the worker's session.
        let first = all_processes().into_iter().filter(|one| one.id == one.session && one.line.contains(&dir));
        Self { sessions: first.map(|one| one.session).collect(), dir }
    }

    fn lines(&self) -> Vec<String> {
        let all = all_processes().into_iter();
        let mine = all.filter(|one| self.sessions.contains(&one.session) || one.line.contains(&self.dir));
        mine.map(|one| format!("{} {}", one.id, &one.line[..one.line.len().min(120)])).collect()
    }

    /// Sends SIGSTOP to the browsers: they cannot see that their pipe closes, as if a page had taken them over.
    fn stop(&self) {
        let mine = all_processes().into_iter().filter(|one| self.sessions.contains(&one.session));
        let stopped: Vec<_> = mine.map(|one| kill_process(Pid::from_raw(one.id).unwrap(), Signal::STOP)).collect();
        assert!(stopped.len() > 3, "a browser has more processes: {:?}", self.lines());
    }

    /// Waits until no process of the browsers and guards is left, and no directory.
    async fn all_gone(&self) {
        let scratch = Path::new(&self.dir).parent().unwrap();
        eventually("no browser is left", PATIENCE, || async {
            let (left, running) = (std::fs::read_dir(scratch).unwrap().count(), self.lines());
            if left == 0 && running.is_empty() { Ok(()) } else { Err(format!("{left} directories, {running:?}")) }
        })
        .await;
    }
}

/// A directory for browsers that no other test uses.
fn scratch() -> (TempDir, String) {
    let scratch = tempfile::tempdir().unwrap();
    // The browser's user must reach its own directory.
    std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o711)).unwrap();
    let path = scratch.path().to_str().unwrap().to_owned();
    (scratch, path)
}
