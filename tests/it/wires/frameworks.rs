//! Unchanged scripts under `longhaul run`: killed with -9 around a model call, and started again by the same command.
//! More frameworks and points: `tests/doors/frameworks.py`.

use std::{
    fs,
    os::unix::{fs::symlink, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use longhaul_testkit::model::{Captured, Gate, Reply, ev_call, ev_finish, ev_gate, ev_text, reply_events, reply_text};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;

use super::Bench;
use crate::caller_tools::sdks;

/// The program; see `tests/Cargo.toml`.
const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul-program");
const ANSWER: &str = "Ten desk lamps can be in Lyon in 3 days.";
/// Model calls of a script.
const CALLS: usize = 3;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// What the model says to a conversation; at call `held` it waits at the gate in the middle of its reply.
fn plan(request: &Captured, held: usize, gate: &Gate) -> Reply {
    let call = match request.replies() {
        0 => ev_call("c1", "stock", &json!({ "product": "desk lamp" })),
        1 => ev_call("c2", "delivery_days", &json!({ "warehouse": "Hamburg", "city": "Lyon" })),
        _ => ev_text(ANSWER),
    };
    let reason = if request.replies() < 2 { "tool_calls" } else { "stop" };
    let gates = (request.replies() + 1 == held).then(|| ev_gate(gate));
    reply_events([call].into_iter().chain(gates).chain([ev_finish(reason)]))
}

/// Starts a program under `longhaul run`, as a process group of their own.
fn start(bench: &Bench, key: &str, program: [&Path; 2]) -> Child {
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--key", key, "--"]).args(program).process_group(0);
    command.env("LONGHAUL_URL", &bench.api.acme.url).env("LONGHAUL_API_KEY", bench.api.acme.key.as_ref().unwrap());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the program has ended well; returns its output.
async fn output_of(child: Child) -> String {
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    let (said, wrong) = (String::from_utf8(ended.stdout).unwrap(), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{said} {wrong}");
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_script_pays_each_call_once() {
    let Some(python) = sdks::python().await else {
        eprintln!("SKIPPED: pip cannot install the openai SDK here");
        return;
    };
    let bench = Bench::start().await;
    let _worker = bench.worker();
    let script = root().join("examples/durable-scripts/openai_script.py");
    for held in 1..=CALLS {
        let gate = Gate::new();
        let of_model = gate.clone();
        bench.fleet.llm.answer_with(move |request| plan(request, held, &of_model));
        let (key, before) = (format!("delivery-{held}"), bench.asked());
        let mut first = start(&bench, &key, [&python, &script]);
        gate.reached().await;
        kill_process_group(Pid::from_child(&first), Signal::KILL).unwrap();
        first.wait().unwrap();
        gate.open();
        let said = output_of(start(&bench, &key, [&python, &script])).await;
        assert_eq!(said.lines().last(), Some(ANSWER), "{said}");
        assert_eq!(bench.asked() - before, CALLS, "killed in call {held}");
        let run = bench.api.acme.get(&format!("/v1/runs/{key}")).await.body;
        assert_eq!((&run["status"], &run["attempts"]), (&json!("finished"), &json!(2)), "{run}");
    }
}

/// A script that uses nothing but Python's own library, and kills itself after its first answer.
const AGENT: &str = r#"
import json, os, pathlib, signal, urllib.request

headers = dict(line.split(": ", 1) for line in os.environ["OPENAI_CUSTOM_HEADERS"].splitlines())
headers |= {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
marker = pathlib.Path("killed")
for question in ["plan", "write"]:
    body = {"model": "m", "messages": [{"role": "user", "content": question}]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn command_of_the_readme_goes_on_after_a_kill() {
    let Some(python) = python3() else {
        eprintln!("SKIPPED: there is no python3 here");
        return;
    };
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let shown = readme.split('`').find(|code| code.starts_with("longhaul run ")).expect("the command");
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("agent.py"), AGENT).unwrap();
    symlink(PROGRAM, dir.path().join("longhaul")).unwrap();
    symlink(python, dir.path().join("python")).unwrap();
    let bench = Bench::start().await;
    let _worker = bench.worker();
    bench.fleet.llm.answer_with(|request| reply_text(&format!("{} is done", request.last_said())));
    let run = async || {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", shown]).current_dir(dir.path()).stdin(Stdio::null());
        command.env("PATH", format!("{}:/usr/bin:/bin", dir.path().display()));
        command.env("LONGHAUL_URL", &bench.api.acme.url).env("LONGHAUL_API_KEY", bench.api.acme.key.as_ref().unwrap());
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    };
    let killed = run().await;
    assert_eq!(killed.status.code(), Some(137), "{killed:?}");
    assert_eq!(bench.asked(), 1);
    let ended = run().await;
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "plan is done\nwrite is done\n");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(told.contains("finished, 2 model calls") && told.contains(" 1 saved"), "{told}");
    assert_eq!(bench.asked(), 2);
}

fn python3() -> Option<PathBuf> {
    let found = std::process::Command::new("sh").args(["-c", "command -v python3"]).output().ok()?;
    let path = String::from_utf8(found.stdout).ok()?;
    (!path.trim().is_empty()).then(|| PathBuf::from(path.trim()))
}
