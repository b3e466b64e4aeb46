//! Validator verdicts on an answer, and the correction that follows.

use std::{pin::pin, sync::Arc, time::Duration};

use longhaul_llm::Message;
use longhaul_sdk::{FailureCode, Step, Validation, Validator, ValidatorResponse};
use longhaul_store::journal::{JournalStep, StepKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Journal, preview, read_body, recorded_message};
use crate::{
    probe::Point,
    transcript::hash_parts,
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
    ///
    /// # Errors
    /// The record cannot be read.
    pub(crate) async fn verdict(
        &mut self,
        validators: &[Arc<dyn Validator>],
        validation: Validation<'_>,
    ) -> Step<Option<ValidatorResponse>> {
        if self.recorded.front().is_some_and(|step| step.kind == StepKind::Verdict)
            && let Some(step) = self.replay(StepKind::Verdict)
        {
            let VerdictBody { retry_needed, feedback, failure_code } = read_body(&step)?;
            self.refuse_output(feedback.as_deref());
            self.complaint = Some(complaint(step.name.as_deref().unwrap_or_default(), feedback.as_deref()));
            return Ok(Some(ValidatorResponse { validation_successful: false, retry_needed, feedback, failure_code }));
        }
        let Some(refusal) = self.first_refusal(validators, validation).await? else { return Ok(None) };
        let response = refusal.response;
        self.refuse_output(response.feedback.as_deref());
        let complaint = complaint(&refusal.validator, response.feedback.as_deref());
        let body = VerdictBody {
            retry_needed: response.retry_needed,
            feedback: response.feedback.clone(),
            failure_code: response.failure_code.clone(),
        };
        let key = hash_parts(&[b"verdict", refusal.validator.as_bytes(), self.transcript.chain()]);
        let step = self.step(StepKind::Verdict, key, &body)?;
        self.pending.steps.push(JournalStep {
            name: Some(refusal.validator.clone()),
            preview: response.feedback.as_deref().map(preview),
            ..step
        });
        let mut event = complaint.clone();
        event["retry_needed"] = response.retry_needed.into();
        self.event("verdict", event);
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
        if self.is_last_turn_deferred() && self.has_pending_turn() {
            self.flush().await?;
            self.at(Point::TurnRecorded).await;
        }
        Ok(())
    }

    /// The last refusal of an answer: `validator` and `feedback`.
    pub fn complaint(&self) -> Option<&Value> {
        self.complaint.as_ref()
    }

    /// Clears the scratchpad and appends the feedback: as the output call's result if the output was a call,
    /// otherwise as a user message.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(crate) fn correct(&mut self, feedback: &str) -> Step<()> {
        self.scratchpad.clear();
        if self.recorded.front().is_some_and(|step| step.kind == StepKind::Correction)
            && let Some(step) = self.replay(StepKind::Correction)
        {
            let recorded = step.appends.last().map(recorded_message).transpose()?;
            if !self.scope.is_fork && recorded.is_some_and(|(message, _)| message.text() != feedback) {
                self.diverged(json!({ "turn": self.turns, "part": "feedback" }));
            }
            return self.replay_appends(&step);
        }
        let bytes = match self.output_result(feedback) {
            Some(result) => self.settle_output(result)?,
            None => self.append(Message::user(feedback))?,
        };
        let step =
            self.step(StepKind::Correction, hash_parts(&[b"correction", self.transcript.chain()]), &json!({}))?;
        self.pending.steps.push(JournalStep { appends: vec![bytes], preview: Some(preview(feedback)), ..step });
        self.event("correction", json!({ "turn": self.turns }));
        Ok(())
    }
}
