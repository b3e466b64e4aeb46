//! `longhaul dev`: everything in one process, for development.

use std::{net::SocketAddr, path::PathBuf};

use longhaul_command::{Exit, context::DATA_DIR, output, signals};
use longhaul_config::Sources;
use tokio_util::sync::CancellationToken;

use crate::dev_server::{self, DevServer, DevServerOptions};

/// Run API, worker and page here, on a private PostgreSQL and Redis
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Starts private servers from the installed binaries (exit code 3 and the install command when there are none), applies
./agents and ./definitions, and writes .longhaul/env, from which the other commands take address and key. Data stays \
in the
data directory; remove it to start afresh. Without a model key agents get the scripted model.

Examples:
  longhaul dev
  longhaul dev --apply my-agents --listen 127.0.0.1:9000
  . ./.longhaul/env && longhaul worker        # a second worker, to kill")]
pub struct DevArgs {
    /// Address and port of API and page
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    data_dir: PathBuf,
    /// File or directory to apply instead of ./agents and ./definitions; may be repeated
    #[arg(long, value_name = "PATH")]
    apply: Vec<PathBuf>,
}

/// Serves until a signal.
///
/// # Errors
/// As for [`DevServer::start`] and [`DevServer::ended`].
pub async fn run(args: DevArgs, sources: Sources) -> anyhow::Result<Exit> {
    let files = dev_server::files(&args.apply)?;
    let options = DevServerOptions { data_dir: args.data_dir, listen: args.listen, files };
    let shutdown = CancellationToken::new();
    signals::with_shutdown(shutdown.clone(), async {
        let mut running = DevServer::start(options, sources, shutdown.clone()).await?;
        running.start_worker();
        say(&running);
        output::line("\nCtrl-C stops it.");
        let ended = running.ended(&shutdown).await;
        running.stop().await?;
        ended.map(|()| Exit::Done)
    })
    .await
}

/// Prints the addresses of the running parts.
pub(super) fn say(running: &DevServer) {
    let url = &running.url;
    let env = shell_path(running.env_path());
    output::line(format!("\nLonghaul is running ({} agents and definitions applied)\n", running.applied.len()));
    output::line(format!("  page             {url}/"));
    output::line(format!("  API              {url}/v1      documentation {url}/docs"));
    output::line(format!("  model            {}", running.model()));
    output::line(format!("  PostgreSQL       psql \"$DATABASE_URL\"      after `. {env}`"));
    output::line(format!("  another worker   . {env} && {} worker      (kill it: nothing is lost)", own_name()));
}

/// The path for a shell's `.`, which searches PATH for a name without a slash.
pub(super) fn shell_path(path: &std::path::Path) -> String {
    let text = path.display().to_string();
    if path.is_absolute() || text.starts_with("./") { text } else { format!("./{text}") }
}

/// The path of this program, relative to the working directory if possible.
fn own_name() -> String {
    let own = std::env::current_exe().unwrap_or_else(|_| "longhaul".into());
    let here = std::env::current_dir().unwrap_or_default();
    own.strip_prefix(&here).map_or_else(|_| own.display().to_string(), |own| format!("./{}", own.display()))
}
