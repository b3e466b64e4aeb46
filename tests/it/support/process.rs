//! A worker, or an API, as a process of its own: killed, stopped, asked to end, measured.

use std::{
    fs::File,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use longhaul_cli::compose;
use longhaul_embedded::free_port;
use longhaul_guards::http::{self, HttpOptions};
use longhaul_store::tenants::api_keys::Scope;
use reqwest::{Method, RequestBuilder};
use rustix::process::{Pid, Signal, kill_process};
use secrecy::ExposeSecret;
use serde_json::Value;
use tempfile::TempDir;

use super::{
    fleet::{Fleet, PATIENCE},
    wait::{SOON, eventually},
};

/// Path of the program; see `tests/bin/worker_process.rs`.
const WORKER: &str = env!("CARGO_BIN_EXE_worker-process");
const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul-program");

/// A running worker process; killed on drop. A test that fails shows the end of its log.
pub(crate) struct WorkerProcess {
    child: Child,
    dir: TempDir,
}

impl WorkerProcess {
    /// Starts a worker of the fleet and waits until it has registered.
    pub(crate) async fn start(fleet: &Fleet) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let child = Command::new(WORKER)
            .env_clear()
            .envs(fleet.environment())
            .stdin(Stdio::piped())
            .stdout(File::create(dir.path().join("out")).unwrap())
            .stderr(File::create(dir.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let process = Self { child, dir };
        process.identity(fleet).await;
        process
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Current worker id of the process; waits until it has one.
    pub(crate) async fn identity(&self, fleet: &Fleet) -> uuid::Uuid {
        eventually("the process registers", SOON, || async {
            let id: Option<uuid::Uuid> =
                sqlx::query_scalar("select id from live_workers where pid = $1 and expires_at > clock_timestamp()")
                    .bind(self.pid())
                    .fetch_optional(&fleet.db.pool)
                    .await
                    .unwrap();
            id.ok_or("no live row")
        })
        .await
    }

    /// `kill -9`; returns when the process is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until the process has ended by itself.
    pub(crate) async fn ended(&mut self, timeout: Duration) -> ExitStatus {
        eventually("the process ends", timeout, async || self.child.try_wait().unwrap().ok_or("it runs")).await
    }

    /// Metrics that it wrote when it ended.
    pub(crate) fn metrics(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("out")).unwrap()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Resident memory in MiB.
    pub(crate) fn resident_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1_024
    }

    /// Processor time it has used, in ticks of 10 ms.
    pub(crate) fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("worker process {}:\n{}", self.child.id(), lines[lines.len().saturating_sub(40)..].join("\n"));
        }
    }
}

/// `longhaul api` as a process, with a key.
pub(crate) struct ApiProcess {
    child: Child,
    pub(crate) url: String,
    key: String,
    pub(crate) client: reqwest::Client,
}

impl ApiProcess {
    pub(crate) async fn start(fleet: &mut Fleet) -> Self {
        fleet.set("LONGHAUL_API_KEY_PEPPER", "pepper of the test, thirty-two characters");
        let pepper = compose::pepper(&fleet.config()).unwrap();
        let key = fleet.store.issue_api_key(fleet.tenant, "test", Scope::ALL, &pepper).await.unwrap().key;
        let listen = format!("127.0.0.1:{}", free_port().unwrap());
        let mut command = Command::new(PROGRAM);
        command.args(["api", "--listen", &listen]).env_clear().envs(fleet.environment());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let (url, client) = (format!("http://{listen}"), http::client(&HttpOptions::default()).unwrap());
        let api = Self { child, url, key: key.expose_secret().to_owned(), client };
        eventually("the API is ready", PATIENCE, async || {
            let answer =
                api.client.get(format!("{}/readyz", api.url)).send().await.map_err(|error| error.to_string())?;
            if answer.status().is_success() { Ok(()) } else { Err(answer.status().to_string()) }
        })
        .await;
        api
    }

    /// A request for a path below `/v1`.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}/v1/{path}", self.url)).bearer_auth(&self.key)
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.request(Method::POST, path).json(body).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        answer.json().await.unwrap()
    }

    /// Ends the process, which exports its last spans.
    pub(crate) async fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        eventually("the API ends", PATIENCE, async || self.child.try_wait().unwrap().ok_or("it runs")).await;
    }
}

impl Drop for ApiProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
