//! Calls listed in a record. Each is written once, when the call has ended, with the keys in the order of the
//! contract. Retrieval calls are in `domain::retrieval`.

use longhaul_domain::noted::CallList;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

/// A call of the record.
#[derive(Debug, Clone)]
pub struct CallItem {
    pub list: CallList,
    /// Item, byte for byte as the record shows it.
    pub item: Box<RawValue>,
}

/// One request to the model; one per round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCall {
    pub provider_slug: Option<String>,
    pub provider_key: Option<String>,
    pub deployment_profile_slug: Option<String>,
    /// Managed model id, never the provider's.
    pub requested_model: String,
    /// HTTP status of the response.
    pub status_code: u16,
}

/// One tool call, with either a result or an error.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolCall {
    /// Id in the catalogue.
    pub tool_ref: String,
    /// Name that the model calls.
    pub tool_name: String,
    /// `mcp` or `sandbox_http`.
    pub transport: String,
    /// `mcp_runtime` or `sandbox_execution`.
    pub runtime_capability: String,
    pub provider_slug: Option<String>,
    pub provider_key: Option<String>,
    pub deployment_profile_slug: Option<String>,
    /// HTTP status of the response.
    pub status_code: u16,
    /// Arguments as the model wrote them.
    pub arguments: Value,
    /// Result, byte for byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// Error, if there is no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
}

/// Error of a call whose arguments could not be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolFault {
    /// Code for machines.
    pub code: String,
    /// Message for the model.
    pub message: String,
    /// Arguments as the model wrote them.
    pub raw_arguments: String,
}
