//! `collect_sub_agents`: the results of children that a call started without waiting, and the last text of those that
//! still run.

use std::collections::HashMap;

use longhaul_domain::{CallError, CallErrorKind, ExecutionId, WaitReason, cut};
use longhaul_sdk::Step;
use longhaul_store::executions::children::Child;
use serde::Deserialize;

use super::{aggregate, outcome::outcomes};
use crate::{
    Agent,
    journal::Writer,
    ready_call::{HostToolAnswer, ReadyCall, Waiting},
};

#[derive(Debug, Deserialize)]
struct Arguments {
    ids: Vec<String>,
    #[serde(default)]
    wait: bool,
}

/// The results, in the order of the ids, or the wait for them.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(crate) async fn call(agent: &Agent, journal: &mut Writer, call: &ReadyCall) -> Step<HostToolAnswer> {
    let refuse =
        |message: String| Ok(call.refused(&agent.toolbox, &CallError::new(CallErrorKind::Structural, message)));
    let Arguments { ids, wait } = match Arguments::deserialize(&call.arguments) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(error.to_string()),
    };
    let children = journal.children().await?;
    let by_id: HashMap<String, Child> = children.into_iter().map(|child| (child.id.to_string(), child)).collect();
    let mut asked = Vec::with_capacity(ids.len());
    for id in &ids {
        match by_id.get(id) {
            Some(child) => asked.push(child.clone()),
            None => return refuse(format!("there is no sub-agent `{}` of this execution", cut(id, 64))),
        }
    }
    let open: Vec<ExecutionId> =
        asked.iter().filter(|child| !child.status.is_terminal()).map(|child| child.id).collect();
    if wait && !open.is_empty() {
        let ids: Vec<ExecutionId> = asked.iter().map(|child| child.id).collect();
        journal.wait_for_children(&call.key, &ids, false).await?;
        return Ok(HostToolAnswer::Waiting(Waiting { reason: WaitReason::Children, until: None }));
    }
    let mut outcomes = outcomes(journal, &asked).await?;
    let mut texts = journal.last_texts(&open).await?;
    for (child, outcome) in asked.iter().zip(&mut outcomes) {
        outcome.partial = texts.remove(&child.id);
    }
    Ok(call.answered(&agent.toolbox, aggregate::collect(&outcomes, agent.max_result_bytes()).to_string()))
}
