//! `spawn_sub_agent`: other agents carry out parts of the task in parallel, each as a child execution. The
//! execution is parked until all children have ended; their outputs, in the order of the tasks, are the call's
//! result.

use longhaul_sdk::{Interrupt, Step, spec::ToolRef};
use longhaul_shared::domain::{CallError, CallErrorKind, ExecutionStatus, WaitReason, cut};
use longhaul_store::children::{Child, SpawnRefused, TreeLimits};
use longhaul_tools::SPAWN_SUB_AGENT;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Agent,
    admission::{ReadyCall, Waiting},
    host_tools::HostToolAnswer,
    journal::{Journal, NotStarted, Task},
};

/// Maximum executions of one tree, whatever the agents' settings.
const MAX_TREE: i32 = 1_000;

/// Settings of the tool in an agent, under `settings`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    /// Keys of the agents that may be started.
    agents: Vec<String>,
    /// Maximum children of one execution over its whole life.
    max_children: i32,
    /// Maximum levels below the root execution.
    max_depth: i16,
}

impl Default for Settings {
    fn default() -> Self {
        Self { agents: Vec::new(), max_children: 64, max_depth: 3 }
    }
}

#[derive(Debug, Deserialize)]
struct Arguments {
    tasks: Vec<TaskArguments>,
}

#[derive(Debug, Deserialize)]
struct TaskArguments {
    agent: String,
    prompt: String,
}

/// The results of the children, or the wait for them.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(super) async fn call(agent: &Agent, journal: &mut Journal, call: &ReadyCall) -> Step<HostToolAnswer> {
    let refuse = |message: String| {
        let error = CallError::new(CallErrorKind::Structural, message);
        HostToolAnswer::Answered(agent.toolbox.refuse(&error, &call.written.name, &call.written.arguments))
    };
    let settings = agent.config.tools.iter().rfind(|tool| tool.name() == SPAWN_SUB_AGENT).and_then(ToolRef::settings);
    let settings = settings.map(|with| &with.settings).filter(|settings| !settings.is_null());
    let settings = match settings.map(Settings::deserialize).transpose() {
        Ok(settings) => settings.unwrap_or_default(),
        Err(error) => return Ok(refuse(format!("the tool's settings cannot be read: {error}"))),
    };
    let tasks = match Arguments::deserialize(&call.arguments) {
        Ok(Arguments { tasks }) => tasks,
        Err(error) => return Ok(refuse(error.to_string())),
    };
    // The shown schema lists the allowed agents; with an empty list it cannot restrict the model.
    if let Some(task) = tasks.iter().find(|task| !settings.agents.contains(&task.agent)) {
        return Ok(refuse(format!("the agent `{}` may not be started by this one", cut(&task.agent, 128))));
    }
    let tasks: Vec<Task> =
        tasks.into_iter().map(|task| Task { agent: task.agent, input: json!({ "prompt": task.prompt }) }).collect();
    let limits = TreeLimits { depth: settings.max_depth, children: settings.max_children, executions: MAX_TREE };
    let children = match journal.children_of_call(call, &tasks, limits).await? {
        Ok(children) => children,
        Err(NotStarted::Refused(SpawnRefused::Cancelled)) => return Err(Interrupt::Cancelled.into()),
        Err(refused) => return Ok(refuse(refused.to_string())),
    };
    if children.iter().any(|child| !child.status.is_terminal()) {
        return Ok(HostToolAnswer::Waiting(Waiting { reason: WaitReason::Children, until: None }));
    }
    // Each result gets an equal share, so that a long one does not cut off those after it.
    let share = agent.max_result_bytes() / children.len().max(1);
    let results: Vec<Value> = children.iter().map(|child| result(child, share)).collect();
    Ok(HostToolAnswer::Answered(agent.toolbox.answer(&call.tool, json!({ "results": results }).to_string())))
}

fn result(child: &Child, max_bytes: usize) -> Value {
    let id = child.id.to_string();
    if child.status == ExecutionStatus::Finished {
        let text = child.output.as_ref().map_or("null", |output| output.get());
        let output = if text.len() <= max_bytes { serde_json::from_str(text).ok() } else { None };
        let output = output.unwrap_or_else(|| Value::String(cut(text, max_bytes).into_owned()));
        return json!({ "sub_agent_id": id, "agent": child.agent_key, "status": "finished", "output": output });
    }
    let error = json!({ "code": child.failure_code, "message": child.failure_summary });
    json!({ "sub_agent_id": id, "agent": child.agent_key, "status": "failed", "error": error })
}
