//! One tick: a reply of the model and all its calls. [`Tick`] has one method for each step of the loop in `run.rs`.
//!
//! The state machine that schedules calls is pure (`schedule`, `leftovers`); this file feeds it events and performs
//! its commands. Invariants:
//! - A call may start while the reply streams only after one write has recorded the partial turn and the call's
//!   intent.
//! - A reply that breaks after a call has started is never requested again: its received part counts.
//! - Every call of a reply gets exactly one result, and the results are in the order of the calls.
//! - A call that waits for a person or another execution, and a draining worker, never stop the calls that run.

mod call_intake;
mod detached;
mod leftovers;
mod model_turn;
pub(crate) mod permits;
#[cfg(test)]
mod properties;
mod run_call;
mod schedule;
mod scheduled_call;

use std::{collections::VecDeque, sync::Arc};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use longhaul_domain::{CallError, CallErrorKind};
use longhaul_references::{Path, PlannedCall, Resolved};
use longhaul_sdk::{Interrupt, Step, StepError};
use longhaul_store::{history::journal::Hash, memory::MemoryPlace};
use longhaul_tools::CallOutcome;
use serde_json::json;

use self::{
    call_intake::ReplyCall,
    schedule::{Command, Event, Schedule},
    scheduled_call::{Fate, Unrun},
};
use crate::{
    Agent,
    attempt::Attempt,
    calls::{
        admission::admit,
        approval_gate::{self, ApprovalGate},
        browser::AttemptBrowser,
        host_tools,
    },
    journal::{Answered, CompletedCall, Journal, PendingTurn, Stage, State, Turn, detached_key},
    prepare::tool_list::{OUTPUT, Offer},
    probe::Point,
    ready_call::{Admission, HostToolAnswer, ReadyCall, Reply},
    workspace::Workspace,
};

/// A reply of the model and its calls, until each has its result.
pub(crate) struct Tick<'a> {
    agent: &'a Agent,
    journal: &'a mut Journal,
    memory: Option<&'a MemoryPlace>,
    workspace: &'a Arc<Workspace>,
    browser: &'a Arc<AttemptBrowser>,
    offer: Offer,
    /// Key of the turn.
    turn: Hash,
    schedule: Schedule,
    calls: Vec<ReplyCall>,
    running: FuturesUnordered<BoxFuture<'a, CompletedCall>>,
    /// Detached calls of an earlier attempt that must run again.
    resumed: Vec<(usize, ReadyCall)>,
    /// The turn while its reply streams.
    asked: Option<Box<PendingTurn>>,
    /// True while the reply is complete and its turn not yet committed.
    is_unrecorded: bool,
    output: Option<(usize, String)>,
    /// Reason to end the attempt once the running calls have ended.
    ending: Option<StepError>,
}

impl<'a> Tick<'a> {
    pub(crate) fn new(agent: &'a Agent, attempt: &'a mut Attempt, offer: Offer) -> Box<Self> {
        let Attempt { journal, memory, workspace, browser } = attempt;
        Box::new(Self {
            schedule: Schedule::new(agent.config.limits.max_parallel_calls as usize),
            agent,
            journal,
            memory: memory.as_ref(),
            workspace,
            browser,
            offer,
            turn: Hash::default(),
            calls: Vec::new(),
            running: FuturesUnordered::new(),
            resumed: Vec::new(),
            asked: None,
            is_unrecorded: false,
            output: None,
            ending: None,
        })
    }

    /// Commits a turn that is the output, unless it may wait for the end of the lease.
    ///
    /// # Errors
    /// An interrupt, or a failure of the store.
    pub(crate) async fn commit_answer(&mut self) -> Step<()> {
        if self.journal.is_last_turn_deferred() { Ok(()) } else { self.commit().await }
    }

    /// Takes the calls that were not streamed, then runs all calls to their end.
    ///
    /// # Errors
    /// An interrupt, or a failure of the store. A failure of a call that ends the run is returned by
    /// [`close`](Self::close).
    pub(crate) async fn run_calls(&mut self, turn: Turn) -> Step<()> {
        if let Err(ending) = self.agent.profile.check_round(self.journal.writer.turns) {
            self.commit().await?;
            return Err(ending);
        }
        let mut events = VecDeque::new();
        for (index, call) in turn.calls.into_iter().enumerate().skip(self.calls.len()) {
            events.push_back(Box::pin(self.take(call, turn.unfinished_call == Some(index))).await?);
        }
        events.push_back(Event::StreamClosed);
        Box::pin(self.on(events)).await?;
        self.commit().await?;
        while !self.is_drained() {
            let Some(ran) = self.running.next().await else { break };
            let mut ended = vec![ran];
            // Calls that end during a commit share the next one.
            while let Some(Some(ran)) = self.running.next().now_or_never() {
                ended.push(ran);
            }
            Box::pin(self.ended(ended)).await?;
        }
        Ok(())
    }

    fn is_drained(&self) -> bool {
        self.running.is_empty() && (self.ending.is_some() || self.schedule.is_quiescent())
    }

    /// Feeds events to the state machine, performs its commands, and launches the ready calls with one commit.
    async fn on(&mut self, mut events: VecDeque<Event>) -> Step<()> {
        while !events.is_empty() || !self.resumed.is_empty() {
            let mut ready = std::mem::take(&mut self.resumed);
            while let Some(event) = events.pop_front() {
                for command in self.schedule.on(event, &self.journal.transcript.state) {
                    match command {
                        Command::Start { index, resolved } => {
                            events.extend(self.start(index, resolved, &mut ready).await?);
                        }
                        Command::Answer { index, unrun } => self.answer_unrun(index, unrun)?,
                        Command::Hold { index, gate } => events.extend(self.hold(index, &gate).await?),
                    }
                }
            }
            // Detached calls have their result as soon as they start.
            events = self.launch(ready).await?;
        }
        Ok(())
    }

    /// Admits a call that nothing blocks and answers it here if no tool has to run. Returns the event of a call
    /// that ended or waits.
    async fn start(
        &mut self,
        index: usize,
        resolved: Resolved,
        ready: &mut Vec<(usize, ReadyCall)>,
    ) -> Step<Option<Event>> {
        let taken = &self.calls[index];
        if taken.is_output {
            return self.submit(index, resolved).map(Some);
        }
        if taken.planned.as_ref().is_some_and(PlannedCall::is_latent) {
            return self.answer_latent(index, resolved).map(Some);
        }
        let call = taken.ready(resolved);
        if let Some(error) = self.journal.servers.gone(&call.tool) {
            return self.refuse(index, &error).map(Some);
        }
        // Read before the wait condition is checked: a later wake-up has a higher number (core-rules 3).
        let wake_seq = self.journal.writer.wake_seq();
        let waiting = match admit(self.agent, &mut self.journal.writer, call).await? {
            Admission::Launch(mut call) => {
                let said = self.journal.transcript.messages();
                let said = said.chain(self.calls.iter().filter_map(|call| Some(&call.answer.as_ref()?.message)));
                match host_tools::call(self.agent, &mut self.journal.writer, self.memory, &mut call, said).await? {
                    None => {
                        if self.is_detached(index) {
                            if let Err(error) = self.check_detached(ready) {
                                return self.refuse(index, &error).map(Some);
                            }
                            call.key = detached_key(&call.key);
                        }
                        ready.push((index, call));
                        return Ok(None);
                    }
                    Some(HostToolAnswer::Answered(outcome)) => return self.record(index, call, *outcome).map(Some),
                    Some(HostToolAnswer::Waiting(waiting)) => waiting,
                }
            }
            Admission::Wait(waiting) => waiting,
            Admission::Refuse(error) => return self.refuse(index, &error).map(Some),
            Admission::End(error, failure) => {
                let refused = self.refuse(index, &error)?;
                self.end(failure.into()).await?;
                return Ok(Some(refused));
            }
        };
        self.journal.writer.park(waiting, wake_seq);
        Ok(Some(Event::CallWaits { index }))
    }

    /// Handles a call that reads an approval, according to the state of its gate.
    async fn hold(&mut self, index: usize, path: &Path) -> Step<Option<Event>> {
        let wake_seq = self.journal.writer.wake_seq();
        match approval_gate::ask(self.agent, &mut self.journal.writer, &self.calls[index].call, path).await? {
            ApprovalGate::Open(value) => match self.journal.open_gate(path, value) {
                Ok(()) => Ok(Some(Event::GateOpened { index })),
                Err(error) => self.refuse(index, &error).map(Some),
            },
            ApprovalGate::Shut(waiting) => {
                self.journal.writer.park(waiting, wake_seq);
                Ok(None)
            }
            ApprovalGate::Refused(error) => self.refuse(index, &error).map(Some),
        }
    }

    /// Launches calls after committing the records that must precede them. Returns the events of detached calls.
    async fn launch(&mut self, ready: Vec<(usize, ReadyCall)>) -> Step<VecDeque<Event>> {
        let mut events = VecDeque::new();
        if ready.is_empty() {
            return Ok(events);
        }
        let is_early = self.asked.is_some();
        for (index, call) in &ready {
            let mut begun = Vec::new();
            if let Some(asked) = &mut self.asked {
                begun = self.journal.writer.begin_turn(asked)?;
            }
            self.journal.writer.stage(
                self.agent,
                Stage::Calling { tool: &call.tool, call: &call.written.id },
                State::Running,
            );
            if is_early || self.is_detached(*index) || self.calls[*index].needs_intent(self.agent, call) {
                self.journal.writer.intend(self.agent, call, begun)?;
            }
        }
        self.commit().await?;
        if is_early {
            self.journal.writer.at(Point::TurnBegun).await;
        }
        if let Err(stop) = self.journal.writer.control.may_launch().await {
            for (index, call) in &ready {
                // A detached call that an earlier attempt accepted may have run.
                if self.calls[*index].answer.is_none() {
                    self.journal.writer.withdraw(self.agent, call)?;
                }
            }
            self.end(stop).await?;
            return Ok(events);
        }
        let named = || ready.iter().map(|(_, call)| call.tool.as_str()).collect::<Vec<_>>().join(", ");
        self.journal.writer.about_to(|| format!("calling {}", named())).await;
        self.journal.writer.at(Point::BeforeCall).await;
        for (index, call) in ready {
            if self.is_detached(index) {
                events.extend(self.detach(index, call)?);
                continue;
            }
            let run = self.run_call(&self.agent.toolbox, index, call);
            self.running.push(Box::pin(run));
        }
        Ok(events)
    }

    /// Commits all pending writes, and the turn if it is among them.
    async fn commit(&mut self) -> Step<()> {
        self.journal.writer.flush().await?;
        if std::mem::take(&mut self.is_unrecorded) {
            self.journal.writer.at(Point::TurnRecorded).await;
        }
        Ok(())
    }

    /// Records what calls came to, in one commit, then starts what waited for them.
    async fn ended(&mut self, all: Vec<CompletedCall>) -> Step<()> {
        let (count, mut endings, mut events, mut refused) = (all.len(), Vec::new(), VecDeque::new(), None);
        for mut ran in all {
            self.journal.writer.at(Point::CallAnswered).await;
            let waits = self.journal.servers.is_awaited(self.agent, &self.journal.writer, &mut ran);
            let (index, failure) = (ran.index, ran.outcome.ends_run.clone());
            let fate = match self.record_ran(ran) {
                Ok(fate) => fate,
                // The other calls of the batch have run as well.
                Err(error) => {
                    refused = Some(error);
                    continue;
                }
            };
            match failure {
                Some(_) if waits => endings.push(Interrupt::Waiting.into()),
                Some(failure) => endings.push(failure.into()),
                None => events.push_back(Event::CallFinished { index, fate }),
            }
        }
        self.journal.writer.flush().await?;
        if let Some(error) = refused {
            return Err(error);
        }
        for _ in 0..count {
            self.journal.writer.at(Point::CallRecorded).await;
        }
        for ending in endings {
            self.end(ending).await?;
        }
        self.on(events).await
    }

    /// Ends the attempt, but only once the running calls have ended.
    async fn end(&mut self, reason: StepError) -> Step<()> {
        let outranks = |old: &StepError| matches!(old, StepError::Interrupt(_));
        if self.ending.as_ref().is_none_or(outranks) {
            self.ending = Some(reason);
        }
        // A draining schedule starts nothing, so it returns no commands.
        self.schedule.on(Event::Draining, &self.journal.transcript.state);
        Ok(())
    }

    fn record(&mut self, index: usize, ready: ReadyCall, outcome: CallOutcome) -> Step<Event> {
        let fate = self.record_ran(CompletedCall { index, ready, outcome, scratchpad: Arc::default() })?;
        Ok(Event::CallFinished { index, fate })
    }

    fn record_ran(&mut self, ran: CompletedCall) -> Step<Fate> {
        let taken = &mut self.calls[ran.index];
        let answered = self.journal.record_call(self.agent, &ran, taken.planned.as_ref())?;
        Ok(taken.answered(answered))
    }

    fn refuse(&mut self, index: usize, error: &CallError) -> Step<Event> {
        let fate = self.answer(index, Reply::error(error, &self.calls[index].call))?;
        Ok(Event::CallFinished { index, fate })
    }

    fn answer_unrun(&mut self, index: usize, unrun: Unrun) -> Step<()> {
        let call = &self.calls[index].call;
        let reply = match unrun {
            Unrun::Error(error) => Reply::error(&error, call),
            Unrun::UntakenBranch => Reply::skipped(json!({
                "status": "skipped_branch",
                "message": "the call reads an alternative that its producer did not take; it did not run",
            })),
            Unrun::UnmetCondition(condition) => {
                Reply::skipped(json!({ "status": "held_condition", "condition": condition }))
            }
            Unrun::Superseded => Reply::skipped(json!({
                "status": "superseded", "message": "the reply submits another output after this one, which counts",
            })),
        };
        self.answer(index, reply).map(drop)
    }

    fn answer(&mut self, index: usize, reply: Reply) -> Step<Fate> {
        self.calls[index].reply(self.agent, &mut self.journal.writer, reply, None)
    }

    fn answer_latent(&mut self, index: usize, resolved: Resolved) -> Step<Event> {
        let Some(output) = resolved.output else {
            let fate = self.answer(index, Reply::skipped(json!({ "status": "deferred" })))?;
            return Ok(Event::CallFinished { index, fate });
        };
        let taken = &mut self.calls[index];
        let answered = self.journal.record_latent(taken.key, &taken.call, taken.planned.as_ref(), output)?;
        let fate = taken.answered(answered);
        Ok(Event::CallFinished { index, fate })
    }

    /// Accepts the final output. Any value counts, including null.
    fn submit(&mut self, index: usize, mut resolved: Resolved) -> Step<Event> {
        let output = resolved.arguments.as_object_mut().and_then(|arguments| arguments.remove(OUTPUT));
        let Some(output) = output else {
            let error = CallError::new(CallErrorKind::Structural, format!("there is no `{OUTPUT}` in the call"));
            return self.refuse(index, &error);
        };
        self.output = Some((index, output.to_string()));
        Ok(Event::CallFinished { index, fate: Fate::Succeeded { wrote: Vec::new() } })
    }

    /// Closes the tick and returns the text of the output, if the reply submits one.
    ///
    /// # Errors
    /// An interrupt, also when a call waits, or the failure that ends the attempt.
    pub(crate) fn close(self) -> Step<Option<String>> {
        let counted = self.counted_calls();
        let Self { agent, journal, calls, output, ending, .. } = self;
        if let Some(ending) = ending {
            return Err(ending);
        }
        if journal.writer.parked().is_some() {
            return Err(Interrupt::Waiting.into());
        }
        journal.counted_calls = journal.counted_calls.saturating_add(counted);
        journal.note_conflicts();
        journal.collect_detached(agent)?;
        let (taken, answers): (Vec<_>, Vec<Option<Answered>>) =
            calls.into_iter().map(|taken| (taken.call, taken.answer)).unzip();
        let repeats = taken.iter().zip(&answers).filter_map(|(call, answer)| Some((call, answer.as_ref()?)));
        let guarded = if agent.profile.takes_part() { journal.guard_repeats(repeats) } else { Ok(()) };
        let answers = answers.into_iter().flatten().collect();
        if let Some((index, text)) = output {
            let Some(call) = taken.into_iter().nth(index) else { return Ok(Some(text)) };
            journal.hold_output(agent, call, answers, index);
            return Ok(Some(text));
        }
        journal.transcript.close_tick(agent, answers);
        guarded?;
        Ok(None)
    }
}
