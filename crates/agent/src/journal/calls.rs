//! The record of a tool call before its end: what the journal holds of it when the attempt meets it again, and the
//! intent before a call that must not be repeated. `call_results.rs` records its end.

use longhaul_domain::ToolCall;
use longhaul_sdk::Step;
use longhaul_store::history::journal::{Hash, JournalStep, StepKind, StepState};
use serde_json::Value;

use super::{
    Agent, Journal, Replay, Writer,
    call_record::{Answered, CallBody, Intent, RanAs, Recalled},
    read_body, recorded_message,
};
use crate::{messages::hash_parts, ready_call::ReadyCall};

/// The key of a call: its turn, its index in the reply and its text. The index separates two identical calls of
/// one reply.
pub(crate) fn call_key(turn: &Hash, index: usize, call: &ToolCall) -> Hash {
    hash_parts(&[b"call", turn, &index.to_be_bytes(), call.name.as_bytes(), call.arguments.as_bytes()])
}

impl Journal {
    /// Looks a call up in the journal and applies its recorded state writes.
    pub(crate) fn recall(&mut self, key: &Hash) -> Step<Recalled> {
        let Some(step) = self.replay.calls.remove(key) else { return Ok(Recalled::New) };
        let body: CallBody = read_body(&step)?;
        if step.state != StepState::Live {
            let intent = Intent { seq: step.seq, effect: body.effect, begun: body.begun, may_have_run: true };
            self.writer.intents.insert(*key, intent);
            return Ok(Recalled::Begun(body.ran));
        }
        let result = step.appends.first().ok_or_else(|| super::corrupt(&"a call without a result"))?;
        let (message, hash) = recorded_message(result)?;
        let wrote = body.writes.iter().map(|write| write.path.clone()).collect();
        let value = body.writes.first().map(|write| write.value.clone());
        self.transcript.state.restore(body.writes);
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
}

impl Replay {
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
}

impl Writer {
    /// Adds the call's intent to the next commit, unless it is recorded. `begun` are the turn's complete calls
    /// that none of its other steps holds.
    pub(crate) fn intend(&mut self, agent: &Agent, ready: &ReadyCall, begun: Vec<ToolCall>) -> Step<()> {
        if self.intents.contains_key(&ready.key) {
            return Ok(());
        }
        let body = CallBody { begun: begun.clone(), ..self.body_of(agent, ready) };
        let step = self.step(StepKind::Call, ready.key, &body)?;
        let step = JournalStep { state: StepState::Intent, name: Some(ready.tool.clone()), ..step };
        self.intents.insert(ready.key, Intent { seq: step.seq, effect: body.effect, begun, may_have_run: false });
        self.pending.steps.push(step);
        Ok(())
    }

    /// Withdraws the intent of a call that this attempt did not make. Otherwise the next attempt would have to treat
    /// its outcome as unknown. An intent of an earlier attempt stays: a repetition needs its idempotency key.
    pub(crate) fn withdraw(&mut self, agent: &Agent, ready: &ReadyCall) -> Step<()> {
        if self.intents.get(&ready.key).is_none_or(|intent| intent.may_have_run) {
            return Ok(());
        }
        let Some(Intent { seq, begun, .. }) = self.intents.remove(&ready.key) else { return Ok(()) };
        let body = CallBody { begun, ..self.body_of(agent, ready) };
        let step = self.step(StepKind::Call, ready.key, &body)?;
        self.pending.steps.push(JournalStep { seq, state: StepState::Spent, name: Some(ready.tool.clone()), ..step });
        Ok(())
    }

    pub(super) fn body_of(&self, agent: &Agent, ready: &ReadyCall) -> CallBody {
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

    /// Marks a call as answered.
    pub(crate) fn close_call(&mut self, key: &Hash) {
        self.open_calls.retain(|(open, _)| open != key);
    }

    /// Marks a call as unanswered.
    pub(crate) fn open_call(&mut self, key: Hash, call: &ToolCall) {
        self.open_calls.push((key, call.clone()));
    }
}
