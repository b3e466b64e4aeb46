//! What validators said of an answer, and the correction that follows.

use std::sync::Arc;

use longhaul_sdk::{FailureCode, Step, Validation, Validator, ValidatorResponse};
use longhaul_shared::store::journal::{JournalStep, StepKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Journal, preview, read_body};
use crate::{agent::transcript::hash_parts, llm::Message, validators::first_failure};

/// A validator and the beginning of its words.
fn complaint(validator: &str, feedback: Option<&str>) -> Value {
    json!({ "validator": validator, "feedback": feedback.map(preview) })
}

/// The body of a verdict step. Only refusals are recorded: an answer that passed ends the execution.
#[derive(Debug, Serialize, Deserialize)]
struct VerdictBody {
    retry_needed: bool,
    feedback: Option<String>,
    failure_code: Option<FailureCode>,
}

impl Journal {
    /// The first refusal of an answer: recorded, or from the validators now.
    ///
    /// # Errors
    /// A record that cannot be read.
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
        let Some(refusal) = first_failure(validators, validation).await else { return Ok(None) };
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

    /// The last refusal of an answer: `validator` and `feedback`.
    pub(crate) fn complaint(&self) -> Option<&Value> {
        self.complaint.as_ref()
    }

    /// Clears the scratchpad and appends the feedback: as the result of the output's call when the output was one.
    ///
    /// # Errors
    /// A record that cannot be read.
    pub(crate) fn correct(&mut self, feedback: &str) -> Step<()> {
        self.scratchpad.clear();
        if self.recorded.front().is_some_and(|step| step.kind == StepKind::Correction)
            && let Some(step) = self.replay(StepKind::Correction)
        {
            let recorded = step.appends.last().map(|hash| self.stored_message(hash)).transpose()?;
            if !self.place.is_fork && recorded.is_some_and(|message| message.text() != feedback) {
                self.diverged(json!({ "turn": self.turns, "part": "feedback" }));
            }
            return self.replay_appends(&step);
        }
        let hash = match self.output_result(feedback) {
            Some(result) => self.settle_output(result)?,
            None => self.append(Message::user(feedback))?,
        };
        let step =
            self.step(StepKind::Correction, hash_parts(&[b"correction", self.transcript.chain()]), &json!({}))?;
        self.pending.steps.push(JournalStep { appends: vec![hash], preview: Some(preview(feedback)), ..step });
        self.event("correction", json!({ "turn": self.turns }));
        Ok(())
    }
}
