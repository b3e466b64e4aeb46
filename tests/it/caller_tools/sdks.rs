//! The tool runners of the openai and anthropic SDKs run pending calls, through a script of plain HTTP.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use longhaul_domain::ExecutionId;
use longhaul_sdk::AgentSpec;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{Bench, DAY, tool};
use crate::support::fleet::agent;

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/caller-tools")
}

/// A Python with the SDKs, in a directory of the build; `None` if pip cannot install them here.
pub(crate) async fn python() -> Option<PathBuf> {
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tool-runners");
    let python = venv.join("bin/python");
    let requirements = example().join("requirements.txt");
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

/// Runs the script for one call of an execution; returns what it posted.
async fn run_one(python: &Path, bench: &Bench, sdk: &str, id: ExecutionId) -> Value {
    let mut command = Command::new(python);
    command.arg(example().join("run_calls.py")).args([sdk, &id.to_string(), "--limit", "1"]);
    command.env("LONGHAUL_URL", &bench.api.acme.url).env("LONGHAUL_API_KEY", bench.api.acme.key.as_ref().unwrap());
    let output = command.output().await.unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said} {wrong}");
    serde_json::from_str(&said).unwrap()
}

#[tokio::test]
async fn sdk_tool_runners_run_pending_calls_over_days() {
    let Some(python) = python().await else {
        eprintln!("SKIPPED: pip cannot install the openai and anthropic SDKs here");
        return;
    };
    let by_caller = |name: &str, parameters: Value| {
        tool(json!({
            "name": name, "runs": "caller", "description": "Does it.", "expires_seconds": 5 * 86_400,
            "parameters": parameters,
        }))
    };
    let tools = vec![
        by_caller("open_file", json!({"type": "object", "properties": {"path": {"type": "string"}}})),
        by_caller("add", json!({"type": "object", "properties": {"numbers": {"type": "array"}}})),
    ];
    for sdk in ["anthropic", "openai"] {
        let bench = Bench::of(AgentSpec { tools: tools.clone(), ..agent("a") }).await;
        bench.script(vec![
            ("c1", "open_file", json!({"path": "a.txt"})),
            ("c2", "add", json!({"numbers": [20, 22]})),
            ("c3", "open_file", json!({"path": "/etc/passwd"})),
        ]);
        let mut worker = bench.worker();
        let id = bench.submit().await;
        bench.waits_for(id, &["c1", "c2", "c3"]).await;
        for (call, left) in [("c3", vec!["c1", "c2"]), ("c2", vec!["c1"]), ("c1", vec![])] {
            worker.kill().await;
            bench.fleet.advance(DAY).await;
            let posted = run_one(&python, &bench, sdk, id).await;
            assert_eq!(
                (&posted["results"][0]["call_id"], &posted["left"]),
                (&json!(call), &json!(left.len())),
                "{posted}"
            );
            worker = bench.worker();
            if !left.is_empty() {
                bench.waits_for(id, &left).await;
            }
        }
        bench.finished(id).await;
        let results = bench.results();
        assert_eq!((results[0].1.as_str(), results[1].1.as_str()), ("the text of a.txt", "42"), "{sdk}");
        assert!(results[2].1.contains("is outside the project"), "{sdk}: {}", results[2].1);
        assert_eq!(bench.fleet.llm.requests().len(), 2, "{sdk}");
    }
}
