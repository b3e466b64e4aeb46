//! The calls a record lists, each written once, when the call is over, in the order of the contract's keys. Those of retrieval are in
//! `domain::retrieval`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

/// Which list of the record a call belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallList {
    /// Tools.
    ToolCalls,
    /// Embeddings.
    EmbeddingCalls,
    /// Retrieval.
    RetrievalCalls,
    /// The model.
    ModelCalls,
}

/// A call of the record.
#[derive(Debug, Clone)]
pub struct CallItem {
    /// Its list.
    pub list: CallList,
    /// The item, byte for byte as the record shows it.
    pub item: Box<RawValue>,
}

/// One request to the model, one per round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCall {
    /// The provider's slug.
    pub provider_slug: Option<String>,
    /// The provider's key.
    pub provider_key: Option<String>,
    /// The deployment profile's slug.
    pub deployment_profile_slug: Option<String>,
    /// The managed id, never the provider's.
    pub requested_model: String,
    /// What it answered.
    pub status_code: u16,
}

/// One call of a tool: with a result, or with an error.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolCall {
    /// Its id in the catalogue.
    pub tool_ref: String,
    /// The name the model calls.
    pub tool_name: String,
    /// `mcp` or `sandbox_http`.
    pub transport: String,
    /// `mcp_runtime` or `sandbox_execution`.
    pub runtime_capability: String,
    /// The provider's slug.
    pub provider_slug: Option<String>,
    /// The provider's key.
    pub provider_key: Option<String>,
    /// The deployment profile's slug.
    pub deployment_profile_slug: Option<String>,
    /// What it answered.
    pub status_code: u16,
    /// As the model wrote them.
    pub arguments: Value,
    /// What came of it, byte for byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// Why nothing did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
}

/// The error of a call whose arguments could not be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolFault {
    /// For machines.
    pub code: String,
    /// For the model.
    pub message: String,
    /// What it wrote.
    pub raw_arguments: String,
}
