//! `longhaul completions` and `longhaul man`: made from the program's own flags.

use clap::Command;
use clap_complete::Shell;
use longhaul_command::{Exit, output};

/// Print the completions of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  longhaul completions bash >/etc/bash_completion.d/longhaul")]
pub struct CompletionsArgs {
    /// bash, zsh, fish, elvish or powershell
    shell: Shell,
}

/// Print the man page
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  longhaul man >/usr/local/share/man/man1/longhaul.1")]
pub struct ManArgs {}

/// # Errors
/// None.
pub fn completions(args: &CompletionsArgs, mut program: Command) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "longhaul", &mut script);
    output::bytes(&script);
    Ok(Exit::Done)
}

/// # Errors
/// The page cannot be made.
pub fn man(program: Command) -> anyhow::Result<Exit> {
    let mut page = Vec::new();
    clap_mangen::Man::new(program).render(&mut page)?;
    output::bytes(&page);
    Ok(Exit::Done)
}
