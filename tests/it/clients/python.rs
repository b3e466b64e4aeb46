//! The Python package `longhaul`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tokio::process::Command;

use super::{Service, copy_package, copy_package_as, done, examples, root, succeeds};

/// A Python with the package's tools, below `folder`; `None` if pip cannot install them here.
async fn python(folder: &Path) -> Option<PathBuf> {
    let venv = folder.join("venv");
    let python = venv.join("bin/python");
    let has_tools = async || {
        let import = "import hatchling, mypy, pydantic, pytest_timeout";
        succeeds(Command::new(&python).args(["-c", import])).await
    };
    if !has_tools().await {
        succeeds(Command::new("python3").args(["-m", "venv"]).arg(&venv)).await;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
        succeeds(Command::new(&python).args(pip).arg(folder.join("requirements-dev.txt"))).await;
    }
    has_tools().await.then_some(python)
}

/// Builds the package and installs it for `python`.
async fn install(folder: &Path, python: &Path) {
    let pip = async |arguments: &[&str]| {
        done(
            Command::new(python).args(["-m", "pip", "--disable-pip-version-check"]).args(arguments).current_dir(folder),
        )
        .await;
    };
    let wheels = folder.join("dist");
    let _ = fs::remove_dir_all(&wheels);
    pip(&["wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", "dist", "."]).await;
    let wheel = fs::read_dir(wheels).unwrap().next().unwrap().unwrap().path();
    pip(&["uninstall", "--quiet", "--yes", "longhaul"]).await;
    pip(&["install", "--quiet", wheel.to_str().unwrap()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_client_runs_against_the_api() {
    let folder = copy_package("python");
    let Some(python) = python(&folder).await else {
        eprintln!("SKIPPED: pip cannot install the tools of the Python client here");
        return;
    };
    install(&folder, &python).await;
    let tests = folder.join("tests");
    for (name, program) in ["guide.py", "readme.py"].into_iter().zip(examples("python", "python")) {
        fs::write(tests.join(name), program).unwrap();
    }
    done(Command::new(&python).args(["-m", "mypy", "src", "tests"]).current_dir(&folder)).await;
    let service = Service::start().await;
    for program in ["run.py", "guide.py", "readme.py"] {
        service.run(Command::new(&python).arg(program).current_dir(&tests)).await;
    }
}

/// The worker of the package: against a strict server of its tests, and its guides against an API with a key of all
/// scopes.
#[tokio::test(flavor = "multi_thread")]
async fn python_workers_pass_their_tests() {
    let folder = copy_package_as("python", "python-worker");
    let Some(python) = python(&folder).await else {
        eprintln!("SKIPPED: pip cannot install the tools of the Python client here");
        return;
    };
    install(&folder, &python).await;
    let service = Service::start().await;
    // In the repository, whose guides they run; they write nothing there.
    let pytest = ["-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "120", "tests/worker"];
    let mut command = Command::new(&python);
    service.run(command.args(pytest).current_dir(root().join("clients/python"))).await;
}
