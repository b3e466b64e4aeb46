//! The sandbox service: bounds the concurrent runs, shares them between tenants and assigns each run a user.
//!
//! Invariant: a tenant without a run starts one beyond the bound: a tenth of it, at least one, is kept for such
//! tenants.

use std::{sync::Arc, time::Duration};

use longhaul_fairness::{FairShare, Share};
use parking_lot::Mutex;
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    job::{self, JobError, JobOutcome},
    options::{Language, Options},
    setup::{Confinement, Limits, Program, Setup},
    wire::{Outcome, Request},
    workspace::{self, wire::Head},
};

/// A service whose confinement has passed the self-test. [`Sandbox::start`](Self::start) makes one.
#[derive(Debug)]
pub struct Sandbox {
    pub(crate) options: Options,
    pub(crate) confinement: Confinement,
    runs_at_once: FairShare<String>,
    /// User ids without a run; empty unless this process is root.
    users: Arc<Mutex<Vec<u32>>>,
    runs: TaskTracker,
}

/// Reason why a request was not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("too many requests run and wait")]
    Busy,
    #[error(transparent)]
    Job(#[from] JobError),
}

impl Sandbox {
    pub(crate) fn new(options: Options, confinement: Confinement) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        let kept = (options.concurrency / 10).max(1);
        let users =
            if is_root { (options.first_user..).take(options.concurrency + kept).collect() } else { Vec::new() };
        let runs_at_once = FairShare::new(options.concurrency as u64).keeping(kept as u64).line(options.queue_max);
        Self { confinement, runs_at_once, users: Arc::new(Mutex::new(users)), runs: TaskTracker::new(), options }
    }

    /// Name of the confinement: `namespaces`, `landlock` or `none`.
    #[must_use]
    pub fn confinement(&self) -> &'static str {
        self.confinement.name()
    }

    /// Number of current runs.
    pub(crate) fn running(&self) -> u64 {
        self.runs_at_once.used()
    }

    /// Waits for a turn of the tenant and runs the code. Dropping the future ends the run.
    pub(crate) async fn execute(&self, tenant: String, request: Request) -> Result<Outcome, Refused> {
        let turn = self.turn(tenant, self.options.queue_wait).await?;
        let program = match request.language {
            Language::Python => Program::Python(self.options.python.clone()),
            Language::Bash => Program::Bash(self.options.bash.clone()),
        };
        let input = request.for_program(self.options.result_bytes);
        let time = Duration::from_secs_f64(request.seconds);
        let ended = self.run(turn, program, input, self.limits(time)).await?;
        Ok(Outcome::of(&request, &ended, &self.options))
    }

    /// Runs the command of a workspace. `request` is the whole request. Dropping the future ends the run.
    pub(crate) async fn workspace(&self, turn: Turn, head: &Head, request: Vec<u8>) -> Result<JobOutcome, JobError> {
        let time = head.timeout_seconds.map_or(self.options.timeout, |seconds| {
            Duration::from_secs_f64(seconds.clamp(1.0, self.options.timeout_max.as_secs_f64()))
        });
        let time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let program = Program::Workspace { bash: self.options.bash.clone(), time_ms };
        let limits = self.limits(time + workspace::TRANSFER);
        let limits = Limits {
            // The command may write as much as in any run, beside the workspace.
            files_bytes: limits.files_bytes + workspace::wire::MAX_BYTES,
            files: limits.files + workspace::wire::MAX_ENTRIES as u64,
            result_bytes: workspace::MAX_MESSAGE,
            ..limits
        };
        self.run(turn, program, request, limits).await
    }

    /// Waits at most `wait` for the right of the tenant to run something, with a user id.
    pub(crate) async fn turn(&self, tenant: String, wait: Duration) -> Result<Turn, Refused> {
        let share = timeout(wait, self.runs_at_once.take(tenant, 1)).await.ok().flatten().ok_or(Refused::Busy)?;
        let user = self.users.lock().pop();
        Ok(Turn { user, users: Arc::clone(&self.users), _share: share })
    }

    /// Runs a program in a task of its own. The task holds the turn until nothing of the run is left, even if the
    /// caller has stopped waiting.
    pub(crate) async fn run(
        &self,
        turn: Turn,
        program: Program,
        input: Vec<u8>,
        limits: Limits,
    ) -> Result<JobOutcome, JobError> {
        let setup = Setup {
            confinement: self.confinement.clone(),
            program,
            limits,
            readable: self.options.readable.clone(),
            scratch: self.options.scratch.clone(),
            user: turn.user,
        };
        let options = self.options.clone();
        let cancelled = CancellationToken::new();
        let _cancels = cancelled.clone().drop_guard();
        let run = self.runs.spawn(async move {
            let ended = job::run(&options, &setup, &input, &cancelled).await;
            drop(turn);
            ended
        });
        run.await.unwrap_or_else(|error| Err(JobError::Failed(error.to_string())))
    }

    /// Waits until all runs have ended.
    pub(crate) async fn idle(&self) {
        self.runs.close();
        self.runs.wait().await;
    }

    pub(crate) fn limits(&self, time: Duration) -> Limits {
        Limits {
            wall_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            // The wall clock ends a run; this limit is for a process that is not watched. It allows two busy cores.
            cpu_seconds: time.as_secs() * 2 + 2,
            memory_bytes: self.options.memory_bytes,
            processes: self.options.processes_max,
            open_files: self.options.open_files_max,
            files_bytes: self.options.files_bytes,
            files: self.options.files_max,
            result_bytes: self.options.result_bytes,
        }
    }
}

/// The right to one run, with its user id; dropping it returns both.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) user: Option<u32>,
    users: Arc<Mutex<Vec<u32>>>,
    _share: Share<String>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // The user id goes back before the share: fields are dropped after this function.
        let users = &mut self.users.lock();
        users.extend(self.user);
    }
}
