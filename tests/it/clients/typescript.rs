//! The TypeScript package `longhaul`.

use std::{fs, path::Path};

use tokio::process::Command;

use super::{Service, copy_package, done, examples};
use crate::support::npm;

fn run_npm(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.args(arguments).current_dir(folder);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_client_runs_against_the_api() {
    let folder = copy_package("typescript");
    if !npm::installed(&folder).await {
        eprintln!("SKIPPED: npm cannot install the tools of the TypeScript client here");
        return;
    }
    done(&mut run_npm(&folder, &["run", "build"])).await;
    let packed = done(&mut run_npm(&folder, &["pack", "--ignore-scripts", "--silent"])).await;
    // The tests import the package as it would be published.
    let tests = folder.join("tests");
    let package = format!("../{}", packed.trim());
    done(&mut npm::install(&tests, &[package.as_str()])).await;
    for (name, program) in ["guide.ts", "readme.ts"].into_iter().zip(examples("typescript", "ts")) {
        fs::write(tests.join(name), program).unwrap();
    }
    done(&mut run_npm(&tests, &["exec", "tsc"])).await;
    let service = Service::start().await;
    for program in ["run.js", "guide.js", "readme.js"] {
        service.run(Command::new("node").arg(format!("out/{program}")).current_dir(&tests)).await;
    }
}
