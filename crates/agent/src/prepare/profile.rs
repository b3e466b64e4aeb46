//! Differences between the surfaces that an agent runs for.

use std::fmt;

use async_trait::async_trait;
use longhaul_domain::{
    CallError, TenantId, ToolCall,
    noted::{Noted, NotedCall, NotedModel},
};
use longhaul_llm::{Message, ModelError, ToolChoice};
use longhaul_sdk::{Failure, Step};
use serde_json::Value;

use crate::ready_call::Reply;

/// Surface that an agent runs for, chosen once, when the agent is prepared. The loop asks it where surfaces differ;
/// the defaults are Longhaul's own API.
#[async_trait]
pub trait Profile: fmt::Debug + Send + Sync {
    /// True if Longhaul adds to the conversation: announces the last turns, warns of repeated calls, compresses a
    /// transcript that exceeds the model's window.
    fn takes_part(&self) -> bool {
        true
    }

    /// An output that needs no model call.
    fn output_at_once(&self) -> Option<Value> {
        None
    }

    /// The opening messages, if they are not the instructions and the task.
    fn opening(&self, _instructions: &str, _references: Option<&str>) -> Option<Vec<Message>> {
        None
    }

    /// Instructions that follow the agent's, before the task, if [`opening`](Self::opening) has none.
    fn further_instructions(&self) -> Option<&str> {
        None
    }

    /// The tools that the model may or must call in a turn, counted from 1, that is not the last one.
    fn tool_choice(&self, _turn: u32) -> ToolChoice<'_> {
        ToolChoice::Auto
    }

    /// Most calls of tools that workers run; each further one is refused.
    fn max_tool_calls(&self) -> Option<u32> {
        None
    }

    /// True if the text of replies is recorded in portions while the model writes it.
    fn records_text(&self) -> bool {
        false
    }

    /// True if the run is one model call: its reply is the answer, even cut or empty, and no worker runs its calls.
    fn is_single_call(&self) -> bool {
        false
    }

    /// The model to pin with the prompt; and true if the pin must be committed before the first request.
    fn pinned_model(&self) -> Option<(&NotedModel, bool)> {
        None
    }

    /// The search to run before the first turn, as stored, if the execution asks for one.
    fn retrieval(&self) -> Option<&str> {
        None
    }

    /// Runs that search for `tenant`.
    async fn retrieve(&self, _tenant: TenantId) -> Retrieved {
        Retrieved { references: Ok(None), noted: Vec::new() }
    }

    /// True if a caller streams the run and gets its stages.
    fn is_followed(&self) -> bool {
        false
    }

    /// Checks that the calls of the last reply may run: one more turn must be allowed after `turns`.
    ///
    /// # Errors
    /// The failure that ends the run instead.
    fn check_round(&self, _turns: u32) -> Step<()> {
        Ok(())
    }

    /// Maps a failed model call to the failure of the execution.
    fn model_failure(&self, error: &ModelError) -> Failure {
        error.to_failure()
    }

    /// The failure to return instead of waiting for a provider; `None` if the execution waits.
    fn instead_of_waiting(&self) -> Option<Failure> {
        None
    }

    /// Items for the record's list of model calls; `error` if the call failed.
    fn noted_turn(&self, _turn: u32, _error: Option<&ModelError>) -> Vec<NotedCall> {
        Vec::new()
    }

    /// Decides on a call that cannot be parsed because of `error`.
    fn unreadable(&self, call: &ToolCall, error: &CallError, _place: CallPosition) -> Unreadable {
        Unreadable::Told(Reply::error(error, call))
    }

    /// The result of a call whose outcome is unknown.
    fn lost(&self, call: &ToolCall, error: &CallError, _place: CallPosition) -> Reply {
        Reply::error(error, call)
    }
}

/// Longhaul's own API.
#[derive(Debug)]
pub(crate) struct Own;

impl Profile for Own {}

/// Position of a call in its execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallPosition {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Index in the reply, from 0.
    pub index: u32,
}

/// Handling of a call that cannot be parsed.
#[derive(Debug)]
pub enum Unreadable {
    /// The model gets this result.
    Told(Reply),
    /// The result is recorded and the run ends with the failure.
    Ends(Reply, Failure),
}

/// The outcome of a search.
#[derive(Debug)]
pub struct Retrieved {
    /// The text for the model; `None` if nothing was found.
    pub references: Result<Option<String>, Failure>,
    /// Items for the record, including failed calls.
    pub noted: Vec<Noted>,
}
