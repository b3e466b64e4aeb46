//! Retrieval before the first turn: recorded once, with the exact text shown to the model.

use std::time::Instant;

use longhaul_domain::noted::NotedCall;
use longhaul_sdk::Step;
use longhaul_store::history::journal::{JournalStep, StepKind, StepState};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Agent, Journal,
    progress::{Stage, State},
    read_body,
};
use crate::{messages::hash_parts, prepare::profile::Retrieved};

/// Body of a retrieval step.
#[derive(Debug, Serialize, Deserialize)]
struct RetrievalBody {
    /// Text shown to the model; `None` if nothing was found.
    references: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    contract_calls: Vec<NotedCall>,
}

impl Journal {
    /// Returns the run's references, recorded or retrieved now. `None` if the run retrieves nothing.
    ///
    /// # Errors
    /// An interrupt, or the retrieval's failure.
    pub async fn retrieve(&mut self, agent: &Agent) -> Step<Option<String>> {
        let Some(asked) = agent.profile.retrieval() else { return Ok(None) };
        if let Some(step) = self.replay.next_if(StepKind::Retrieval) {
            return Ok(read_body::<RetrievalBody>(&step)?.references);
        }
        self.writer.control.may_launch().await?;
        self.writer.stage(agent, Stage::Retrieving, State::Running);
        self.writer.flush_stages(agent).await?;
        let started = Instant::now();
        let Retrieved { references, noted } = agent.profile.retrieve(self.writer.scope.tenant).await;
        let contract_calls = (0..).zip(noted).map(|(index, noted)| noted.at(0, index)).collect();
        let (references, failure) = match references {
            Ok(references) => (references, None),
            Err(failure) => (None, Some(failure)),
        };
        let key = hash_parts(&[b"retrieval", asked.as_bytes()]);
        let body = RetrievalBody { references, contract_calls };
        let step = self.writer.step(StepKind::Retrieval, key, &body)?;
        self.writer.pending.steps.push(JournalStep {
            state: if failure.is_some() { StepState::Spent } else { StepState::Live },
            failure_code: failure.as_ref().map(|failure| failure.code.to_string()),
            took: started.elapsed(),
            ..step
        });
        self.writer.stage(agent, Stage::Retrieving, if failure.is_some() { State::Failed } else { State::Completed });
        let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.writer.event("retrieval", json!({ "is_error": failure.is_some(), "took_ms": took_ms }));
        self.writer.flush().await?;
        failure.map_or(Ok(body.references), |failure| Err(failure.into()))
    }
}
