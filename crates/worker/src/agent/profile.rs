//! What differs between the surfaces that an agent runs for. Chosen once, when the agent is prepared; the loop asks it.

use longhaul_sdk::{Failure, Step};
use longhaul_shared::domain::contract_steps::{NotedCall, NotedModel};
use serde_json::{Value, json};

use super::journal::Reply;
use crate::{
    contract::{Contract, Retrieval},
    llm::{Message, ModelError, ToolCall},
    tools::CallError,
};

/// For whom an agent runs.
#[derive(Debug)]
pub(crate) enum Profile {
    /// Longhaul's own callers.
    Own,
    /// Callers of the agent-execution contract.
    Contract(Box<Contract>),
}

/// Where a call stands in its execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The turn, from 1.
    pub(crate) turn: u32,
    /// Its place in the reply.
    pub(crate) index: u32,
}

/// What becomes of a call that cannot be read.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// The model is told.
    Told(Reply),
    /// It is recorded, and the run ends.
    Ends(Reply, Failure),
}

impl Profile {
    /// Whether Longhaul takes part in the conversation: tells the model of its last turns and of calls that repeat themselves, and
    /// compresses what outgrows its window.
    pub(crate) fn takes_part(&self) -> bool {
        match self {
            Self::Own => true,
            Self::Contract(_) => false,
        }
    }

    /// An output that needs no model.
    pub(crate) fn output_at_once(&self) -> Option<Value> {
        match self {
            Self::Own => None,
            Self::Contract(contract) => contract.answer_at_once().map(|text| json!({ "response": text })),
        }
    }

    /// What the model is told first: `instructions`, and what `task` says.
    ///
    /// # Errors
    /// The task cannot be said.
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

    /// What is pinned of the model with the prompt; and whether it must be committed before anything is asked.
    pub(crate) fn pinned_model(&self) -> Option<(&NotedModel, bool)> {
        match self {
            Self::Own => None,
            Self::Contract(contract) => contract.pinned_model(),
        }
    }

    /// Who looks for references before the first turn; none where none are asked for.
    pub(crate) fn retrieval(&self) -> Option<&Retrieval> {
        match self {
            Self::Own => None,
            Self::Contract(contract) => contract.retrieval(),
        }
    }

    /// Whether somebody follows the run and is told of its stages.
    pub(crate) fn is_followed(&self) -> bool {
        match self {
            Self::Own => false,
            Self::Contract(contract) => contract.is_followed(),
        }
    }

    /// Whether the calls of the last reply may run.
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

    /// What a failed model call is for the execution.
    pub(crate) fn model_failure(&self, error: &ModelError) -> Failure {
        match self {
            Self::Own => error.to_failure(),
            Self::Contract(contract) => contract.model_failure(error),
        }
    }

    /// The failure that stands for every wait for a provider; none where the execution waits.
    pub(crate) fn instead_of_waiting(&self) -> Option<Failure> {
        match self {
            Self::Own => None,
            Self::Contract(contract) => Some(contract.unavailable()),
        }
    }

    /// What the record lists of a model call; `error` when it failed.
    pub(crate) fn noted_turn(&self, turn: u32, error: Option<&ModelError>) -> Vec<NotedCall> {
        match self {
            Self::Own => Vec::new(),
            Self::Contract(contract) => contract.noted_turn(turn, error),
        }
    }

    /// What becomes of a call that cannot be read, for the reason that `error` gives.
    pub(crate) fn unreadable(&self, call: &ToolCall, error: &CallError, place: Place) -> Unreadable {
        match self {
            Self::Own => Unreadable::Told(Reply::error(error, call)),
            Self::Contract(contract) => contract.unreadable(call, place),
        }
    }

    /// What the model is told of a call whose outcome nobody knows.
    pub(crate) fn lost(&self, call: &ToolCall, error: &CallError, place: Place) -> Reply {
        let own = || Reply::error(error, call);
        match self {
            Self::Own => own(),
            Self::Contract(contract) => contract.lost(call, &error.message, place).unwrap_or_else(own),
        }
    }
}
