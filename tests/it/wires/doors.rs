//! A part of the suites of `tests/doors`: the newest SDKs of OpenAI and Anthropic against the API. `make doors` runs
//! them whole, with others.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use super::Bench;
use crate::support::{fleet::PATIENCE, wait::eventually};

/// Seconds after which a suite begins no further check.
const SECONDS: &str = "25";
/// The checks of OpenAI's suite but those that take long: cuts at every event, and cancellation.
const OF_OPENAI: &str = "models,response_,functions_,whole_,tool_choice,chain_,answer_,background_is_queued,resumed_,\
                         tokens,conversation,errors,failure,run_,retry_,chat_,async_";

fn suites() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("doors")
}

/// A Python with the SDKs, in a directory of the build; `None` if pip cannot install them here.
async fn python() -> Option<PathBuf> {
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doors");
    let python = venv.join("bin/python");
    let requirements = suites().join("sdks.txt");
    let run = async |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().await.is_ok_and(|status| status.success())
    };
    let has_sdks = async || run(&python, &["-c", "import openai, anthropic"]).await;
    if !has_sdks().await {
        let (venv, file) = (venv.to_str().unwrap(), requirements.to_str().unwrap());
        run(Path::new("python3"), &["-m", "venv", venv]).await;
        run(&python, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", file]).await;
    }
    has_sdks().await.then_some(python)
}

/// The model server of the suites, and its address.
async fn model(python: &Path) -> (Child, String) {
    let mut command = Command::new(python);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let mut child = command.arg(suites().join("model.py")).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    (child, url)
}

async fn passes(python: &Path, bench: &Bench, stub: &str, (suite, only): (&str, &str)) {
    let mut command = Command::new(python);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.arg(suites().join(suite)).args(["--only", only, "--seconds", SECONDS, "--stub", stub]);
    command.args(["--url", &bench.api.acme.url, "--key", bench.api.acme.key.as_ref().unwrap()]).kill_on_drop(true);
    let output = command.output().await.unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{suite}:\n{said}\n{wrong}");
}

#[tokio::test]
async fn sdks_of_both_vendors_are_served() {
    let Some(python) = python().await else {
        eprintln!("SKIPPED: pip cannot install the openai and anthropic SDKs here");
        return;
    };
    let (_model, stub) = model(&python).await;
    let mut bench = Bench::start().await;
    bench.fleet.set("LONGHAUL_LLM_URL", &stub);
    bench.fleet.set("LONGHAUL_LLM_MODEL", "stub");
    let _worker = bench.worker();
    eventually("the worker offers its model", PATIENCE, || async {
        let models = bench.api.acme.get("/v1/models").await;
        if models.text.contains("custom/stub") { Ok(()) } else { Err(models.text) }
    })
    .await;
    tokio::join!(
        passes(&python, &bench, &stub, ("suite_openai.py", OF_OPENAI)),
        passes(&python, &bench, &stub, ("suite_anthropic.py", "")),
    );
}
