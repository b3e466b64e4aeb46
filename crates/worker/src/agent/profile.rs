//! Differences between the surfaces that an agent runs for. The profile is chosen once, when the agent is prepared.

use longhaul_llm::{Message, ModelError};
use longhaul_sdk::{Failure, Step};
use longhaul_shared::domain::{
    CallError, ToolCall,
    contract_steps::{NotedCall, NotedModel},
};
use serde_json::{Value, json};

use super::journal::Reply;
use crate::contract::{Contract, Retrieval};

/// Surface that an agent runs for.
#[derive(Debug)]
pub(crate) enum Profile {
    /// Longhaul's own API.
    Own,
    /// The agent-execution contract.
    Contract(Box<Contract>),
}

/// Position of a call in its execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallPosition {
    /// Number of the turn, from 1.
    pub(crate) turn: u32,
    /// Index in the reply, from 0.
    pub(crate) index: u32,
}

/// Handling of a call that cannot be parsed.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// The model gets this result.
    Told(Reply),
    /// The result is recorded and the run ends with the failure.
    Ends(Reply, Failure),
}

impl Profile {
    /// True if Longhaul adds to the conversation: announces the last turns, warns of repeated calls, compresses a
    /// transcript that exceeds the model's window.
    pub(crate) fn takes_part(&self) -> bool {
        match self {
            Self::Own => true,
            Self::Contract(_) => false,
        }
    }

    /// An output that needs no model call.
    pub(crate) fn output_at_once(&self) -> Option<Value> {
        match self {
            Self::Own => None,
            Self::Contract(contract) => contract.answer_at_once().map(|text| json!({ "response": text })),
        }
    }

    /// The opening messages: `instructions` and the text of `task`.
    ///
    /// # Errors
    /// If `task` fails.
    pub(crate) async fn opening(
        &self,
        instructions: String,
        references: Option<String>,
        task: impl Future<Output = Result<String, Failure>>,
    ) -> Result<Vec<Message>, Failure> {
        match self {
            Self::Own => Ok(vec![Message::system(instructions), Message::user(task.await?)]),
            Self::Contract(contract) => Ok(contract.opening(instructions, references)),
        }
    }

    /// The model to pin with the prompt; and true if the pin must be committed before the first request.
    pub(crate) fn pinned_model(&self) -> Option<(&NotedModel, bool)> {
        match self {
            Self::Own => None,
            Self::Contract(contract) => contract.pinned_model(),
        }
    }

    /// Retrieval to run before the first turn, if the execution asks for one.
    pub(crate) fn retrieval(&self) -> Option<&Retrieval> {
        match self {
            Self::Own => None,
            Self::Contract(contract) => contract.retrieval(),
        }
    }

    /// True if a caller streams the run and gets its stages.
    pub(crate) fn is_followed(&self) -> bool {
        match self {
            Self::Own => false,
            Self::Contract(contract) => contract.is_followed(),
        }
    }

    /// Checks that the calls of the last reply may run: one more turn must be allowed.
    ///
    /// # Errors
    /// The failure that ends the run instead.
    pub(crate) fn check_round(&self, turns: u32) -> Step<()> {
        let failure = match self {
            Self::Own => None,
            Self::Contract(contract) => contract.last_round(turns),
        };
        failure.map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Maps a failed model call to the failure of the execution.
    pub(crate) fn model_failure(&self, error: &ModelError) -> Failure {
        match self {
            Self::Own => error.to_failure(),
            Self::Contract(contract) => contract.model_failure(error),
        }
    }

    /// The failure to return instead of waiting for a provider; `None` if the execution waits.
    pub(crate) fn instead_of_waiting(&self) -> Option<Failure> {
        match self {
            Self::Own => None,
            Self::Contract(contract) => Some(contract.unavailable()),
        }
    }

    /// Items for the contract's list of model calls; `error` if the call failed.
    pub(crate) fn noted_turn(&self, turn: u32, error: Option<&ModelError>) -> Vec<NotedCall> {
        match self {
            Self::Own => Vec::new(),
            Self::Contract(contract) => contract.noted_turn(turn, error),
        }
    }

    /// Decides on a call that cannot be parsed because of `error`.
    pub(crate) fn unreadable(&self, call: &ToolCall, error: &CallError, place: CallPosition) -> Unreadable {
        match self {
            Self::Own => Unreadable::Told(Reply::error(error, call)),
            Self::Contract(contract) => contract.unreadable(call, place),
        }
    }

    /// The result of a call whose outcome is unknown.
    pub(crate) fn lost(&self, call: &ToolCall, error: &CallError, place: CallPosition) -> Reply {
        let own = || Reply::error(error, call);
        match self {
            Self::Own => own(),
            Self::Contract(contract) => contract.lost(call, &error.message, place).unwrap_or_else(own),
        }
    }
}
