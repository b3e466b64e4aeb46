//! `longhaul with-servers -- COMMAND`: runs a command with a private PostgreSQL and Redis. For developers, hidden
//! from the help.

use std::ffi::OsString;
use std::path::Path;

use longhaul_command::Exit;

/// Run a command with `DATABASE_URL` and `REDIS_URL` set to an empty PostgreSQL and Redis that end with it
#[derive(Debug, clap::Args)]
pub struct WithServersArgs {
    /// The program and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Runs the command and returns its exit code.
///
/// # Errors
///
/// A server or the command cannot be started.
pub async fn run(args: &WithServersArgs) -> anyhow::Result<Exit> {
    let Some((program, rest)) = args.command.split_first() else { anyhow::bail!("no command given") };
    Ok(Exit::Of(longhaul_embedded::with_servers(Path::new(program), rest).await?))
}
