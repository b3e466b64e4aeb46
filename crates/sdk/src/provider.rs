//! The source of an agent's configuration.

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
        let prompt = match config_type {
            ConfigType::Conversation => &self.prompts.conversation,
            ConfigType::AgenticExecutionDefinition => {
                self.prompts.agentic_execution_definition.as_ref().unwrap_or(&self.prompts.conversation)
            }
        };
        AgentConfig {
            prompt: prompt.clone(),
            model: self.model.clone(),
            tools: self.tools.clone(),
            mcp_servers: self.mcp_servers.clone(),
            latent_tools: self.latent_tools.clone(),
            datasets: self.datasets.clone(),
            references: self.references,
            conditions: self.conditions,
            instances: self.instances.clone(),
            approvals: self.approvals.clone(),
            limits: self.limits.clone(),
        }
    }
}
