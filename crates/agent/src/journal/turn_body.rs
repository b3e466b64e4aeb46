//! Bodies of turn steps.

use longhaul_domain::noted::NotedCall;
use longhaul_llm::{FinishReason, Usage};
use serde::{Deserialize, Serialize};

/// What the model is told after a reply without text and calls.
pub(super) const EMPTY_NOTICE: &str = "[Your reply was empty. Call a tool, or answer.]";

/// Body of a turn step.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TurnBody {
    pub(super) provider: String,
    pub(super) finish: FinishReason,
    #[serde(default)]
    pub(super) unfinished_call: Option<usize>,
    #[serde(default)]
    pub(super) is_broken: bool,
    /// True if its session was interrupted meanwhile. Sessions read this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_interrupted: bool,
    /// What the model is told after a reply that is of no use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) notice: Option<String>,
    pub(super) usage: Usage,
    pub(super) model: Option<String>,
    pub(super) request_id: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) contract_calls: Vec<NotedCall>,
}

impl TurnBody {
    /// The body of a reply whose usage is unknown.
    pub(super) fn new(provider: String, finish: FinishReason) -> Self {
        Self {
            provider,
            is_broken: false,
            is_interrupted: false,
            unfinished_call: None,
            notice: None,
            usage: Usage::default(),
            model: None,
            request_id: None,
            contract_calls: Vec::new(),
            finish,
        }
    }
}

/// Body of a partly recorded turn.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct BegunTurnBody {
    pub(super) text: String,
}
