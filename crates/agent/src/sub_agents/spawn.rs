//! `spawn_sub_agent`: starts a child for each task. The execution is parked until they have ended, unless the call goes
//! on without them; the call's result is what its strategy makes of theirs.

use longhaul_domain::{CallError, CallErrorKind, ExecutionStatus, WaitReason, cut};
use longhaul_sdk::{Interrupt, Step, spec::Strategy};
use longhaul_store::executions::children::{Child, SpawnRefused, TreeLimits};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    MAX_TREE, Settings,
    aggregate::{self, Failed},
    grant, judge,
    outcome::{Family, outcomes},
};
use crate::{
    Agent,
    journal::{NotStarted, Task, Writer},
    ready_call::{HostToolAnswer, ReadyCall, Waiting},
};

#[derive(Debug, Deserialize)]
struct Arguments {
    tasks: Vec<TaskArguments>,
    strategy: Option<Strategy>,
    #[serde(default = "yes")]
    wait: bool,
}

fn yes() -> bool {
    true
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
pub(crate) async fn call(agent: &Agent, journal: &mut Writer, call: &ReadyCall) -> Step<HostToolAnswer> {
    let refuse =
        |message: String| Ok(call.refused(&agent.toolbox, &CallError::new(CallErrorKind::Structural, message)));
    let settings = match Settings::of(&agent.config) {
        Some(Ok(settings)) => settings,
        Some(Err(problem)) => return refuse(problem),
        None => Settings::default(),
    };
    let Arguments { tasks, strategy, wait } = match Arguments::deserialize(&call.arguments) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(error.to_string()),
    };
    if !wait && strategy.is_some_and(|strategy| strategy != Strategy::Collect) {
        return refuse("a call that does not wait has no strategy: collect the results with collect_sub_agents".into());
    }
    // The shown schema lists the allowed agents; with an empty list it cannot restrict the model.
    if let Some(task) = tasks.iter().find(|task| !settings.agents.contains(&task.agent)) {
        return refuse(format!("the agent `{}` may not be started by this one", cut(&task.agent, 128)));
    }
    let strategy = if wait { strategy.unwrap_or(settings.strategy) } else { Strategy::Collect };
    let tasks: Vec<Task> = tasks.into_iter().map(|task| Task { agent: task.agent, prompt: task.prompt }).collect();
    let limits = TreeLimits { depth: settings.max_depth, children: settings.max_children, executions: MAX_TREE };
    let grant = grant(agent, &settings, strategy);
    let children = match journal.children_of_call(call, &tasks, grant, limits).await? {
        Ok(children) => children,
        Err(NotStarted::Refused(SpawnRefused::Cancelled)) => return Err(Interrupt::Cancelled.into()),
        Err(not_started) => return refuse(not_started.to_string()),
    };
    if !wait {
        let started: Vec<Value> = children
            .iter()
            .map(|child| json!({ "sub_agent_id": child.id.to_string(), "agent": child.agent_key }))
            .collect();
        return Ok(call.answered(&agent.toolbox, json!({ "sub_agents": started }).to_string()));
    }
    if !is_over(&children, strategy) {
        let ids: Vec<_> = children.iter().map(|child| child.id).collect();
        journal.wait_for_children(&call.key, &ids, strategy == Strategy::FirstSuccess).await?;
        return Ok(HostToolAnswer::Waiting(Waiting { reason: WaitReason::Children, until: None }));
    }
    let open: Vec<_> = children.iter().filter(|child| !child.status.is_terminal()).map(|child| child.id).collect();
    if !open.is_empty() {
        journal.cancel_outrun(&open).await?;
    }
    let family = Family { outcomes: outcomes(journal, &children).await?, tasks };
    Ok(match result(agent, journal, call, strategy, &family).await? {
        Ok(result) => call.answered(&agent.toolbox, result.to_string()),
        Err(failed) => call.refused(&agent.toolbox, &failed.into_error(&family.outcomes)),
    })
}

fn is_over(children: &[Child], strategy: Strategy) -> bool {
    let has_success = || children.iter().any(|child| child.status == ExecutionStatus::Finished);
    children.iter().all(|child| child.status.is_terminal()) || strategy == Strategy::FirstSuccess && has_success()
}

/// What the strategy makes of the outcomes.
async fn result(
    agent: &Agent,
    journal: &mut Writer,
    call: &ReadyCall,
    strategy: Strategy,
    family: &Family,
) -> Step<Result<Value, Failed>> {
    let (outcomes, room) = (&family.outcomes, agent.max_result_bytes());
    Ok(match strategy {
        Strategy::Collect => Ok(aggregate::collect(outcomes, room)),
        Strategy::Concatenate => aggregate::concatenate(outcomes, room),
        Strategy::FirstSuccess => aggregate::first_success(outcomes, room),
        Strategy::MajorityVote => aggregate::majority_vote(outcomes, room),
        Strategy::MergeJson => aggregate::merge_json(outcomes),
        Strategy::BestOf => judge::best_of(agent, journal, call, family).await?,
        Strategy::Synthesize => judge::synthesize(agent, journal, call, family).await?,
    })
}
