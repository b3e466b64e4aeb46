//! The tool calls of one reply: all at once, each recorded as it ends, their results appended in the order of the calls.

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt, stream::FuturesUnordered};
use longhaul_sdk::{Failure, Interrupt, Step, ToolEffect, ToolScratchpad};
use longhaul_shared::{
    store::journal::{Hash, JournalStep, StepKind, StepState},
    telemetry::metrics,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::Instrument;

use super::{Agent, Journal, Turn, preview, read_body};
use crate::{
    agent::{
        admission::{Admission, ReadyCall, admit},
        host::Hosted,
        transcript::hash_parts,
    },
    llm::{Message, ToolCall},
    probe::Point,
    tools::{CallErrorKind, CallOutcome},
};

/// The body of a call step.
#[derive(Debug, Serialize, Deserialize)]
struct CallBody {
    is_error: bool,
    /// What the tool recorded for the validators; applied again on replay.
    scratchpad: BTreeMap<String, Value>,
}

/// A call's key: its turn, its place in the reply, and what was written. Two identical calls of one reply differ by place.
pub(super) fn call_key(turn: &Hash, index: usize, call: &ToolCall) -> Hash {
    hash_parts(&[b"call", turn, &index.to_be_bytes(), call.name.as_bytes(), call.arguments.as_bytes()])
}

/// A call with its result, recorded.
#[derive(Clone)]
struct Answered {
    message: Message,
    hash: Hash,
    scratchpad: BTreeMap<String, Value>,
}

/// What is known of a call before it runs.
enum Known {
    /// Nothing: run it.
    New,
    /// Answered by the record.
    Recorded(Answered),
    /// Answered without running.
    Refused(Message),
}

/// A call that ran.
struct Ran {
    index: usize,
    key: Hash,
    outcome: CallOutcome,
    scratchpad: Arc<ToolScratchpad>,
}

/// What becomes of a call that is not recorded.
enum Admitted {
    Launch(ReadyCall),
    Answered(CallOutcome),
    /// It is noted what for.
    Waits,
}

impl Journal {
    /// Runs what is not recorded of a turn's calls and appends every result, in call order.
    ///
    /// A call that waits does not keep the others from running; only then does the attempt end.
    ///
    /// # Errors
    /// An interrupt, also when a call waits, or the failure of a tool that ends the run.
    pub(crate) async fn calls(&mut self, agent: &Agent, turn: &Turn) -> Step<()> {
        let mut results: Vec<Option<Answered>> = vec![None; turn.calls.len()];
        let mut launch = Vec::new();
        for (index, call) in turn.calls.iter().enumerate() {
            let key = call_key(&turn.key, index, call);
            match self.known(agent, turn, index, call, &key)? {
                Known::Recorded(answered) => results[index] = Some(answered),
                Known::Refused(message) => results[index] = Some(self.record_refused(call, key, message)?),
                Known::New => match self.admitted(agent, call, key).await? {
                    Admitted::Launch(ready) => launch.push((index, ready)),
                    Admitted::Answered(outcome) => {
                        let ran = Ran { index, key, outcome, scratchpad: Arc::default() };
                        results[index] = Some(self.record_call(call, ran).await?.0);
                    }
                    Admitted::Waits => {}
                },
            }
        }
        if !launch.is_empty() {
            self.prepare(agent, &launch).await?;
            self.at(Point::BeforeCall).await;
        }
        let mut running: FuturesUnordered<_> =
            launch.into_iter().map(|(index, ready)| self.run_call(agent, index, ready)).collect();
        let mut failed = None;
        while let Some(ran) = running.next().await {
            self.at(Point::CallAnswered).await;
            let index = ran.index;
            let (answered, failure) = self.record_call(&turn.calls[index], ran).await?;
            self.at(Point::CallRecorded).await;
            results[index] = Some(answered);
            failed = failed.or(failure);
        }
        drop(running);
        if let Some(failure) = failed {
            return Err(failure.into());
        }
        if self.parked.is_some() {
            return Err(Interrupt::Waiting.into());
        }
        // In the order of the calls, not of their ends, so that a replay comes to the same transcript and scratchpad.
        for answered in results.into_iter().flatten() {
            for (tool, value) in answered.scratchpad {
                self.scratchpad.record(tool, value);
            }
            self.transcript.push(answered.message, answered.hash);
        }
        Ok(())
    }

    /// Asks about a call that is ready to run, and answers it if Longhaul itself does.
    async fn admitted(&mut self, agent: &Agent, call: &ToolCall, key: Hash) -> Step<Admitted> {
        let arguments = match agent.toolbox.check(&call.name, &call.arguments) {
            Ok(arguments) => arguments,
            Err(error) => return Ok(Admitted::Answered(agent.toolbox.refuse(&error, &call.name, &call.arguments))),
        };
        let ready = ReadyCall { key, written: call.clone(), tool: call.name.clone(), arguments, note: None };
        // Whatever wakes the execution from here on is newer than this.
        let wake_seq = self.wake_seq;
        let waiting = match admit(agent, self, ready).await? {
            Admission::Launch(ready) => match agent.toolbox.host(&ready.tool) {
                None => return Ok(Admitted::Launch(ready)),
                Some(tool) => match tool.call(agent, self, &ready).await? {
                    Hosted::Answered(outcome) => return Ok(Admitted::Answered(noted(outcome, ready.note))),
                    Hosted::Waiting(waiting) => waiting,
                },
            },
            Admission::Wait(waiting) => waiting,
            Admission::Refuse(error) => {
                return Ok(Admitted::Answered(agent.toolbox.refuse(&error, &call.name, &call.arguments)));
            }
        };
        self.park(waiting, wake_seq);
        Ok(Admitted::Waits)
    }

    /// Makes sure that every side-effecting call has its intent committed, and that launching is allowed.
    async fn prepare(&mut self, agent: &Agent, launch: &[(usize, ReadyCall)]) -> Step<()> {
        let side_effects = launch.iter().map(|(_, ready)| (&ready.tool, ready.key));
        let side_effects: Vec<_> =
            side_effects.filter(|(name, _)| agent.toolbox.effect(name) == ToolEffect::SideEffect).collect();
        // Not with the turn: a call that waits for a decision has not begun. An intent of an earlier attempt that still stands is
        // used again.
        for (name, key) in &side_effects {
            if !self.intents.contains_key(key) {
                self.intend(name, *key)?;
            }
        }
        self.flush().await?;
        let Err(stop) = self.control.may_launch().await else { return Ok(()) };
        // These calls certainly did not run. Left as they are, the next worker would have to call their outcome unknown.
        for (name, key) in side_effects {
            if let Some(seq) = self.intents.remove(&key) {
                let step = self.step(StepKind::Call, key, &Value::Null)?;
                let step = JournalStep { seq, state: StepState::Spent, name: Some(name.clone()), ..step };
                self.pending.steps.push(step);
            }
        }
        Err(stop)
    }

    /// Writes down, with the next commit, that a call may run.
    pub(super) fn intend(&mut self, name: &str, key: Hash) -> Step<()> {
        let step = self.step(StepKind::Call, key, &Value::Null)?;
        let step = JournalStep { state: StepState::Intent, name: Some(name.to_owned()), ..step };
        self.intents.insert(key, step.seq);
        self.pending.steps.push(step);
        Ok(())
    }

    /// What the record, the limits or the reply itself say about a call.
    fn known(&mut self, agent: &Agent, turn: &Turn, index: usize, call: &ToolCall, key: &Hash) -> Step<Known> {
        if index >= agent.config.limits.max_calls_per_turn as usize {
            let max = agent.config.limits.max_calls_per_turn;
            return Ok(refused(call, "structural", &format!("a reply may hold {max} calls; this one did not run")));
        }
        if turn.unfinished_call == Some(index) {
            return Ok(refused(call, "structural", "the reply was cut inside this call; it did not run"));
        }
        match self.recorded_calls.remove(key) {
            None => Ok(Known::New),
            Some(step) if step.state == StepState::Live => {
                let CallBody { scratchpad, .. } = read_body(&step)?;
                let hash = *step.appends.first().ok_or_else(|| super::corrupt(&"a call without a result"))?;
                Ok(Known::Recorded(Answered { message: self.stored_message(&hash)?, hash, scratchpad }))
            }
            // An intent of an earlier attempt: the call may have run.
            Some(step) => match agent.toolbox.effect(&call.name) {
                ToolEffect::ReadOnly | ToolEffect::Idempotent => {
                    self.intents.insert(*key, step.seq);
                    Ok(Known::New)
                }
                ToolEffect::SideEffect => {
                    self.intents.insert(*key, step.seq);
                    self.event("call", json!({ "tool": call.name, "outcome": "outcome_unknown" }));
                    metrics::tool_call(metrics::CallOutcome::Unknown, std::time::Duration::ZERO);
                    Ok(refused(
                        call,
                        "outcome_unknown",
                        "the worker died while this call ran; it may or may not have taken effect and was not repeated",
                    ))
                }
            },
        }
    }

    fn run_call<'a>(
        &self,
        agent: &'a Agent,
        index: usize,
        ready: ReadyCall,
    ) -> impl Future<Output = Ran> + Send + use<'a> {
        let idempotency_key = self.idempotency_key(&ready.key);
        let span = tracing::info_span!(
            "call",
            execution.id = %self.id,
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = ready.tool,
            gen_ai.tool.call.id = ready.written.id,
        );
        async move {
            let scratchpad = Arc::new(ToolScratchpad::default());
            let ReadyCall { key, written, tool, arguments, note } = ready;
            let toolbox = &agent.toolbox;
            let outcome = toolbox.run(&tool, arguments, &written.arguments, &idempotency_key, scratchpad.clone()).await;
            Ran { index, key, outcome: noted(outcome, note), scratchpad }
        }
        .instrument(span)
    }

    /// Records the answer to a call that does not run, with the next commit.
    fn record_refused(&mut self, call: &ToolCall, key: Hash, message: Message) -> Step<Answered> {
        let hash = self.store_message(&message)?;
        let mut step = self.step(StepKind::Call, key, &CallBody { is_error: true, scratchpad: BTreeMap::new() })?;
        if let Some(intent) = self.intents.remove(&key) {
            step.seq = intent;
        }
        self.pending.steps.push(JournalStep {
            name: Some(call.name.clone()),
            appends: vec![hash],
            preview: Some(preview(message.text())),
            ..step
        });
        Ok(Answered { message, hash, scratchpad: BTreeMap::new() })
    }

    async fn record_call(&mut self, call: &ToolCall, ran: Ran) -> Step<(Answered, Option<Failure>)> {
        let Ran { key, outcome, scratchpad, .. } = ran;
        metrics::tool_call(label(&outcome), outcome.duration);
        let is_error = outcome.is_error();
        let message = result(call, outcome.text, is_error);
        let hash = self.store_message(&message)?;
        let body = CallBody { is_error, scratchpad: scratchpad.snapshot() };
        let mut step = self.step(StepKind::Call, key, &body)?;
        if let Some(intent) = self.intents.remove(&key) {
            step.seq = intent;
        }
        // A tool that ended the run is asked again by the retry, so its step does not count.
        let state = if outcome.ends_run.is_some() { StepState::Spent } else { StepState::Live };
        self.pending.steps.push(JournalStep {
            state,
            name: Some(call.name.clone()),
            appends: vec![hash],
            preview: Some(preview(message.text())),
            failure_code: outcome.ends_run.as_ref().map(|failure| failure.code.to_string()),
            took: outcome.duration,
            ..step
        });
        self.pending.calls += 1;
        self.event(
            "call",
            json!({
                "tool": call.name, "outcome": outcome.error.map_or("ok", CallErrorKind::as_str),
                "took_ms": u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
            }),
        );
        self.flush().await?;
        Ok((Answered { message, hash, scratchpad: body.scratchpad }, outcome.ends_run))
    }
}

fn result(call: &ToolCall, text: String, is_error: bool) -> Message {
    Message::Tool { call_id: call.id.clone(), name: call.name.clone(), text, is_error }
}

/// An error result for a call that does not run.
fn refused(call: &ToolCall, kind: &str, message: &str) -> Known {
    let text = json!({
        "error": { "type": kind, "message": message },
        "call": { "_tool": call.name, "arguments": call.arguments },
    });
    Known::Refused(result(call, text.to_string(), true))
}

/// The outcome, behind what the model must know of it first.
fn noted(outcome: CallOutcome, note: Option<String>) -> CallOutcome {
    match note {
        Some(note) => CallOutcome { text: format!("{note}\n{}", outcome.text), ..outcome },
        None => outcome,
    }
}

fn label(outcome: &CallOutcome) -> metrics::CallOutcome {
    match outcome.error {
        None => metrics::CallOutcome::Ok,
        Some(CallErrorKind::Structural) => metrics::CallOutcome::InvalidArguments,
        Some(CallErrorKind::Runtime) => metrics::CallOutcome::Error,
        Some(CallErrorKind::Timeout) => metrics::CallOutcome::Timeout,
        Some(CallErrorKind::Rejected) => metrics::CallOutcome::Rejected,
    }
}
