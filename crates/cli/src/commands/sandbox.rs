//! `longhaul sandbox`: the role that runs untrusted code. It starts the two hidden commands for each request.

use std::{env, net::SocketAddr, path::PathBuf};

use anyhow::Context as _;
use longhaul_command::{Exit, context::flag, output, signals};
use longhaul_config::{Config, ConfigError, SandboxConfinement, reveal};
use longhaul_sandbox::{Choice, Language, Options, Sandbox, init, serve, warden};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Run code for agents, confined: python and bash over HTTP
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Needs bubblewrap and user namespaces, or a kernel with landlock; python3 and bash. No database and no Redis.
At start it tries to get out of what it confines with, says what holds, and does not serve where nothing does.
SIGTERM or Ctrl-C lets runs end and stops; a second one stops at once.

Examples:
  longhaul sandbox
  longhaul sandbox --listen 0.0.0.0:6000 --concurrency 8 --languages python
  curl http://127.0.0.1:6000/v1/execute -d '{\"language\": \"python\", \"code\": \"result = input_payload * 2\", \
\"input\": 21}'")]
pub struct SandboxArgs {
    /// Address and port to listen on; 127.0.0.1:6000 unless configured
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Largest number of runs at a time
    #[arg(long, value_name = "N")]
    concurrency: Option<usize>,
    /// Memory limit of one run, in bytes
    #[arg(long, value_name = "BYTES")]
    memory_bytes: Option<u64>,
    /// Upper bound for the timeout of a run, in seconds, whatever the request says
    #[arg(long, value_name = "SECONDS")]
    timeout_max_seconds: Option<f64>,
    /// Allowed languages, separated by commas: python, bash
    #[arg(long, value_name = "A,B")]
    languages: Option<String>,
    /// Method of confinement: auto, namespaces or landlock
    #[arg(long, value_name = "WHAT")]
    confinement: Option<String>,
    /// Serve even if no confinement is available: code may then do what this user may do
    #[arg(long)]
    dangerously_run_unconfined: bool,
}

impl SandboxArgs {
    #[must_use]
    pub fn flags(&self) -> Vec<(String, String)> {
        let unconfined = self.dangerously_run_unconfined.then_some("true");
        let flags = [
            flag("sandbox.listen", self.listen),
            flag("sandbox.concurrency", self.concurrency),
            flag("sandbox.memory_bytes", self.memory_bytes),
            flag("sandbox.timeout_max_seconds", self.timeout_max_seconds),
            flag("sandbox.languages", self.languages.as_ref()),
            flag("sandbox.confinement", self.confinement.as_ref()),
            flag("sandbox.dangerously_run_unconfined", unconfined),
        ];
        flags.into_iter().flatten().collect()
    }
}

/// Serves until a signal.
///
/// # Errors
/// A setting is missing, no confinement is available, the address is in use, or the listener failed.
pub async fn run(config: Config) -> anyhow::Result<Exit> {
    let shutdown = CancellationToken::new();
    let listen = config.sandbox.listen;
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let options = options(&config)?;
    if options.token.is_none() && !listen.ip().is_loopback() {
        tracing::warn!("whoever reaches {listen} may run code: there is no sandbox.token");
    }
    let stop = shutdown.clone();
    signals::with_shutdown(shutdown, async move {
        let sandbox = tokio::select! {
            started = Sandbox::start(options) => started?,
            () = stop.cancelled() => return Ok(Exit::Done),
        };
        let address = listener.local_addr()?;
        output::note(format!("the sandbox listens on {address}, confinement: {}", sandbox.confinement()));
        tracing::info!(
            server.address = %address,
            sandbox.confinement = sandbox.confinement(),
            "the sandbox listens on {address} and confines by {}",
            sandbox.confinement()
        );
        serve(sandbox, listener, stop).await?;
        tracing::info!("the sandbox has stopped");
        Ok(Exit::Done)
    })
    .await
}

fn options(config: &Config) -> Result<Options, ConfigError> {
    let sandbox = config.sandbox.clone();
    Ok(Options {
        program: PathBuf::from("/proc/self/exe"),
        confinement: match sandbox.confinement {
            SandboxConfinement::Auto => Choice::Auto,
            SandboxConfinement::Namespaces => Choice::Namespaces,
            SandboxConfinement::Landlock => Choice::Landlock,
        },
        dangerously_run_unconfined: sandbox.dangerously_run_unconfined,
        languages: sandbox.languages.iter().filter_map(|name| Language::of(name)).collect(),
        python: sandbox.python,
        bash: sandbox.bash,
        bwrap: sandbox.bwrap.map(PathBuf::from),
        readable: sandbox.readable.into_iter().map(PathBuf::from).collect(),
        scratch: sandbox.scratch_dir.map_or_else(env::temp_dir, PathBuf::from),
        token: sandbox.token.as_ref().map(reveal).transpose()?,
        first_user: sandbox.first_user,
        concurrency: sandbox.concurrency,
        queue_max: sandbox.queue_max,
        queue_wait: sandbox.queue,
        timeout: sandbox.timeout,
        timeout_max: sandbox.timeout_max,
        memory_bytes: sandbox.memory_bytes,
        processes_max: sandbox.processes_max,
        open_files_max: sandbox.open_files_max,
        files_bytes: sandbox.files_bytes,
        files_max: sandbox.files_max,
        output_bytes: sandbox.output_bytes,
        result_bytes: sandbox.result_bytes,
        code_bytes: sandbox.code_bytes,
        request_bytes: sandbox.request_bytes,
        shutdown: sandbox.shutdown,
    })
}

/// Supervise one run; started by the sandbox
#[derive(Debug, clap::Args)]
pub struct WardenArgs {}

/// Runs the request that the sandbox sends on standard input.
///
/// # Errors
/// Standard input is closed, or holds no valid request.
pub fn hold() -> anyhow::Result<Exit> {
    warden::run()?;
    Ok(Exit::Done)
}

/// Confine this process and become an interpreter, or run a command; started by the warden
#[derive(Debug, clap::Args)]
pub struct InitArgs {
    /// Setup of the run as JSON: program, confinement, limits, readable files
    inside: String,
}

/// # Errors
/// The process cannot confine itself, or start the interpreter or command.
pub fn confine(args: &InitArgs) -> anyhow::Result<Exit> {
    init::run(&args.inside)?;
    Ok(Exit::Done)
}
