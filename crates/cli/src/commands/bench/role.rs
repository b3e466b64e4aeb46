//! A role of Longhaul as a process of its own, so that what it uses is its own.

use std::{collections::BTreeMap, fs::File, path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::cpu;

/// For a drain with nothing left to do.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// The running process. Dropping it kills it.
pub(super) struct Role {
    child: Child,
    pid: u32,
    name: &'static str,
}

impl Role {
    /// Starts this program with `args`; its log goes into `dir`.
    pub(super) fn start(
        name: &'static str,
        args: &[&str],
        environment: &BTreeMap<String, String>,
        dir: &Path,
    ) -> anyhow::Result<Self> {
        let log = File::create(dir.join(format!("{name}.log")))?;
        let child = Command::new(std::env::current_exe()?)
            .args(args)
            // Nothing of the caller's: a model key that is set there must not be used.
            .env_clear()
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("the {name} cannot be started"))?;
        let pid = child.id().with_context(|| format!("the {name} ended at once"))?;
        Ok(Self { child, pid, name })
    }

    /// Seconds of processor time so far; 0 where the system does not say.
    pub(super) fn cpu_seconds(&self) -> f64 {
        cpu::seconds(self.pid).unwrap_or_default()
    }

    /// Bytes in memory; 0 where the system does not say.
    pub(super) fn resident_bytes(&self) -> u64 {
        cpu::resident_bytes(self.pid).unwrap_or_default()
    }

    /// Fails when it has ended.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("the {} ended: {status}", self.name),
            None => Ok(()),
        }
    }

    /// Asks it to drain and waits for it.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM)?;
        }
        let ended = tokio::time::timeout(STOP_LIMIT, self.child.wait()).await;
        let status = ended.with_context(|| format!("the {} did not stop", self.name))??;
        anyhow::ensure!(status.success(), "the {} ended with {status}", self.name);
        Ok(())
    }
}
