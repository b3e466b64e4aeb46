//! Validator verdicts on an answer, and the correction that follows.

use std::{pin::pin, sync::Arc, time::Duration};

use longhaul_llm::Message;
use longhaul_sdk::{FailureCode, Step, Validation, Validator, ValidatorResponse};
use longhaul_store::history::journal::{JournalStep, StepKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Journal, preview, read_body, recorded_message};
use crate::{
    messages::hash_parts,
    probe::Point,
    validators::{FailedValidation, first_failure},
};

/// Maximum validation time while a paid turn is only in memory.
const VERDICT_IN_TIME: Duration = Duration::from_millis(10);

/// A validator's name and the start of its feedback.
fn complaint(validator: &str, feedback: Option<&str>) -> Value {
    json!({ "validator": validator, "feedback": feedback.map(preview) })
}

/// Body of a verdict step. Only refusals are recorded: an accepted answer ends the execution.
#[derive(Debug, Serialize, Deserialize)]
struct VerdictBody {
    retry_needed: bool,
    feedback: Option<String>,
    failure_code: Option<FailureCode>,
}

impl Journal {
    /// The first refusal of an answer, recorded or from the validators now.
    pub(crate) async fn verdict(
        &mut self,
        validators: &[Arc<dyn Validator>],
        validation: Validation<'_>,
    ) -> Step<Option<ValidatorResponse>> {
        if let Some(step) = self.replay.next_if(StepKind::Verdict) {
            let VerdictBody { retry_needed, feedback, failure_code } = read_body(&step)?;
            self.transcript.refuse_output(feedback.as_deref());
            self.complaint = Some(complaint(step.name.as_deref().unwrap_or_default(), feedback.as_deref()));
            return Ok(Some(ValidatorResponse { validation_successful: false, retry_needed, feedback, failure_code }));
        }
        let Some(refusal) = self.first_refusal(validators, validation).await? else { return Ok(None) };
        let response = refusal.response;
        self.transcript.refuse_output(response.feedback.as_deref());
        let complaint = complaint(&refusal.validator, response.feedback.as_deref());
        let body = VerdictBody {
            retry_needed: response.retry_needed,
            feedback: response.feedback.clone(),
            failure_code: response.failure_code.clone(),
        };
        let key = hash_parts(&[b"verdict", refusal.validator.as_bytes(), self.transcript.messages.chain()]);
        let step = self.writer.step(StepKind::Verdict, key, &body)?;
        self.writer.pending.steps.push(JournalStep {
            name: Some(refusal.validator.clone()),
            preview: response.feedback.as_deref().map(preview),
            ..step
        });
        let mut event = complaint.clone();
        event["retry_needed"] = response.retry_needed.into();
        self.writer.event("verdict", event);
        self.complaint = Some(complaint);
        Ok(Some(response))
    }

    /// Runs the validators. Commits a deferred turn on its own if they are slow or refuse.
    async fn first_refusal(
        &mut self,
        validators: &[Arc<dyn Validator>],
        validation: Validation<'_>,
    ) -> Step<Option<FailedValidation>> {
        let mut judged = pin!(first_failure(validators, validation));
        let refusal = match timeout(VERDICT_IN_TIME, &mut judged).await {
            Ok(refusal) => refusal,
            Err(_elapsed) => {
                self.commit_deferred_turn().await?;
                judged.await
            }
        };
        if refusal.is_some() {
            self.commit_deferred_turn().await?;
        }
        Ok(refusal)
    }

    async fn commit_deferred_turn(&mut self) -> Step<()> {
        if self.is_last_turn_deferred() && self.writer.has_pending_turn() {
            self.writer.flush().await?;
            self.writer.at(Point::TurnRecorded).await;
        }
        Ok(())
    }

    /// Clears the scratchpad and appends the feedback: as the output call's result if the output was a call,
    /// otherwise as a user message.
    pub(crate) fn correct(&mut self, feedback: &str) -> Step<()> {
        self.transcript.scratchpad.clear();
        if let Some(step) = self.replay.next_if(StepKind::Correction) {
            let recorded = step.appends.last().map(recorded_message).transpose()?;
            if !self.writer.scope.is_fork && recorded.is_some_and(|(message, _)| message.text() != feedback) {
                self.writer.diverged(json!({ "turn": self.writer.turns, "part": "feedback" }));
            }
            return self.transcript.replay_appends(&step);
        }
        let bytes = match self.transcript.output_result(feedback) {
            Some(result) => self.transcript.settle_output(result)?,
            None => self.transcript.append(Message::user(feedback))?,
        };
        let step = self.writer.step(
            StepKind::Correction,
            hash_parts(&[b"correction", self.transcript.messages.chain()]),
            &json!({}),
        )?;
        self.writer.pending.steps.push(JournalStep { appends: vec![bytes], preview: Some(preview(feedback)), ..step });
        self.writer.event("correction", json!({ "turn": self.writer.turns }));
        Ok(())
    }
}
