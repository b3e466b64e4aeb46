//! The project of `longhaul demo`: a plan that waits for approval, a task with two sub-agents, and a task whose change
//! waits for a person.

use std::time::Duration;

use anyhow::Context as _;
use longhaul_command::{Exit, output};
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::Client;

const AGENT: &str = "catalogue-lead";
const GOAL: &str = "Compare KI-201 and KI-214, and give the first a better name.";
/// Pause between two looks at the project.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Creates the project, approves what waits, and prints what happens.
///
/// # Errors
/// The agents are not applied, or the API is unreachable.
pub(super) async fn run(client: &Client) -> anyhow::Result<Exit> {
    output::line(format!("\nA project of {AGENT}, whose plan waits for a person:\n"));
    output::said("goal", GOAL);
    let body = json!({ "goal": GOAL, "agent": AGENT, "agents": ["catalogue-desk"], "needs_approval": true });
    let project = client.send(client.request(Method::POST, "/v1/projects").json(&body)).await?.body;
    let path = format!("/v1/projects/{}", project["id"].as_str().context("the answer has no id")?);
    let mut after = 0;
    loop {
        let page = client.get(&format!("{path}/events?after={after}")).await?;
        for event in page["events"].as_array().into_iter().flatten() {
            after = event["seq"].as_i64().unwrap_or(after);
            print(event);
        }
        let project = client.get(&path).await?;
        match project["status"].as_str() {
            Some("awaiting_approval") => approve(client, &path).await?,
            Some("completed") => return report(client, &path).await,
            Some("failed" | "cancelled") => {
                output::said("failed", project["failure_summary"].as_str().unwrap_or_default());
                return Ok(Exit::ExecutionFailed);
            }
            _ => agree(client, &path).await?,
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Shows the plan and approves it.
async fn approve(client: &Client, path: &str) -> anyhow::Result<()> {
    let plan = client.get(&format!("{path}/plan")).await?;
    for task in plan["plan"]["tasks"].as_array().into_iter().flatten() {
        let on: Vec<&str> = task["depends_on"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let on = if on.is_empty() { String::new() } else { format!(", after {}", on.join(" and ")) };
        let text = |name: &str| task[name].as_str().unwrap_or_default();
        output::said("plan", &format!("{}: {}{on}", text("key"), text("title")));
    }
    output::said("you", "approve the plan");
    let seen = json!({ "version": plan["version"] });
    client.send(client.request(Method::POST, &format!("{path}/approve")).json(&seen)).await?;
    Ok(())
}

/// Agrees to the calls of running tasks that wait for a person, each by the hash of what is shown.
async fn agree(client: &Client, path: &str) -> anyhow::Result<()> {
    let tasks = client.get(&format!("{path}/tasks")).await?;
    for task in tasks["tasks"].as_array().into_iter().flatten().filter(|task| task["status"] == "running") {
        let execution = task["execution_id"].as_str().unwrap_or_default();
        let page = client.get(&format!("/v1/approvals?state=waiting&execution={execution}")).await?;
        for request in page["approvals"].as_array().into_iter().flatten() {
            let text = |name: &str| request[name].as_str().unwrap_or_default();
            output::said("waits", &format!("{} {}", text("tool"), text("preview")));
            let decision = json!({ "decision": "approve", "hash": request["hash"] });
            let decide = format!("/v1/approvals/{}/decision", text("id"));
            client.send(client.request(Method::POST, &decide).json(&decision)).await?;
            output::said("you", "approve the call");
        }
    }
    Ok(())
}

/// Prints the sub-agents and the output of the last task.
async fn report(client: &Client, path: &str) -> anyhow::Result<Exit> {
    let tasks = client.get(&format!("{path}/tasks")).await?;
    for task in tasks["tasks"].as_array().into_iter().flatten() {
        let (key, id) = (task["key"].as_str().unwrap_or_default(), task["execution_id"].as_str().unwrap_or_default());
        let children = client.get(&format!("/v1/executions?parent={id}")).await?;
        let number = children["executions"].as_array().map_or(0, Vec::len);
        if number > 0 {
            output::said("of", &format!("{key}: {number} sub-agents"));
        }
        if key == "report" {
            let execution = client.get(&format!("/v1/executions/{id}")).await?;
            output::said("result", execution["output"]["response"].as_str().unwrap_or_default());
        }
    }
    Ok(Exit::Done)
}

fn print(event: &Value) {
    let kind = event["kind"].as_str().unwrap_or_default();
    match event["data"]["task"].as_str() {
        Some(task) => output::said("task", &format!("{task} {}", kind.trim_start_matches("task_"))),
        None => output::said("project", kind),
    }
}
