//! Packages from the npm registry.

use std::path::Path;

use tokio::process::Command;

/// `npm install` in a folder, of the packages that it names and of `others`.
pub(crate) fn install(folder: &Path, others: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.args(["install", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"]).args(others);
    command.current_dir(folder);
    command
}

/// Installs what a folder names; false if that is not possible here.
pub(crate) async fn installed(folder: &Path) -> bool {
    install(folder, &[]).output().await.is_ok_and(|output| output.status.success())
}
