//! The agent: its loop, on one page in `run.rs`, and everything that the loop asks.
//!
//! A definition asks its agent through a [`conversation`]. The loop takes turns over an [`Attempt`]: `orchestrator`
//! runs the calls of a reply, and the [`journal`] replays a recorded step or executes and records it. A [`Profile`]
//! answers where the surfaces differ that an agent runs for. The crate writes under a lease that it is given
//! ([`lease`]); it claims nothing and ends no lease.

// The loop.
mod attempt;
pub mod conversation;
mod reply_once;
mod run;

// The calls of a reply.
pub mod calls;
mod orchestrator;
mod ready_call;
mod sub_agents;
mod workspace;

// Durable steps, and permission to launch them.
pub mod journal;
pub mod lease;
mod messages;
pub mod probe;

// Before the first turn.
pub mod deps;
mod indent;
pub mod prepare;

// Verdicts on answers.
pub mod validators;

pub use attempt::Attempt;
pub use orchestrator::permits::CallPermits;
pub use prepare::cache::PreparedAgents;
pub use ready_call::Reply;
pub use sub_agents::slots::SubAgentSlots;
pub use workspace::sandbox::SandboxClient;

use calls::policy::Policy;
use longhaul_domain::{RetryPolicy, ToolCall, redaction::Secrets};
use longhaul_llm::{Message, health::Route};
use longhaul_sdk::{AgentConfig, Failure};
use longhaul_store::catalogue::skills::PinnedSkill;
use longhaul_tools::Toolbox;
use prepare::{profile::Profile, tool_list::ToolList};
use serde_json::Value;

/// An agent, prepared for the attempts that run it.
pub struct Agent {
    pub config: AgentConfig,
    /// Surface that the agent runs for.
    pub profile: Box<dyn Profile>,
    /// The agent's model first, then its fallbacks.
    pub routes: Vec<Route>,
    pub toolbox: Toolbox,
    /// Skills that the model may load.
    pub skills: Vec<PinnedSkill>,
    /// Patterns that the tools of a sub-agent match: one of each list. Empty for others.
    pub granted: Vec<Vec<String>>,
    pub tool_list: ToolList,
    pub policy: Policy,
    /// Output schema that the provider enforces itself.
    pub native_output_schema: Option<Value>,
    pub retry: RetryPolicy,
}

impl Agent {
    /// The arguments of a call with secrets redacted, for people and records.
    pub(crate) fn shown_arguments(&self, tool: &str, arguments: Value) -> Value {
        let pointers = self.policy.redactions(tool);
        Secrets { pointers: &pointers, schema: self.toolbox.parameters(tool) }.hide(arguments)
    }

    /// JSON pointers to the secrets in the arguments of a call.
    pub(crate) fn secret_places(&self, tool: &str, arguments: &Value) -> Vec<String> {
        let pointers = self.policy.redactions(tool);
        Secrets { pointers: &pointers, schema: self.toolbox.parameters(tool) }.places(arguments).into_iter().collect()
    }

    /// Like [`Self::shown_arguments`], for arguments as the model wrote them. Text that is not JSON is returned as
    /// it is.
    pub(crate) fn shown_text(&self, call: &ToolCall) -> String {
        match serde_json::from_str::<Value>(&call.arguments) {
            Ok(arguments) => {
                let shown = self.shown_arguments(&call.name, arguments.clone());
                if shown == arguments { call.arguments.clone() } else { shown.to_string() }
            }
            Err(_) => call.arguments.clone(),
        }
    }

    /// The opening messages: those of the surface, or `instructions` and the message of `task`.
    ///
    /// # Errors
    /// If `task` fails.
    pub async fn opening(
        &self,
        instructions: String,
        references: Option<String>,
        task: impl Future<Output = Result<Message, Failure>>,
    ) -> Result<Vec<Message>, Failure> {
        match self.profile.opening(&instructions, references.as_deref()) {
            Some(messages) => Ok(messages),
            None => {
                let further = self.profile.further_instructions().map(Message::system);
                Ok([Some(Message::system(instructions)), further, Some(task.await?)].into_iter().flatten().collect())
            }
        }
    }

    /// Maximum bytes of one tool result shown to the model.
    pub(crate) fn max_result_bytes(&self) -> usize {
        self.toolbox.max_result_bytes()
    }
}
