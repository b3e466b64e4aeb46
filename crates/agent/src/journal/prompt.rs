//! The opening messages, and the tools and model pinned with them. The model is pinned if the execution chooses
//! it.

use std::sync::Arc;

use longhaul_domain::{ExecutionId, noted::NotedModel};
use longhaul_llm::Message;
use longhaul_references::{StateLimits, StateLog};
use longhaul_sdk::{Failure, Step, ToolSpec, spec::MemorySpec};
use longhaul_store::{
    database::retry::patiently,
    history::journal::{JournalStep, StepKind},
    memory::MemoryPlace,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Agent, Journal, Replay, from_store,
    progress::{Stage, State},
    read_body,
    secrets::ToolSecrets,
    session::SessionPin,
};
use crate::{
    messages::hash_parts,
    prepare::tool_list::{Offer, PinnedTools},
};

/// Body of a prompt step.
#[derive(Debug, Serialize, Deserialize)]
struct PromptBody {
    tools: Vec<ToolSpec>,
    /// The tool list shown to the model.
    shown: Vec<ToolSpec>,
    /// The model, if it is not from the worker's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    contract_model: Option<NotedModel>,
    /// Part of a session's transcript that precedes the messages of this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<SessionPin>,
    /// Absent if the agent does not remember the execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryPin>,
}

/// The scope of an agent's memory.
#[derive(Debug, Serialize, Deserialize)]
struct MemoryPin {
    /// Execution that was noted as remembered. A copied journal has another's.
    execution: ExecutionId,
    scope: String,
}

impl Replay {
    /// The tools pinned with the prompt; `None` if no prompt is recorded.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn pinned_tools(&self) -> Step<Option<PinnedTools>> {
        let prompt = self.prompt()?;
        Ok(prompt.map(|PromptBody { tools, shown, contract_model: model, .. }| PinnedTools { tools, shown, model }))
    }

    fn prompt(&self) -> Step<Option<PromptBody>> {
        // Retrieval steps may precede the prompt.
        let first = self.steps.iter().find(|step| step.kind != StepKind::Retrieval);
        first.filter(|step| step.kind == StepKind::Prompt).map(read_body).transpose()
    }
}

impl Journal {
    /// The place of the agent's memory, if it remembers this execution. Notes that memory takes what the execution
    /// says, unless a recorded prompt has the scope.
    ///
    /// # Errors
    /// An interrupt, a failure of the store, or a record that cannot be read.
    pub(crate) async fn memory_place(&self, spec: &MemorySpec, depth: i16) -> Step<Option<MemoryPlace>> {
        let writer = &self.writer;
        if !writer.deps.has_memory || !spec.remembers(writer.scope.session.is_some(), depth) {
            return Ok(None);
        }
        let pinned = self.replay.prompt()?.and_then(|prompt| prompt.memory);
        if let Some(MemoryPin { scope, .. }) = pinned.filter(|pin| pin.execution == writer.id) {
            return Ok(Some(MemoryPlace { tenant: writer.scope.tenant, agent: writer.scope.agent.clone(), scope }));
        }
        let store = &writer.deps.store;
        patiently(store.trouble(), || store.note_memory_source(writer.id, spec)).await.map_err(from_store)
    }

    /// Opens the conversation with the recorded prompt, or with the messages of `prompt`, which are pinned now.
    ///
    /// # Errors
    /// An interrupt, or a record that cannot be read.
    pub(crate) async fn open(
        &mut self,
        agent: &Agent,
        input: &Arc<Value>,
        memory: Option<&MemoryPlace>,
        prompt: impl Future<Output = Result<Vec<Message>, Failure>>,
    ) -> Step<()> {
        let (instances, limits) = (agent.config.instances.as_ref(), StateLimits::from(&agent.config.limits));
        self.transcript.state = StateLog::new(input.clone(), instances, limits);
        self.writer.secrets = ToolSecrets::of(agent);
        if let Some(step) = self.replay.next(StepKind::Prompt, &mut self.writer) {
            if let Some(pin) = read_body::<PromptBody>(&step)?.session {
                self.recall_session(pin).await?;
            }
            return self.transcript.replay_appends(&step);
        }
        self.writer.stage(agent, Stage::Thinking, State::Running);
        self.writer.stage(agent, Stage::Thinking, State::Completed);
        let session = match self.writer.scope.session {
            Some(session) => Some(self.join_session(session).await?),
            None => None,
        };
        let (opening, has_context) = match prompt.await? {
            messages if agent.profile.takes_part() => self.set_up(agent, memory, messages).await,
            messages => (messages, false),
        };
        let appends = opening.into_iter().map(|message| self.transcript.append(message)).collect::<Step<Vec<_>>>()?;
        let (model, is_new_model) = agent.profile.pinned_model().unzip();
        let (tools, shown) = (agent.toolbox.specs().to_vec(), agent.tool_list.shown(Offer::All).to_vec());
        let memory = memory.map(|place| MemoryPin { execution: self.writer.id, scope: place.scope.clone() });
        let body = PromptBody { tools, shown, contract_model: model.cloned(), session, memory };
        let parts: Vec<&[u8]> = std::iter::once(&b"prompt"[..]).chain(appends.iter().map(|bytes| &bytes[..])).collect();
        let step = self.writer.step(StepKind::Prompt, hash_parts(&parts), &body)?;
        // A fork may copy steps that follow another prompt; its own prompt takes that prompt's sequence number.
        let seq = if self.writer.scope.is_fork { self.replay.retrievals + 1 } else { step.seq };
        // The prompt step is committed with the first turn.
        self.writer.pending.steps.reserve_exact(2);
        self.writer.pending.steps.push(JournalStep { seq, appends, ..step });
        if agent.toolbox.is_dynamic() || is_new_model == Some(true) || has_context {
            // On a resume servers might list other tools or models, or remember something else: commit the pin before
            // the model sees them.
            self.writer.flush().await?;
        }
        Ok(())
    }
}
