//! What the journal holds of a tool call: the body of its step, its intent and its result.

use std::collections::BTreeMap;

use longhaul_domain::{ToolCall, noted::NotedCall};
use longhaul_llm::Message;
use longhaul_references::{Path, StateWrite};
use longhaul_sdk::ToolEffect;
use longhaul_store::history::journal::Hash;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Body of a call step, for intents and results.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct CallBody {
    /// The model sees an error.
    #[serde(default)]
    pub(super) is_error: bool,
    /// The call did not run, without an error.
    #[serde(default)]
    pub(super) is_skipped: bool,
    /// Values the tool recorded for the validators; applied again on replay.
    #[serde(default)]
    pub(super) scratchpad: BTreeMap<String, Value>,
    /// State writes of the result; applied again on replay, in the order in which the calls ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) writes: Vec<StateWrite>,
    /// Calls of the reply that were complete when this call started early, except those held by another step of
    /// the turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) begun: Vec<ToolCall>,
    /// The tool's effect class. `None` for a call that did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) effect: Option<ToolEffect>,
    /// Idempotency key given to the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) idempotency_key: Option<String>,
    /// The call that ran, if it differs from the model's text: references resolved, or edited by a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ran: Option<RanAs>,
    /// Resolution of an intent that did not run again. `outcome_unknown` also marks a call that ran and may have
    /// taken effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) resolution: Option<String>,
    /// Entries for the record of a contract execution.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) contract_calls: Vec<NotedCall>,
}

impl CallBody {
    /// True if the call reached its tool.
    pub(super) fn has_run(&self) -> bool {
        self.effect.is_some()
    }
}

/// A tool and its full arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RanAs {
    pub tool: String,
    pub arguments: Value,
}

/// A recorded intent without a result.
pub(super) struct Intent {
    /// Sequence number, which the result takes over.
    pub(super) seq: i32,
    pub(super) effect: Option<ToolEffect>,
    /// Calls of a partly recorded turn that the intent holds.
    pub(super) begun: Vec<ToolCall>,
    /// An earlier attempt recorded it, and may have made the call.
    pub(super) may_have_run: bool,
}

/// A recorded call with its result.
#[derive(Debug, Clone)]
pub(crate) struct Answered {
    pub message: Message,
    pub(super) hash: Hash,
    pub(super) scratchpad: BTreeMap<String, Value>,
    /// State paths that the result was written to.
    pub(crate) wrote: Vec<Path>,
    /// The full result, if the model was shown less of it.
    pub(super) value: Option<Value>,
    /// The call that ran, if it differs from the model's text.
    pub(super) ran: Option<RanAs>,
    pub(crate) is_error: bool,
    pub is_skipped: bool,
}

/// The journal's record of a call.
#[derive(Debug)]
pub(crate) enum Recalled {
    /// No record.
    New,
    /// A result.
    Answered(Box<Answered>),
    /// An intent without a result: the call may have run.
    Begun(Option<RanAs>),
}
