//! Tools whose calls the loop answers: Longhaul's own and those of the caller. They may wait for a person, for the
//! caller or for another execution.
//!
//! Invariants: a tool is called again with the same call after every resume, so its external effects are idempotent
//! by the call's key, and the turn is committed ([`Writer::flush`]) before a person or another execution hears of
//! the call. A tool returns quickly: the orchestrator awaits it, and the other calls of the reply make no progress
//! meanwhile. The exception is a model that judges the outputs of sub-agents: it is asked when the execution comes back
//! from its wait for them, when other calls have ended.

use longhaul_llm::Message;
use longhaul_sdk::Step;
use longhaul_store::memory::MemoryPlace;
use longhaul_tools::HostTool;

use super::{ask_caller, caller_tools, load_skill, memory, plan_project};
use crate::{
    Agent,
    journal::Writer,
    ready_call::{HostToolAnswer, ReadyCall},
    sub_agents::{collect, spawn},
};

/// Answers one call, or returns the reason to wait. `None` for a call that a worker runs. Sets the call's arguments to
/// those that were shown. `said` is the conversation with the results of this reply so far.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(crate) async fn call(
    agent: &Agent,
    journal: &mut Writer,
    memory: Option<&MemoryPlace>,
    call: &mut ReadyCall,
    said: impl Iterator<Item = &Message> + Clone,
) -> Step<Option<HostToolAnswer>> {
    if let Some(tool) = agent.toolbox.caller_tool(&call.tool) {
        return caller_tools::call(agent, journal, tool, call).await.map(Some);
    }
    match agent.toolbox.host(&call.tool) {
        Some(HostTool::AskCaller) => ask_caller::call(agent, journal, call).await.map(Some),
        Some(HostTool::SpawnSubAgent) => Box::pin(spawn::call(agent, journal, call)).await.map(Some),
        Some(HostTool::CollectSubAgents) => collect::call(agent, journal, call).await.map(Some),
        Some(HostTool::Remember) => memory::remember(agent, journal, memory, call).await.map(Some),
        Some(HostTool::Recall) => Box::pin(memory::recall(agent, journal, memory, call)).await.map(Some),
        Some(HostTool::PlanProject) => Box::pin(plan_project::call(agent, journal, call)).await.map(Some),
        Some(HostTool::LoadSkill) => {
            let is_present = |heading: &str| said.clone().any(|message| load_skill::is_load(message, heading));
            load_skill::call(agent, journal, call, is_present).await.map(Some)
        }
        None => Ok(None),
    }
}
