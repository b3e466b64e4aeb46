//! Requests of an execution to a person, and their states.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use crate::named;

named!(RequestKind, RequestState);

/// Kind of request.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RequestKind {
    /// Approve or reject a tool call.
    Approval,
    /// Answer a call in place of the tool.
    Question,
    /// Run a call of a tool that the caller runs.
    ToolCall,
}

/// State of a request. Every state but `waiting` is final.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RequestState {
    /// No response yet.
    Waiting,
    /// The call may run unchanged.
    Approved,
    /// The call may run with edited arguments.
    Edited,
    /// Another call runs instead.
    Replaced,
    /// The call must not run.
    Rejected,
    /// The question was answered, or the caller posted the output of its call.
    Answered,
    /// The caller posted an error of its call.
    Failed,
    /// The request timed out; counts as rejected.
    Expired,
    /// The execution ended before a response.
    Closed,
}
