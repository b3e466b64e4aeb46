//! The source of an agent's configuration.
//!
//! ```
//! use longhaul_sdk::{AgentConfigProvider, AgentSpec, ConfigType};
//!
//! let mut agent = AgentSpec::new("support", "You talk to customers.");
//! agent.prompts.agentic_execution_definition = Some("You work alone. Answer with JSON.".into());
//!
//! assert_eq!(agent.config(ConfigType::Conversation).prompt, "You talk to customers.");
//! let execution = agent.config(ConfigType::AgenticExecutionDefinition);
//! assert_eq!(execution.prompt, "You work alone. Answer with JSON.");
//! ```

use serde::{Deserialize, Serialize};

use crate::spec::{AgentConfig, AgentSpec};

/// The purpose for which an agent is configured; selects its prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigType {
    /// An interactive conversation with a person.
    #[default]
    Conversation,
    /// An autonomous run of an execution definition.
    AgenticExecutionDefinition,
}

/// Provides an agent's configuration for a purpose. Its YAML form is [`AgentSpec`].
///
/// ```
/// use longhaul_sdk::{AgentConfig, AgentConfigProvider, AgentSpec, ConfigType};
///
/// /// An agent whose prompt is in the language of the deployment.
/// struct Support {
///     language: &'static str,
/// }
///
/// impl AgentConfigProvider for Support {
///     fn key(&self) -> &str {
///         "support"
///     }
///
///     fn config(&self, config_type: ConfigType) -> AgentConfig {
///         AgentSpec::new(self.key(), format!("Answer in {}.", self.language)).config(config_type)
///     }
/// }
///
/// let config = Support { language: "Dutch" }.config(ConfigType::AgenticExecutionDefinition);
/// assert_eq!(config.prompt, "Answer in Dutch.");
/// ```
pub trait AgentConfigProvider: Send + Sync + 'static {
    /// The agent's key, unique in a registry.
    fn key(&self) -> &str;

    /// The configuration for `config_type`.
    fn config(&self, config_type: ConfigType) -> AgentConfig;
}

impl AgentConfigProvider for AgentSpec {
    fn key(&self) -> &str {
        &self.key
    }

    fn config(&self, config_type: ConfigType) -> AgentConfig {
        let prompts = &self.prompts;
        let prompt = match (config_type, &self.personality) {
            (ConfigType::Conversation, Some(personality)) => format!("{personality}\n\n{}", prompts.conversation),
            (ConfigType::Conversation, None) => prompts.conversation.clone(),
            (ConfigType::AgenticExecutionDefinition, _) => {
                prompts.agentic_execution_definition.as_ref().unwrap_or(&prompts.conversation).clone()
            }
        };
        AgentConfig {
            prompt,
            model: self.model.clone(),
            tools: self.tools.clone(),
            mcp_servers: self.mcp_servers.clone(),
            latent_tools: self.latent_tools.clone(),
            datasets: self.datasets.clone(),
            skills: self.skills.clone(),
            memory: self.memory.clone(),
            references: self.references,
            conditions: self.conditions,
            instances: self.instances.clone(),
            approvals: self.approvals.clone(),
            limits: self.limits.clone(),
        }
    }
}
