//! Records how a tool call ended: its result, or the answer to a call that did not run.

use std::sync::Arc;

use longhaul_domain::{CallError, CallErrorKind, ToolCall, cut, message::FileRef, noted::Noted};
use longhaul_llm::Message;
use longhaul_references::{Path, PlannedCall, stored, value_of};
use longhaul_sdk::{Step, ToolScratchpad};
use longhaul_store::history::journal::{Hash, JournalStep, StepKind, StepState};
use longhaul_telemetry::metrics;
use longhaul_tools::CallOutcome;
use serde_json::{Value, json};

use super::{
    Agent, Journal, Writer,
    call_record::{Answered, CallBody},
    message_bytes,
    progress::{Stage, State},
};
use crate::ready_call::{ReadyCall, Reply};

/// Resolution of a call that may have taken effect.
const UNKNOWN: &str = "outcome_unknown";

/// A call that ran.
#[derive(Debug)]
pub(crate) struct CompletedCall {
    pub index: usize,
    pub(crate) ready: ReadyCall,
    pub outcome: CallOutcome,
    pub(crate) scratchpad: Arc<ToolScratchpad>,
}

/// What the model gets as the result of a call.
#[derive(Debug)]
pub(super) struct ResultContent {
    text: String,
    files: Vec<FileRef>,
}

impl From<String> for ResultContent {
    fn from(text: String) -> Self {
        Self { text, files: Vec::new() }
    }
}

impl Journal {
    /// Adds a call's result to the next commit, and writes it to the state at the call's destination.
    pub(crate) fn record_call(
        &mut self,
        agent: &Agent,
        ran: &CompletedCall,
        planned: Option<&PlannedCall>,
    ) -> Step<Answered> {
        let CompletedCall { index, ready, outcome, scratchpad } = ran;
        metrics::tool_call(&ready.tool, label(outcome), Some(outcome.duration));
        let (turn, index) = (self.writer.turns, u32::try_from(*index).unwrap_or(u32::MAX));
        let contract_calls = outcome.noted.iter().map(|noted| Noted::clone(noted).at(turn, index)).collect();
        let body = CallBody { scratchpad: scratchpad.snapshot(), contract_calls, ..self.writer.body_of(agent, ready) };
        self.writer.pending.calls += 1;
        let state = if outcome.error.is_some() { State::Failed } else { State::Completed };
        self.writer.stage(agent, Stage::Calling { tool: &ready.tool, call: &ready.written.id }, state);
        self.record_outcome(agent, ready, outcome, planned, body)
    }

    /// Adds a tool's reconciled result for a call that was running when its worker died to the next commit.
    pub(crate) fn record_reconciled(
        &mut self,
        agent: &Agent,
        ready: &ReadyCall,
        outcome: &CallOutcome,
        planned: Option<&PlannedCall>,
    ) -> Step<Answered> {
        let body = CallBody { resolution: Some("reconciled".into()), ..self.writer.body_of(agent, ready) };
        self.record_outcome(agent, ready, outcome, planned, body)
    }

    fn record_outcome(
        &mut self,
        agent: &Agent,
        ready: &ReadyCall,
        outcome: &CallOutcome,
        planned: Option<&PlannedCall>,
        mut body: CallBody,
    ) -> Step<Answered> {
        let (mut text, mut error) = (outcome.text.clone(), outcome.error);
        if outcome.is_unsent {
            (body.effect, body.idempotency_key) = (None, None);
        }
        if error.is_none() {
            match planned.map_or(Ok(Vec::new()), |planned| {
                self.transcript.write(
                    self.writer.turns,
                    &ready.written,
                    planned,
                    outcome.destination.as_deref(),
                    value_of(outcome.whole()),
                )
            }) {
                Ok(writes) => {
                    let paths: Vec<Path> = writes.iter().map(|write| write.path.clone()).collect();
                    if !paths.is_empty() {
                        text = stored(outcome.whole(), &paths);
                    }
                    body.writes = writes;
                }
                Err(reason) => {
                    let refused = CallError::new(CallErrorKind::Runtime, reason);
                    text = refused.to_text(&ready.written.name, &ready.written.arguments);
                    error = Some(refused.kind);
                }
            }
        }
        body.is_error = error.is_some();
        if matches!(error, Some(CallErrorKind::OutcomeUnknown | CallErrorKind::Timeout)) {
            body.resolution = Some(UNKNOWN.into());
        }
        if let Some(note) = &ready.note {
            text = format!("{note}\n{text}");
        }
        let text = cut(&text, agent.max_result_bytes()).into_owned();
        let ends_run = outcome.ends_run.as_ref();
        let failure_code = match ends_run {
            Some(failure) => Some(failure.code.to_string()),
            None => error.map(|kind| kind.as_str().to_owned()),
        };
        let result = ResultContent { text, files: outcome.kept.clone() };
        let answered = self.writer.push_result(ready.key, &ready.written, result, body, |step| JournalStep {
            name: Some(ready.tool.clone()),
            // The retry calls the tool again, so this step must not count.
            state: if ends_run.is_some() { StepState::Spent } else { StepState::Live },
            failure_code,
            took: outcome.duration,
            ..step
        })?;
        let step = self.writer.last_step();
        let took_ms = u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX);
        self.writer.call_event(json!({
            "tool": ready.tool, "step": step, "outcome": error.map_or("ok", CallErrorKind::as_str), "took_ms": took_ms,
        }));
        Ok(answered)
    }

    /// Records a latent call, whose result is the model's own output.
    pub(crate) fn record_latent(
        &mut self,
        key: Hash,
        call: &ToolCall,
        planned: Option<&PlannedCall>,
        output: Value,
    ) -> Step<Answered> {
        let written = planned
            .map_or(Ok(Vec::new()), |planned| self.transcript.write(self.writer.turns, call, planned, None, output));
        let (text, body) = match written {
            Ok(writes) => (json!({ "status": "recorded" }).to_string(), CallBody { writes, ..CallBody::default() }),
            Err(reason) => {
                let text = CallError::new(CallErrorKind::Structural, reason).to_text(&call.name, &call.arguments);
                (text, CallBody { is_error: true, ..CallBody::default() })
            }
        };
        self.writer.push_result(key, call, text, body, |step| step)
    }
}

impl Writer {
    /// Adds the answer to a call that did not run to the next commit. `resolution` names how its intent was
    /// resolved.
    pub(crate) fn record_answer(
        &mut self,
        agent: &Agent,
        key: Hash,
        call: &ToolCall,
        reply: Reply,
        resolution: Option<&str>,
    ) -> Step<Answered> {
        let Reply { text, error, is_skipped, noted } = reply;
        let effect = resolution.map(|_| agent.toolbox.effect(&call.name));
        let body = CallBody {
            is_error: error.is_some(),
            is_skipped,
            effect,
            idempotency_key: effect.map(|_| self.idempotency_key(&key)),
            resolution: resolution.map(str::to_owned),
            contract_calls: noted,
            ..CallBody::default()
        };
        let outcome = error.map_or(if is_skipped { "skipped" } else { "ok" }, CallErrorKind::as_str);
        let failure_code = error.map(|kind| kind.as_str().to_owned());
        let answered = self.push_result(key, call, text, body, |step| JournalStep { failure_code, ..step })?;
        let step = self.last_step();
        self.call_event(json!({ "tool": call.name, "step": step, "outcome": outcome }));
        Ok(answered)
    }

    /// Adds the event of a recorded call. `early`: in a session, the reply that makes the call still streams, and a
    /// chat shows the result after it.
    fn call_event(&mut self, mut data: Value) {
        if self.so_far.is_some() {
            data["early"] = true.into();
        }
        self.event("call", data);
    }

    /// Number of the step that was added last.
    fn last_step(&self) -> Option<i32> {
        self.pending.steps.last().map(|step| step.seq)
    }

    /// Answers every unanswered call when the run ends.
    ///
    /// # Errors
    /// A message cannot be written.
    pub fn answer_open_calls(&mut self, reason: &str) -> Step<()> {
        for (key, call) in std::mem::take(&mut self.open_calls) {
            let text = CallError::new(CallErrorKind::Cancelled, reason).to_text(&call.name, &call.arguments);
            self.event("call", json!({ "tool": call.name, "outcome": CallErrorKind::Cancelled.as_str() }));
            // The call may have run.
            let effect = self.intents.get(&key).and_then(|intent| intent.effect);
            let resolution = effect.map(|_| UNKNOWN.to_owned());
            let idempotency_key = effect.map(|_| self.idempotency_key(&key));
            let body = CallBody { is_error: true, effect, resolution, idempotency_key, ..CallBody::default() };
            self.push_result(key, &call, text, body, |step| step)?;
        }
        Ok(())
    }

    fn push_result(
        &mut self,
        key: Hash,
        call: &ToolCall,
        result: impl Into<ResultContent>,
        mut body: CallBody,
        finish: impl FnOnce(JournalStep) -> JournalStep,
    ) -> Step<Answered> {
        let (is_error, is_skipped) = (body.is_error, body.is_skipped);
        let ResultContent { text, files } = result.into();
        let message = Message::Tool { call_id: call.id.clone(), name: call.name.clone(), text, files, is_error };
        let (hash, bytes) = message_bytes(&message)?;
        // A resume of the partly recorded turn finds its calls in the results as well as in the intents.
        let (seq, begun) = self.intents.remove(&key).map(|intent| (intent.seq, intent.begun)).unzip();
        body.begun = begun.unwrap_or_default();
        let step = self.step(StepKind::Call, key, &body)?;
        let step = JournalStep {
            seq: seq.unwrap_or(step.seq),
            name: Some(call.name.clone()),
            appends: vec![bytes],
            preview: Some(self.secrets.preview(&call.name, &message.text(), is_error)),
            ..step
        };
        self.pending.steps.push(finish(step));
        let wrote = body.writes.iter().map(|write| write.path.clone()).collect();
        let value = body.writes.into_iter().next().map(|write| write.value);
        self.close_call(&key);
        Ok(Answered { message, hash, scratchpad: body.scratchpad, wrote, value, ran: body.ran, is_error, is_skipped })
    }
}

fn label(outcome: &CallOutcome) -> metrics::CallOutcome {
    match outcome.error {
        None => metrics::CallOutcome::Ok,
        Some(CallErrorKind::Structural) => metrics::CallOutcome::InvalidArguments,
        Some(CallErrorKind::Runtime) => metrics::CallOutcome::Error,
        Some(CallErrorKind::Timeout) => metrics::CallOutcome::Timeout,
        Some(CallErrorKind::Rejected) => metrics::CallOutcome::Rejected,
        Some(CallErrorKind::OutcomeUnknown) => metrics::CallOutcome::Unknown,
        Some(CallErrorKind::Cancelled) => metrics::CallOutcome::Aborted,
        Some(CallErrorKind::DependencyFailed | CallErrorKind::Cycle | CallErrorKind::UnresolvedReference) => {
            metrics::CallOutcome::Unrun
        }
    }
}
