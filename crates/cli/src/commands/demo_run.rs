//! The durable run of `longhaul demo`: a script and its worker are killed during the second of two model calls, and the
//! same command goes on.
//!
//! The worker that is killed is a process of its own and alone: the one of the demo's own process starts after it.

use std::{env, process::Stdio, time::Duration};

use anyhow::Context as _;
use longhaul_command::{Exit, env_file, output};
use longhaul_config::Sources;
use longhaul_shared::clock::{Clock, SystemClock};
use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process_group};
use secrecy::ExposeSecret;
use serde_json::json;
use tokio::process::{Child, Command};

use super::runs;
use crate::{client::Client, dev_server::DevServer};

/// Model of the script, and the settings that make it.
const MODEL: &str = "demo-clerk";
const MODEL_SETTINGS: [(&str, &str); 2] = [
    ("wires.aliases.demo-clerk.provider", "scripted"),
    // The second answer takes long enough to be killed on its way.
    (
        "wires.aliases.demo-clerk.script",
        r#"{% if turn == 1 %}{{ text("Hamburg") }}{% else %}{"text": "3 days", "latency_ms": 1500}{% endif %}"#,
    ),
];
const QUESTIONS: [&str; 2] = ["Which warehouse has ten desk lamps?", "How long do they take to Lyon?"];
/// Pause between two looks at the run.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Settings that the demo's API needs for this run.
pub(super) fn settings() -> impl Iterator<Item = (String, String)> {
    MODEL_SETTINGS.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()))
}

/// Kills the script and its worker, and lets the same command go on beside another worker.
///
/// # Errors
/// This program cannot be started again, or the API is unreachable.
pub(super) async fn play(client: &Client, server: &mut DevServer) -> anyhow::Result<Exit> {
    let key = format!("demo-{}", SystemClock::new().now().timestamp_millis());
    output::line("\nA script with two model calls, as a durable run:\n");
    let mut worker = own_program()?;
    worker.arg("worker").envs(env_file::read(server.env_path())).stdout(Stdio::null()).stderr(Stdio::null());
    let mut worker = worker.spawn().context("a worker cannot be started")?;
    output::said("start", &format!("longhaul run --key {key} -- script"));
    // As the command does first; so that there is a run to look at.
    client.send(client.request(Method::POST, "/v1/runs").json(&json!({ "key": key }))).await?;
    let first = start(client, &key)?;
    second_call_begun(client, &key).await?;
    kill(&first)?;
    worker.kill().await.context("the worker cannot be killed")?;
    output::said("kill -9", "the script and its worker, during the second call");
    server.start_worker();
    output::said("start", "the same command, and another worker");
    let ended = start(client, &key)?.wait_with_output().await.context("the script's end is unknown")?;
    for line in String::from_utf8_lossy(&ended.stdout).lines() {
        output::said("script", line);
    }
    let told = String::from_utf8_lossy(&ended.stderr);
    for line in told.lines() {
        output::said("result", line.strip_prefix("longhaul: ").unwrap_or(line));
    }
    Ok(if ended.status.success() { Exit::Done } else { Exit::ExecutionFailed })
}

/// This program, ended with its handle.
fn own_program() -> anyhow::Result<Command> {
    let mut command = Command::new(env::current_exe().context("the path of this program is unknown")?);
    command.stdin(Stdio::null()).kill_on_drop(true);
    Ok(command)
}

/// Starts the script under `longhaul run`, as a process group of their own.
fn start(client: &Client, key: &str) -> anyhow::Result<Child> {
    let script = env::current_exe().context("the path of this program is unknown")?;
    let mut command = own_program()?;
    command.args(["run", "--key", key, "--"]).arg(script).args(["demo", "--script"]);
    command.env("LONGHAUL_URL", client.url()).env("LONGHAUL_API_KEY", client.key().expose_secret());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command.spawn().context("the script cannot be started")
}

/// `kill -9` of the script and of the program that started it.
fn kill(started: &Child) -> anyhow::Result<()> {
    let group = started.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).context("the script has ended")?;
    kill_process_group(group, Signal::KILL).context("the script cannot be killed")
}

async fn second_call_begun(client: &Client, key: &str) -> anyhow::Result<()> {
    let path = format!("{}/calls", runs::path(key));
    loop {
        let page = client.get(&path).await?;
        let calls = page["calls"].as_array().map_or(&[][..], Vec::as_slice);
        // The second is asked when the first is answered.
        if calls.len() == QUESTIONS.len() && calls.iter().any(|call| call["status"] == "IN_PROGRESS") {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The script: it asks with the address, key and headers in its environment, as an SDK does, and knows of no run.
///
/// # Errors
/// A variable is missing, or a request is refused.
pub(super) async fn script(sources: &Sources) -> anyhow::Result<Exit> {
    let variable = |name: &str| sources.environment.get(name).with_context(|| format!("{name} is not set"));
    let client = Client::with(variable("OPENAI_BASE_URL")?, variable("OPENAI_API_KEY")?.clone().into())?;
    let headers = variable("OPENAI_CUSTOM_HEADERS")?;
    let mut messages = Vec::new();
    for question in QUESTIONS {
        messages.push(json!({ "role": "user", "content": question }));
        let body = json!({ "model": MODEL, "messages": messages });
        let mut request = client.request(Method::POST, "/chat/completions").json(&body);
        for (name, value) in headers.lines().filter_map(|line| line.split_once(':')) {
            request = request.header(name.trim(), value.trim());
        }
        let answer = client.send(request).await?.body;
        let message = &answer["choices"][0]["message"];
        output::line(format!("{question} {}", message["content"].as_str().unwrap_or_default()));
        messages.push(message.clone());
    }
    Ok(Exit::Done)
}
