//! Records the tool calls of a reply: an intent before a call that must not be repeated, its result when it ends,
//! and the results in the transcript in call order when the tick closes.

use std::{collections::BTreeMap, sync::Arc};

use longhaul_llm::Message;
use longhaul_references::{CallWrite, Path, PlannedCall, StateWrite, stored, value_of};
use longhaul_sdk::{Step, ToolEffect, ToolScratchpad};
use longhaul_shared::{
    domain::{
        CallError, CallErrorKind, ToolCall, cut,
        noted::{Noted, NotedCall},
    },
    telemetry::metrics,
};
use longhaul_store::journal::{Hash, JournalStep, StepKind, StepState};
use longhaul_tools::CallOutcome;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Agent, Journal, message_bytes,
    progress::{Stage, State},
    read_body, recorded_message,
};
use crate::{admission::ReadyCall, transcript::hash_parts};

/// Body of a call step, for intents and results.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct CallBody {
    /// The model sees an error.
    #[serde(default)]
    is_error: bool,
    /// The call did not run, without an error.
    #[serde(default)]
    is_skipped: bool,
    /// Values the tool recorded for the validators; applied again on replay.
    #[serde(default)]
    scratchpad: BTreeMap<String, Value>,
    /// State writes of the result; applied again on replay, in the order in which the calls ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    writes: Vec<StateWrite>,
    /// Calls of the reply that were complete when this call started early, except those held by another step of
    /// the turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    begun: Vec<ToolCall>,
    /// The tool's effect class. `None` for a call that did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    effect: Option<ToolEffect>,
    /// Idempotency key given to the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<String>,
    /// The call that ran, if it differs from the model's text: references resolved, or edited by a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ran: Option<RanAs>,
    /// Resolution of an intent that did not run again. `outcome_unknown` also marks a call that ran and may have
    /// taken effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resolution: Option<String>,
    /// Entries for the record of a contract execution.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    contract_calls: Vec<NotedCall>,
}

/// Resolution of a call that may have taken effect.
const UNKNOWN: &str = "outcome_unknown";

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

/// The key of a call: its turn, its index in the reply and its text. The index separates two identical calls of
/// one reply.
pub(crate) fn call_key(turn: &Hash, index: usize, call: &ToolCall) -> Hash {
    hash_parts(&[b"call", turn, &index.to_be_bytes(), call.name.as_bytes(), call.arguments.as_bytes()])
}

/// A recorded call with its result.
#[derive(Debug, Clone)]
pub(crate) struct Answered {
    pub message: Message,
    hash: Hash,
    scratchpad: BTreeMap<String, Value>,
    /// State paths that the result was written to.
    pub(crate) wrote: Vec<Path>,
    /// The full result, if the model was shown less of it.
    value: Option<Value>,
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

/// A call that ran.
#[derive(Debug)]
pub(crate) struct CompletedCall {
    pub index: usize,
    pub(crate) ready: ReadyCall,
    pub outcome: CallOutcome,
    pub(crate) scratchpad: Arc<ToolScratchpad>,
}

/// An answer to a call that did not run.
#[derive(Debug)]
pub struct Reply {
    pub text: String,
    pub error: Option<CallErrorKind>,
    pub is_skipped: bool,
    /// Entries for the record of a contract execution.
    pub noted: Vec<NotedCall>,
}

impl Reply {
    /// An error for a call that did not run.
    pub fn error(error: &CallError, call: &ToolCall) -> Self {
        let text = error.to_text(&call.name, &call.arguments);
        Self { text, error: Some(error.kind), is_skipped: false, noted: Vec::new() }
    }

    /// A note, not an error, for a call that did not run.
    pub(crate) fn skipped(text: Value) -> Self {
        Self { text: text.to_string(), error: None, is_skipped: true, noted: Vec::new() }
    }

    /// An error with the given text.
    pub fn plain(text: String) -> Self {
        Self { text, error: Some(CallErrorKind::Structural), is_skipped: false, noted: Vec::new() }
    }
}

impl Journal {
    /// Looks a call up in the journal and applies its recorded state writes.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(crate) fn recall(&mut self, key: &Hash) -> Step<Recalled> {
        let Some(step) = self.recorded_calls.remove(key) else { return Ok(Recalled::New) };
        let body: CallBody = read_body(&step)?;
        if step.state != StepState::Live {
            self.intents.insert(*key, (step.seq, body.effect));
            self.begun.insert(*key, body.begun);
            return Ok(Recalled::Begun(body.ran));
        }
        let result = step.appends.first().ok_or_else(|| super::corrupt(&"a call without a result"))?;
        let (message, hash) = recorded_message(result)?;
        let wrote = body.writes.iter().map(|write| write.path.clone()).collect();
        let value = body.writes.first().map(|write| write.value.clone());
        self.state.restore(body.writes);
        Ok(Recalled::Answered(Box::new(Answered {
            message,
            hash,
            scratchpad: body.scratchpad,
            wrote,
            value,
            ran: body.ran,
            is_error: body.is_error,
            is_skipped: body.is_skipped,
        })))
    }

    /// The calls of a partly recorded turn, read from the steps after it in any state.
    pub(super) fn begun_calls(&mut self) -> Step<Vec<ToolCall>> {
        let mut steps = std::mem::take(&mut self.begun_steps);
        steps.sort_by_key(|step| step.seq);
        let mut calls = Vec::new();
        for step in steps {
            calls.extend(read_body::<CallBody>(&step)?.begun);
        }
        Ok(calls)
    }

    /// Adds the call's intent to the next commit, unless it is recorded. `begun` are the turn's complete calls
    /// that none of its other steps holds.
    pub(crate) fn intend(&mut self, agent: &Agent, ready: &ReadyCall, begun: Vec<ToolCall>) -> Step<()> {
        if self.intents.contains_key(&ready.key) {
            return Ok(());
        }
        let body = CallBody { begun: begun.clone(), ..self.body_of(agent, ready) };
        let step = self.step(StepKind::Call, ready.key, &body)?;
        let step = JournalStep { state: StepState::Intent, name: Some(ready.tool.clone()), ..step };
        self.intents.insert(ready.key, (step.seq, body.effect));
        self.begun.insert(ready.key, begun);
        self.pending.steps.push(step);
        Ok(())
    }

    /// Withdraws the intent of a call that certainly did not run. Otherwise the next attempt would have to treat
    /// its outcome as unknown.
    pub(crate) fn withdraw(&mut self, agent: &Agent, ready: &ReadyCall) -> Step<()> {
        let Some((seq, _)) = self.intents.remove(&ready.key) else { return Ok(()) };
        let begun = self.begun.remove(&ready.key).unwrap_or_default();
        let body = CallBody { begun, ..self.body_of(agent, ready) };
        let step = self.step(StepKind::Call, ready.key, &body)?;
        self.pending.steps.push(JournalStep { seq, state: StepState::Spent, name: Some(ready.tool.clone()), ..step });
        Ok(())
    }

    fn body_of(&self, agent: &Agent, ready: &ReadyCall) -> CallBody {
        let is_as_written = ready.tool == ready.written.name
            && serde_json::from_str::<Value>(&ready.written.arguments).is_ok_and(|written| written == ready.arguments);
        let ran = (!is_as_written).then(|| RanAs { tool: ready.tool.clone(), arguments: ready.arguments.clone() });
        CallBody {
            effect: Some(agent.toolbox.effect(&ready.tool)),
            idempotency_key: Some(self.idempotency_key(&ready.key)),
            ran,
            ..CallBody::default()
        }
    }

    /// Adds the answer to a call that did not run to the next commit. `resolution` names how its intent was
    /// resolved.
    ///
    /// # Errors
    /// The message cannot be written.
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
        self.event("call", json!({ "tool": call.name, "step": step, "outcome": outcome }));
        Ok(answered)
    }

    /// Adds a call's result to the next commit, and writes it to the state at the call's destination.
    ///
    /// # Errors
    /// The message cannot be written.
    pub(crate) fn record_call(
        &mut self,
        agent: &Agent,
        ran: &CompletedCall,
        planned: Option<&PlannedCall>,
    ) -> Step<Answered> {
        let CompletedCall { index, ready, outcome, scratchpad } = ran;
        metrics::tool_call(label(outcome), outcome.duration);
        let (turn, index) = (self.turns, u32::try_from(*index).unwrap_or(u32::MAX));
        let contract_calls = outcome.noted.iter().map(|noted| Noted::clone(noted).at(turn, index)).collect();
        let body = CallBody { scratchpad: scratchpad.snapshot(), contract_calls, ..self.body_of(agent, ready) };
        self.pending.calls += 1;
        let state = if outcome.error.is_some() { State::Failed } else { State::Completed };
        self.stage(agent, Stage::Calling { tool: &ready.tool, call: &ready.written.id }, state);
        self.record_outcome(agent, ready, outcome, planned, body)
    }

    /// Adds a tool's reconciled result for a call that was running when its worker died to the next commit.
    ///
    /// # Errors
    /// The message cannot be written.
    pub(crate) fn record_reconciled(
        &mut self,
        agent: &Agent,
        ready: &ReadyCall,
        outcome: &CallOutcome,
        planned: Option<&PlannedCall>,
    ) -> Step<Answered> {
        let body = CallBody { resolution: Some("reconciled".into()), ..self.body_of(agent, ready) };
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
                self.write(&ready.written, planned, outcome.destination.as_deref(), value_of(outcome.whole()))
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
        let answered = self.push_result(ready.key, &ready.written, text, body, |step| JournalStep {
            name: Some(ready.tool.clone()),
            // The retry calls the tool again, so this step must not count.
            state: if ends_run.is_some() { StepState::Spent } else { StepState::Live },
            failure_code,
            took: outcome.duration,
            ..step
        })?;
        let step = self.last_step();
        self.event(
            "call",
            json!({
                "tool": ready.tool, "step": step, "outcome": error.map_or("ok", CallErrorKind::as_str),
                "took_ms": u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
            }),
        );
        Ok(answered)
    }

    /// Number of the step that was added last.
    fn last_step(&self) -> Option<i32> {
        self.pending.steps.last().map(|step| step.seq)
    }

    /// Writes a result into the state; does nothing if the call has no destination. `chosen` is the tool's choice
    /// among the call's destinations.
    fn write(
        &mut self,
        call: &ToolCall,
        planned: &PlannedCall,
        chosen: Option<&str>,
        value: Value,
    ) -> Result<Vec<StateWrite>, String> {
        let Some(destination) = planned.destination() else { return Ok(Vec::new()) };
        let chosen = chosen.map(str::parse::<Path>).transpose();
        let chosen = chosen.map_err(|error| format!("the tool named a place for its result that is none: {error}"))?;
        let write = CallWrite {
            tick: self.turns,
            call_id: call.id.clone(),
            instance: planned.instance().cloned(),
            paths: destination.choose(chosen.as_ref())?,
            method: planned.method(),
            value,
        };
        self.state.write(write).map_err(|error| error.to_string())
    }

    /// Records a latent call, whose result is the model's own output.
    ///
    /// # Errors
    /// The message cannot be written.
    pub(crate) fn record_latent(
        &mut self,
        key: Hash,
        call: &ToolCall,
        planned: Option<&PlannedCall>,
        output: Value,
    ) -> Step<Answered> {
        let written = planned.map_or(Ok(Vec::new()), |planned| self.write(call, planned, None, output));
        let (text, body) = match written {
            Ok(writes) => (json!({ "status": "recorded" }).to_string(), CallBody { writes, ..CallBody::default() }),
            Err(reason) => {
                let text = CallError::new(CallErrorKind::Structural, reason).to_text(&call.name, &call.arguments);
                (text, CallBody { is_error: true, ..CallBody::default() })
            }
        };
        self.push_result(key, call, text, body, |step| step)
    }

    fn push_result(
        &mut self,
        key: Hash,
        call: &ToolCall,
        text: String,
        mut body: CallBody,
        finish: impl FnOnce(JournalStep) -> JournalStep,
    ) -> Step<Answered> {
        let (is_error, is_skipped) = (body.is_error, body.is_skipped);
        let message =
            Message::Tool { call_id: call.id.clone(), name: call.name.clone(), text, files: Vec::new(), is_error };
        let (hash, bytes) = message_bytes(&message)?;
        // A resume of the partly recorded turn finds its calls in the results as well as in the intents.
        body.begun = self.begun.remove(&key).unwrap_or_default();
        let mut step = self.step(StepKind::Call, key, &body)?;
        if let Some((intent, _)) = self.intents.remove(&key) {
            step.seq = intent;
        }
        let step = JournalStep {
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

    /// Appends the results of a tick in call order, not in the order of completion, so that a replay builds the
    /// same transcript and scratchpad. Later calls can read them as `†calls.<id>`.
    pub(crate) fn close_tick(&mut self, agent: &Agent, answers: Vec<Answered>) {
        for answered in answers {
            self.push_answer(agent.config.references, answered);
        }
    }

    pub(super) fn push_answer(&mut self, is_readable: bool, answered: Answered) {
        for (tool, value) in answered.scratchpad {
            self.scratchpad.record(tool, value);
        }
        if let Message::Tool { call_id, text, is_error: false, .. } = &answered.message
            && is_readable
        {
            self.state.finish_call(call_id, answered.value.unwrap_or_else(|| value_of(text)));
        }
        self.transcript.push(answered.message, answered.hash);
    }

    /// Marks a call as answered.
    pub(crate) fn close_call(&mut self, key: &Hash) {
        self.open_calls.retain(|(open, _)| open != key);
    }

    /// Marks a call as unanswered.
    pub(crate) fn open_call(&mut self, key: Hash, call: &ToolCall) {
        self.open_calls.push((key, call.clone()));
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
            let effect = self.intents.get(&key).and_then(|(_, effect)| *effect);
            let resolution = effect.map(|_| UNKNOWN.to_owned());
            let idempotency_key = effect.map(|_| self.idempotency_key(&key));
            let body = CallBody { is_error: true, effect, resolution, idempotency_key, ..CallBody::default() };
            self.push_result(key, &call, text, body, |step| step)?;
        }
        Ok(())
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
