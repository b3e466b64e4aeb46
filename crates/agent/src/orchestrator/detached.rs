//! Detached calls, which the tick does not wait for: answered at once, launched with the others, recovered after a
//! crash.

use longhaul_domain::{CallError, CallErrorKind, ToolCall};
use longhaul_references::PlannedCall;
use longhaul_sdk::Step;
use serde_json::json;

use super::{Tick, call_intake::ReplyCall, schedule::Event, scheduled_call::Fate};
use crate::{
    journal::{RanAs, Recalled, detached_key},
    ready_call::{ReadyCall, Reply},
};

impl Tick<'_> {
    pub(super) fn is_detached(&self, index: usize) -> bool {
        self.calls[index].planned.as_ref().is_some_and(PlannedCall::is_detached)
    }

    /// Checks that one more detached call may run beside those in `ready`. The limit is that of parallel calls.
    pub(super) fn check_detached(&self, ready: &[(usize, ReadyCall)]) -> Result<(), CallError> {
        let starting = ready.iter().filter(|(index, _)| self.is_detached(*index)).count();
        let max = self.agent.config.limits.max_parallel_calls as usize;
        if self.journal.detached.count() + starting < max {
            return Ok(());
        }
        let message = format!(
            "{max} detached calls are still running; call it again when some have ended, or without `_detached`"
        );
        Err(CallError::new(CallErrorKind::Structural, message))
    }

    /// Starts a call whose intent is committed and answers it as accepted. Returns the event unless the call had
    /// its answer.
    pub(super) fn detach(&mut self, index: usize, ready: ReadyCall) -> Step<Option<Event>> {
        let run = self.run_call(self.agent.toolbox.clone(), index, ready);
        self.journal.detached.start(run);
        if self.calls[index].answer.is_some() {
            return Ok(None);
        }
        let reply = accepted(&self.calls[index].call);
        let fate = self.answer(index, reply)?;
        Ok(Some(Event::CallFinished { index, fate }))
    }

    /// Recovers a detached call from the journal; `None` if it has yet to start. A call that died with its worker
    /// is started again by the next launch, unless its outcome is unknown.
    pub(super) async fn resume_detached(&mut self, index: usize, taken: &mut ReplyCall) -> Step<Option<Fate>> {
        let key = detached_key(&taken.key);
        match self.journal.recall(&key)? {
            Recalled::New => return Ok(None),
            Recalled::Answered(answered) => self.journal.detached.note(&answered),
            Recalled::Begun(begun) => {
                let (call, planned) = (taken.call.clone(), taken.planned.clone());
                let mut run = ReplyCall { call, key, planned, is_output: false, begun, answer: None };
                let is_known = !self.is_repeatable(&run.call, run.begun.as_ref())
                    && self.reconcile(index, &mut run).await?.is_some();
                match &run.answer {
                    Some(answered) if is_known => self.journal.detached.note(answered),
                    Some(_) | None => self.resumed.push((index, run.again())),
                }
            }
        }
        if taken.answer.is_none() {
            let reply = accepted(&taken.call);
            return taken.reply(self.agent, &mut self.journal.writer, reply, None).map(Some);
        }
        Ok(Some(Fate::Succeeded { wrote: Vec::new() }))
    }
}

impl ReplyCall {
    /// The call as an earlier attempt started it.
    fn again(self) -> ReadyCall {
        let RanAs { tool, arguments } = self.begun.unwrap_or_else(|| RanAs {
            tool: self.call.name.clone(),
            arguments: serde_json::from_str(&self.call.arguments).unwrap_or_default(),
        });
        ReadyCall { key: self.key, written: self.call, tool, arguments, note: None }
    }
}

fn accepted(call: &ToolCall) -> Reply {
    let text = json!({ "status": "accepted", "call_id": call.id, "message": "the call runs; nobody waits for it" });
    Reply { text: text.to_string(), error: None, is_skipped: false, noted: Vec::new() }
}
