//! One attempt of an execution: its journal, and beside it the agent's memory and what the calls of tools work on.

use std::sync::Arc;

use longhaul_llm::Message;
use longhaul_sdk::{Failure, Step, spec::MemorySpec};
use longhaul_store::{files::WorkspaceId, history::journal::StoredJournal, memory::MemoryPlace};
use serde_json::Value;

use super::{
    Agent,
    calls::browser::AttemptBrowser,
    journal::{Journal, Writer},
    workspace::Workspace,
};

/// The state of an attempt.
pub struct Attempt {
    pub journal: Journal,
    /// The place of the agent's memory, if it remembers this execution.
    pub(crate) memory: Option<MemoryPlace>,
    /// The files of the execution, or of its session.
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) browser: Arc<AttemptBrowser>,
}

impl Attempt {
    /// Opens the journal `stored` of an execution for the attempt that `writer` records.
    ///
    /// # Errors
    /// A stored step cannot be read.
    pub fn new(stored: StoredJournal, writer: Writer) -> Step<Self> {
        let (deps, scope) = (&writer.deps, &writer.scope);
        let browser = AttemptBrowser::new(deps.browsers.clone(), scope.tenant);
        for step in &stored.steps {
            browser.note_earlier(step.name.as_deref());
        }
        let id = WorkspaceId::of(writer.id, scope.session);
        let workspace = Workspace::new(deps.clone(), scope.tenant, writer.held_lease(), id);
        Ok(Self {
            memory: None,
            workspace: Arc::new(workspace),
            browser: Arc::new(browser),
            journal: Journal::new(stored, writer)?,
        })
    }

    /// Notes that memory takes what this execution says, if its agent remembers it. Before its prompt is recorded, so
    /// that nothing is said that is not noted; a recorded prompt has the scope, and nothing is noted again.
    ///
    /// # Errors
    /// An interrupt, a failure of the store, or a record that cannot be read.
    pub async fn begin_memory(&mut self, spec: &MemorySpec, depth: i16) -> Step<()> {
        self.memory = self.journal.memory_place(spec, depth).await?;
        Ok(())
    }

    /// Opens the conversation with the recorded prompt, or with the messages of `prompt`, which are pinned now.
    ///
    /// # Errors
    /// An interrupt, or a record that cannot be read.
    pub async fn open(
        &mut self,
        agent: &Agent,
        input: &Arc<Value>,
        prompt: impl Future<Output = Result<Vec<Message>, Failure>>,
    ) -> Step<()> {
        self.journal.open(agent, input, self.memory.as_ref(), prompt).await?;
        // So far these are the calls of a session's earlier messages.
        for message in self.journal.transcript.messages() {
            if let Message::Tool { name, .. } = message {
                self.browser.note_earlier(Some(name));
            }
        }
        Ok(())
    }
}
