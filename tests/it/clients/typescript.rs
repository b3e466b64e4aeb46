//! The TypeScript package `longhaul`.

use std::{fs, path::Path};

use tokio::process::Command;

use super::{Service, copy_package, document, done, examples, succeeds};

const INSTALL: [&str; 5] = ["install", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"];

fn npm(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.args(arguments).current_dir(folder).env("OPENAPI", document());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_client_runs_against_the_api() {
    let folder = copy_package("typescript");
    if !succeeds(&mut npm(&folder, &INSTALL)).await {
        eprintln!("SKIPPED: npm cannot install the tools of the TypeScript client here");
        return;
    }
    let built = done(&mut npm(&folder, &["run", "build"])).await;
    assert!(!built.contains('⚠'), "a warning of the generator: {built}");
    let packed = done(&mut npm(&folder, &["pack", "--ignore-scripts", "--silent"])).await;
    // The tests import the package as it would be published.
    let tests = folder.join("tests");
    let package = format!("../{}", packed.trim());
    done(&mut npm(&tests, &[&INSTALL[..], &[package.as_str()]].concat())).await;
    for (name, program) in ["guide.ts", "readme.ts"].into_iter().zip(examples("typescript", "ts")) {
        fs::write(tests.join(name), program).unwrap();
    }
    done(&mut npm(&tests, &["exec", "tsc"])).await;
    let service = Service::start().await;
    for program in ["run.js", "guide.js", "readme.js"] {
        service.run(Command::new("node").arg(format!("out/{program}")).current_dir(&tests)).await;
    }
}
