//! Stage one of a call: recovery from the journal, limits and parsing, before it is scheduled.

use longhaul_domain::{CallError, CallErrorKind, ToolCall};
use longhaul_references::{Path, PlannedCall, Resolved};
use longhaul_sdk::{Reconciled, Step, ToolEffect, spec::Launch};
use longhaul_store::history::journal::Hash;
use longhaul_telemetry::metrics;
use longhaul_tools::HostTool;
use serde_json::Value;

use super::{
    Tick,
    schedule::Event,
    scheduled_call::{Fate, Streamed},
};
use crate::{
    Agent,
    calls::{admission::may_start_early, artifacts::ArtifactKeeper},
    journal::{Answered, RanAs, Recalled, Writer, call_key},
    prepare::{
        profile::{CallPosition, Unreadable},
        tool_list::{Offer, SUBMIT_OUTPUT},
    },
    ready_call::{ReadyCall, Reply},
};

/// A call of the reply.
#[derive(Debug)]
pub(super) struct ReplyCall {
    pub(super) call: ToolCall,
    pub(super) key: Hash,
    pub(super) planned: Option<PlannedCall>,
    pub(super) is_output: bool,
    /// The call that an earlier attempt started; it runs again with these values, whatever its references resolve
    /// to now.
    pub(super) begun: Option<RanAs>,
    pub(super) answer: Option<Answered>,
}

impl ReplyCall {
    /// The call with the values that it runs with.
    pub(super) fn ready(&self, resolved: Resolved) -> ReadyCall {
        let (tool, arguments) = match &self.begun {
            Some(RanAs { tool, arguments }) => (tool.clone(), arguments.clone()),
            None => (self.call.name.clone(), resolved.arguments),
        };
        ReadyCall { key: self.key, written: self.call.clone(), tool, arguments, note: None }
    }

    /// True if an intent must be recorded before the launch: the call must not run twice, or a second run must use
    /// the same values.
    pub(super) fn needs_intent(&self, agent: &Agent, ready: &ReadyCall) -> bool {
        match agent.toolbox.effect(&ready.tool) {
            ToolEffect::SideEffect => true,
            ToolEffect::Idempotent => self.planned.as_ref().is_some_and(|planned| !planned.reads().is_empty()),
            ToolEffect::ReadOnly => false,
        }
    }

    /// Records the answer to a call that did not run.
    pub(super) fn reply(
        &mut self,
        agent: &Agent,
        writer: &mut Writer,
        reply: Reply,
        resolution: Option<&str>,
    ) -> Step<Fate> {
        let answered = writer.record_answer(agent, self.key, &self.call, reply, resolution)?;
        Ok(self.answered(answered))
    }

    pub(super) fn answered(&mut self, answered: Answered) -> Fate {
        let fate = if answered.is_error {
            Fate::Failed
        } else if answered.is_skipped {
            Fate::Skipped
        } else {
            Fate::Succeeded { wrote: answered.wrote.clone() }
        };
        self.answer = Some(answered);
        fate
    }
}

impl Tick<'_> {
    /// Takes the next call of the reply; answers it if the journal has its result or if it cannot run.
    pub(super) async fn take(&mut self, call: ToolCall, is_unfinished: bool) -> Step<Event> {
        let index = self.calls.len();
        let key = call_key(&self.turn, index, &call);
        let is_output = call.name == SUBMIT_OUTPUT && self.agent.tool_list.has_output();
        let mut taken = ReplyCall { call, key, planned: None, is_output, begun: None, answer: None };
        self.journal.writer.open_call(key, &taken.call);
        let recalled = self.journal.recall(&key)?;
        let mut fate = None;
        let admitted = self.check(index, is_unfinished, is_output).and_then(|()| self.check_count(&taken.call.name));
        let planned = admitted.and_then(|()| self.agent.tool_list.read(&taken.call));
        let is_detached = planned.as_ref().is_ok_and(PlannedCall::is_detached);
        match recalled {
            Recalled::Answered(answered) => {
                taken.planned = planned.ok();
                fate = Some(taken.answered(*answered));
                self.journal.writer.close_call(&key);
                if is_detached && fate != Some(Fate::Failed) {
                    self.resume_detached(index, &mut taken).await?;
                }
            }
            Recalled::New if is_detached => {
                taken.planned = planned.ok();
                fate = self.resume_detached(index, &mut taken).await?;
            }
            Recalled::Begun(ran) if !self.is_repeatable(&taken.call, ran.as_ref()) => {
                taken.planned = planned.ok();
                taken.begun = ran;
                fate = self.reconcile(index, &mut taken).await?;
            }
            Recalled::New | Recalled::Begun(_) => {
                if let Recalled::Begun(ran) = recalled {
                    taken.begun = ran;
                }
                match planned {
                    Ok(planned) => taken.planned = Some(planned),
                    Err(error) => {
                        let (reply, ending) =
                            match self.agent.profile.unreadable(&taken.call, &error, self.place(index)) {
                                Unreadable::Told(reply) => (reply, None),
                                Unreadable::Ends(reply, failure) => (reply, Some(failure)),
                            };
                        fate = Some(taken.reply(self.agent, &mut self.journal.writer, reply, None)?);
                        if let Some(failure) = ending {
                            self.end(failure.into()).await?;
                        }
                    }
                }
            }
        }
        let streamed = self.streamed(&taken, fate);
        self.calls.push(taken);
        Ok(Event::CallStreamed(Box::new(streamed)))
    }

    /// True if a call with an intent and no result may simply run again.
    pub(super) fn is_repeatable(&self, call: &ToolCall, ran: Option<&RanAs>) -> bool {
        let tool = ran.map_or(call.name.as_str(), |ran| ran.tool.as_str());
        self.agent.toolbox.effect(tool) != ToolEffect::SideEffect
    }

    fn place(&self, index: usize) -> CallPosition {
        CallPosition { turn: self.journal.writer.turns, index: u32::try_from(index).unwrap_or(u32::MAX) }
    }

    fn check(&self, index: usize, is_unfinished: bool, is_output: bool) -> Result<(), CallError> {
        let structural = |message: String| Err(CallError::new(CallErrorKind::Structural, message));
        let max = self.agent.config.limits.max_calls_per_turn;
        if index >= max as usize {
            return structural(format!("a reply may hold {max} calls; this one did not run"));
        }
        if is_unfinished {
            return structural("the reply was cut inside this call; it did not run".into());
        }
        if self.offer == Offer::OutputOnly && !is_output {
            return structural(
                "this was the last turn, and only the output could be produced; the call did not run".into(),
            );
        }
        Ok(())
    }

    /// Refuses a call beyond the number that the run may make. Calls count in the order of the replies, so that a
    /// resume refuses the same ones.
    fn check_count(&self, tool: &str) -> Result<(), CallError> {
        let Some(max) = self.agent.profile.max_tool_calls() else { return Ok(()) };
        if !self.is_counted(tool) || self.journal.counted_calls.saturating_add(self.counted_calls()) < max {
            return Ok(());
        }
        let message =
            format!("the run may make {max} calls of tools, and they are used up; this one did not run: answer now");
        Err(CallError::new(CallErrorKind::Structural, message))
    }

    /// Number of the reply's calls so far that count against the run's limit.
    pub(super) fn counted_calls(&self) -> u32 {
        let counted = self.calls.iter().filter(|taken| self.is_counted(&taken.call.name)).count();
        u32::try_from(counted).unwrap_or(u32::MAX)
    }

    /// True for a tool whose calls neither the caller runs nor the caller answers.
    fn is_counted(&self, tool: &str) -> bool {
        let toolbox = &self.agent.toolbox;
        let is_caller = toolbox.caller_tool(tool).is_some() || toolbox.host(tool) == Some(HostTool::AskCaller);
        toolbox.parameters(tool).is_some() && !is_caller
    }

    /// Reconciles a call that may have had its effect before a worker died, by asking its tool. The call runs again
    /// only if the tool says that it was not done.
    pub(super) async fn reconcile(&mut self, index: usize, taken: &mut ReplyCall) -> Step<Option<Fate>> {
        let (tool, arguments) = match &taken.begun {
            Some(RanAs { tool, arguments }) => (tool.clone(), arguments.clone()),
            None => (taken.call.name.clone(), serde_json::from_str(&taken.call.arguments).unwrap_or(Value::Null)),
        };
        let idempotency_key = self.journal.writer.idempotency_key(&taken.key);
        let reconciled = self
            .agent
            .toolbox
            .reconcile(&tool, arguments.clone(), (&idempotency_key, self.journal.writer.scope.tenant))
            .await;
        let (reply, resolution) = match reconciled {
            Reconciled::NotDone if taken.planned.is_some() => {
                // The values that were started with, not those that the references resolve to now.
                taken.begun = Some(RanAs { tool, arguments });
                return Ok(None);
            }
            Reconciled::Done(output) => {
                let outcome = self.agent.toolbox.answer(&tool, output.text);
                let mut outcome = longhaul_tools::CallOutcome { files: output.files, ..outcome };
                Box::pin(ArtifactKeeper::of(&self.journal.writer).keep(&taken.key, &mut outcome)).await;
                let ready = ReadyCall { key: taken.key, written: taken.call.clone(), tool, arguments, note: None };
                let outcome = longhaul_tools::CallOutcome { destination: output.destination, ..outcome };
                let answered = self.journal.record_reconciled(self.agent, &ready, &outcome, taken.planned.as_ref())?;
                return Ok(Some(taken.answered(answered)));
            }
            Reconciled::NotDone | Reconciled::Unknown => {
                metrics::tool_call(&tool, metrics::CallOutcome::Unknown, None);
                let message =
                    "the worker died while this call ran; it may or may not have taken effect and was not repeated";
                let error = CallError::new(CallErrorKind::OutcomeUnknown, message);
                (self.agent.profile.lost(&taken.call, &error, self.place(index)), "outcome_unknown")
            }
        };
        taken.reply(self.agent, &mut self.journal.writer, reply, Some(resolution)).map(Some)
    }

    fn streamed(&self, taken: &ReplyCall, fate: Option<Fate>) -> Streamed {
        let settings = self.agent.config.call_settings(&taken.call.name);
        let is_early =
            !self.agent.toolbox.is_answered_by_loop(&taken.call.name) && may_start_early(self.agent, &taken.call);
        let toolbox = &self.agent.toolbox;
        // Calls on a workspace or a page run in the order of the reply, so none of them starts early by default.
        let is_in_order = toolbox.serial(&taken.call.name).is_some();
        let effect = if is_in_order { ToolEffect::SideEffect } else { toolbox.effect(&taken.call.name) };
        // No call waits for its result, so an early start gains nothing.
        let is_detached = taken.planned.as_ref().is_some_and(PlannedCall::is_detached);
        Streamed {
            id: taken.call.id.clone(),
            tool: taken.call.name.clone(),
            planned: if fate.is_none() { taken.planned.clone() } else { None },
            declares: match &taken.planned {
                Some(planned) => planned.writes().into_iter().cloned().collect(),
                None => declared(&taken.call),
            },
            instance: taken.planned.as_ref().and_then(|planned| planned.instance().cloned()),
            launch: if is_early && !taken.is_output && !is_detached {
                settings.launch(effect)
            } else {
                Launch::OnClose
            },
            concurrency: settings.concurrency.map(|max| max as usize),
            is_output: taken.is_output,
            fate,
        }
    }
}

/// Declared destinations of a call that does not parse, so that their readers are told the cause.
fn declared(call: &ToolCall) -> Vec<Path> {
    let arguments: Option<Value> = serde_json::from_str(&call.arguments).ok();
    let text = arguments.as_ref().and_then(|arguments| arguments.get("_outputPath")).and_then(Value::as_str);
    let operands = text.unwrap_or_default().split(['|', '&', '<', '>', '*']);
    operands.filter_map(|operand| operand.trim().parse().ok()).collect()
}
