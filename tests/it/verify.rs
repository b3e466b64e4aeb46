//! `longhaul verify` as its users run it: a short run holds, and an interrupted one leaves nothing behind.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr, Command},
};

use crate::support::wait::{eventually, within};

/// The program; see tests/Cargo.toml.
const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul-program");
/// Time limit for a fleet on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

fn start(arguments: &[&str], report: &Path) -> (Child, Lines<BufReader<ChildStderr>>) {
    let mut child = Command::new(PROGRAM)
        .arg("verify")
        .args(arguments)
        .arg("--report")
        .arg(report)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stderr.take().unwrap()).lines();
    (child, said)
}

/// Returns the processes that run in `dir`: servers, guards and roles.
fn running_in(dir: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    // The path of a removed directory has a suffix.
    let is_inside = |cwd: PathBuf| cwd.to_string_lossy().starts_with(&*dir.to_string_lossy());
    let inside = processes.filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(is_inside));
    inside
        .map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default().replace('\0', " "))
        .collect()
}

async fn data_dir(said: &mut Lines<BufReader<ChildStderr>>) -> PathBuf {
    let line = within("it says where its data is", PATIENCE, said.next_line()).await.unwrap().unwrap();
    PathBuf::from(line.split(" in ").nth(1).unwrap_or_else(|| panic!("{line}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_verification_holds_and_stops_its_processes() {
    let out = tempfile::tempdir().unwrap();
    let report = out.path().join("report.json");
    let faults = "kill-worker,redis-flush,drop-wakeups,postgres-restart,promote-standby,lose-replies";
    let arguments = ["--rate", "5", "--seed", "3", "--timing", "false", "--faults", faults];
    let (child, mut said) = start(&arguments, &report);
    let dir = data_dir(&mut said).await;
    let listening = tokio::spawn(async move {
        let mut all = Vec::new();
        while let Ok(Some(line)) = said.next_line().await {
            all.push(line);
        }
        all.join("\n")
    });
    let ended = within("the verification ends", PATIENCE, child.wait_with_output()).await.unwrap();
    let (answer, said) = (String::from_utf8_lossy(&ended.stdout).into_owned(), listening.await.unwrap());
    assert!(ended.status.success(), "{said}\n{answer}");

    let report: Value = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
    assert_eq!(report["holds"], true);
    for bar in report["bars"].as_array().unwrap().iter().filter(|bar| bar["limit"] == "0") {
        assert_eq!(bar["found"], "0", "{bar}");
    }
    for fault in faults.split(',') {
        assert_eq!(report["faults_performed"][fault], 1, "{fault}: {}", report["faults_performed"]);
    }
    let count = |name: &str| report["counts"][name].as_u64().unwrap();
    assert!(count("submits") >= 80, "{}", report["counts"]);
    // The flush and the three seconds of dropped wake-ups account for them.
    assert!(count("wake-ups thrown away") >= 10, "{}", report["counts"]);
    // One submit in ten is a tree of three.
    let trees = (count("submits") + 6) / 10;
    let ended = count("executions FINISHED") + count("messages interrupted");
    // A project is four tasks and no execution itself; an update takes each remembered one.
    let others = 2 * trees + 3 * count("projects") + count("executions remembered");
    // A schedule is no execution itself, and each of its ticks that was not skipped is one.
    let ticks = count("ticks fired") - count("ticks skipped");
    assert_eq!(count("submits") - count("schedules") + ticks + others, ended);
    assert!(count("sessions") >= 1, "{}", report["counts"]);
    // At least three turns each, and the calls between them.
    assert!(count("model calls") >= 3 * count("submits"), "{}", report["counts"]);
    assert!(count("tool calls") >= 2 * count("submits"), "{}", report["counts"]);
    // One API, two workers, and the restarted worker.
    assert!(count("processes") >= 4, "{}", report["counts"]);

    assert_eq!(running_in(&dir), Vec::<String>::new());
    assert!(!dir.exists(), "a run that holds keeps nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_verification_leaves_nothing_running() {
    let out = tempfile::tempdir().unwrap();
    let report = out.path().join("report.json");
    let (mut child, mut said) = start(&["--duration", "1h", "--rate", "2"], &report);
    let dir = data_dir(&mut said).await;
    // The API, two workers, Postgres and Redis, each with its guard.
    eventually("the fleet runs", PATIENCE, async || {
        let running = running_in(&dir);
        let roles = running.iter().filter(|command| command.starts_with(PROGRAM)).count();
        if roles >= 3 { Ok(()) } else { Err(running.join("\n")) }
    })
    .await;
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let ended = within("it ends", PATIENCE, child.wait()).await.unwrap();
    assert_eq!(ended.code(), Some(130));
    eventually("nothing is left", PATIENCE, async || {
        let running = running_in(&dir);
        if running.is_empty() { Ok(()) } else { Err(running.join("\n")) }
    })
    .await;
    assert!(!report.exists(), "nothing was verified");
}
