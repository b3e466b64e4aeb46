//! One tick: a reply of the model and all its calls. [`tick`] is the only entry point.
//!
//! The state machine that schedules calls is pure (`schedule`, `leftovers`); this file feeds it events and performs
//! its commands. Invariants:
//! - A call may start while the reply streams only after one write has recorded the partial turn and the call's
//!   intent.
//! - A reply that breaks after a call has started is never requested again: its received part counts.
//! - Every call of a reply gets exactly one result, and the results are in the order of the calls.
//! - A call that waits for a person or another execution, and a draining worker, never stop the calls that run.
//!
//! Over 500 lines: one tick in one file, because its steps share the state of its calls.

mod call_intake;
mod detached;
mod leftovers;
pub(crate) mod permits;
#[cfg(test)]
mod properties;
mod run_call;
mod schedule;

use std::{collections::VecDeque, pin::pin};

use futures::{
    FutureExt, StreamExt,
    channel::mpsc::{self, UnboundedReceiver},
    future::BoxFuture,
    stream::FuturesUnordered,
};
use longhaul_llm::{ModelError, ModelReply, ReplyEvent};
use longhaul_references::{Path, PlannedCall, Resolved};
use longhaul_sdk::{Failure, FailureClass, Interrupt, Step, StepError};
use longhaul_shared::domain::{CallError, CallErrorKind};
use longhaul_store::journal::Hash;
use longhaul_tools::CallOutcome;
use serde_json::json;

use self::{
    call_intake::ReplyCall,
    run_call::run_call,
    schedule::{Command, Event, Fate, Schedule, Unrun},
};
use super::{
    Agent,
    admission::{Admission, ReadyCall, admit},
    approval_gate::{self, ApprovalGate},
    host_tools::{self, HostToolAnswer},
    journal::{Answered, CompletedCall, Journal, NextTurn, PendingTurn, Reply, Stage, State, Turn, detached_key},
    tool_list::{OUTPUT, Offer},
};
use crate::probe::Point;

const EMPTY_NOTICE: &str = "[Your reply was empty. Call a tool, or answer.]";

/// Result of a tick.
#[derive(Debug, PartialEq)]
pub(crate) enum Ticked {
    Continue,
    /// Text of the final output.
    Output(String),
}

/// Obtains the next reply and runs its calls until each has a result.
///
/// # Errors
/// An interrupt, also when a call waits, or the failure that ends the attempt.
pub(crate) async fn tick(agent: &Agent, journal: &mut Journal, offer: Offer) -> Step<Ticked> {
    // Futures not awaited during a model request are boxed, here and below, to keep a pending turn small.
    let mut asked = match Box::pin(journal.next_turn(agent, offer)).await? {
        // Its calls may still need to run.
        NextTurn::Recorded(turn) => return Box::pin(Tick::new(agent, journal, turn.key, offer).closed(turn)).await,
        NextTurn::Empty => {
            journal.say(EMPTY_NOTICE);
            return Ok(Ticked::Continue);
        }
        NextTurn::Ask(asked) => asked,
    };
    loop {
        match Box::pin(Tick::new(agent, journal, asked.key, offer).live(asked)).await? {
            Live::Ticked(ticked) => return Ok(ticked),
            Live::TooLong(too_long, failure) => {
                asked = Box::pin(journal.ask_shorter(agent, too_long, failure)).await?;
            }
            Live::Cut(cut, reply) => asked = Box::pin(journal.ask_for_whole(agent, cut, *reply)).await?,
            Live::Throttled(throttled) => asked = Box::pin(journal.ask_again(agent, throttled)).await?,
        }
    }
}

/// Result of a model request.
enum Live {
    Ticked(Ticked),
    /// The conversation exceeds the model's window.
    TooLong(Box<PendingTurn>, Failure),
    /// The reply hit a token limit that the budget had lowered.
    Cut(Box<PendingTurn>, Box<ModelReply>),
    /// The model was rate limited and says when to retry.
    Throttled(Box<PendingTurn>),
}

struct Tick<'a> {
    agent: &'a Agent,
    journal: &'a mut Journal,
    offer: Offer,
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
    fn new(agent: &'a Agent, journal: &'a mut Journal, turn: Hash, offer: Offer) -> Box<Self> {
        Box::new(Self {
            schedule: Schedule::new(agent.config.limits.max_parallel_calls as usize),
            agent,
            journal,
            offer,
            turn,
            calls: Vec::new(),
            running: FuturesUnordered::new(),
            resumed: Vec::new(),
            asked: None,
            is_unrecorded: false,
            output: None,
            ending: None,
        })
    }

    /// Requests a turn and starts its calls while it streams.
    async fn live(mut self: Box<Self>, asked: Box<PendingTurn>) -> Step<Live> {
        // The unbounded channel of futures, because tokio's allocates room for 32 events up front.
        let (sink, mut heard) = mpsc::unbounded();
        let mut reply = pin!(self.journal.request(self.agent, &asked, sink));
        self.asked = Some(asked);
        let ended = loop {
            tokio::select! {
                // Stream events are handled before the end of the reply.
                biased;
                Some(event) = heard.next() => Box::pin(self.hear(event)).await?,
                ended = &mut reply => break ended,
                Some(ran) = self.running.next(), if !self.running.is_empty() => {
                    Box::pin(self.ended(vec![ran])).await?;
                }
            }
        };
        Box::pin(self.came_to(ended, heard)).await
    }

    /// Handles the end of the model request: a reply or an error.
    async fn came_to(
        mut self: Box<Self>,
        ended: Result<ModelReply, ModelError>,
        mut heard: UnboundedReceiver<ReplyEvent>,
    ) -> Step<Live> {
        self.journal.at(Point::TurnAnswered).await;
        let Some(mut asked) = self.asked.take() else { return Err(Interrupt::LeaseLost.into()) };
        // Events not handled yet are repeated by the whole reply.
        while let Ok(event) = heard.try_recv() {
            asked.hear(event);
        }
        match ended {
            Ok(reply) if asked.is_cut_by_budget(&reply) => Ok(Live::Cut(asked, Box::new(reply))),
            Ok(reply) => self.answered(asked, reply).await.map(Live::Ticked),
            Err(error) => Box::pin(self.failed(asked, error)).await,
        }
    }

    /// Handles a stream event: a call whose arguments are complete may start before the reply ends.
    async fn hear(&mut self, event: ReplyEvent) -> Step<()> {
        let mut call = None;
        if let Some(asked) = self.asked.as_mut() {
            call = asked.hear(event);
            self.journal.tell(asked);
        }
        let Some(call) = call else { return Ok(()) };
        let streamed = self.take(call, false).await?;
        self.on(VecDeque::from([streamed])).await
    }

    async fn answered(mut self: Box<Self>, asked: Box<PendingTurn>, reply: ModelReply) -> Step<Ticked> {
        let turn = self.journal.record_turn(self.agent, &asked, reply).await?;
        // Ends the span of the model call: the calls of the reply are its siblings.
        drop(asked);
        self.is_unrecorded = true;
        self.closed(turn).await
    }

    async fn failed(mut self: Box<Self>, asked: Box<PendingTurn>, error: ModelError) -> Step<Live> {
        // A refusal ends the run even if calls have started.
        let is_refusal = matches!(error.root(), ModelError::Refused { .. });
        if asked.is_begun() && !is_refusal {
            let partial = error.partial().cloned();
            self.is_unrecorded = true;
            let turn = self.journal.record_broken(self.agent, asked, partial)?;
            return self.closed(turn).await.map(Live::Ticked);
        }
        if matches!(error.root(), ModelError::Empty) {
            self.journal.record_empty(self.agent, asked, &error).await?;
            self.journal.say(EMPTY_NOTICE);
            return Ok(Live::Ticked(Ticked::Continue));
        }
        if error.class() == FailureClass::ContextLimit && self.agent.profile.takes_part() {
            return Ok(Live::TooLong(asked, error.to_failure()));
        }
        if self.journal.is_turn_asked_again(self.agent, &asked, &error).await {
            return Ok(Live::Throttled(asked));
        }
        Err(self.journal.record_failed_turn(self.agent, asked, &error).await)
    }

    /// Takes the calls that were not streamed, then runs all calls to their end.
    async fn closed(mut self: Box<Self>, turn: Turn) -> Step<Ticked> {
        // The state for calls is boxed: thousands of turns await their commit at once, and most have no calls.
        if turn.calls.is_empty() && !turn.is_broken {
            if !self.journal.is_last_turn_deferred() {
                self.commit().await?;
            }
            return Ok(Ticked::Output(turn.text));
        }
        if let Err(ending) = self.agent.profile.check_round(self.journal.turns()) {
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
        self.close()
    }

    fn is_drained(&self) -> bool {
        self.running.is_empty() && (self.ending.is_some() || self.schedule.is_quiescent())
    }

    /// Feeds events to the state machine, performs its commands, and launches the ready calls with one commit.
    async fn on(&mut self, mut events: VecDeque<Event>) -> Step<()> {
        while !events.is_empty() || !self.resumed.is_empty() {
            let mut ready = std::mem::take(&mut self.resumed);
            while let Some(event) = events.pop_front() {
                for command in self.schedule.on(event, self.journal.state()) {
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
        if let Some(error) = self.journal.gone_server(&call.tool) {
            return self.refuse(index, &error).map(Some);
        }
        // Read before the wait condition is checked: a later wake-up has a higher number (core-rules 3).
        let wake_seq = self.journal.wake_seq();
        let waiting = match admit(self.agent, self.journal, call).await? {
            Admission::Launch(mut call) => match self.agent.toolbox.host(&call.tool) {
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
                Some(tool) => match host_tools::call(tool, self.agent, self.journal, &call).await? {
                    HostToolAnswer::Answered(outcome) => return self.record(index, call, outcome).map(Some),
                    HostToolAnswer::Waiting(waiting) => waiting,
                },
            },
            Admission::Wait(waiting) => waiting,
            Admission::Refuse(error) => return self.refuse(index, &error).map(Some),
            Admission::End(error, failure) => {
                let refused = self.refuse(index, &error)?;
                self.end(failure.into()).await?;
                return Ok(Some(refused));
            }
        };
        self.journal.park(waiting, wake_seq);
        Ok(Some(Event::CallWaits { index }))
    }

    /// Handles a call that reads an approval, according to the state of its gate.
    async fn hold(&mut self, index: usize, path: &Path) -> Step<Option<Event>> {
        let wake_seq = self.journal.wake_seq();
        match approval_gate::ask(self.agent, self.journal, &self.calls[index].call, path).await? {
            ApprovalGate::Open(value) => match self.journal.open_gate(path, value) {
                Ok(()) => Ok(Some(Event::GateOpened { index })),
                Err(error) => self.refuse(index, &error).map(Some),
            },
            ApprovalGate::Shut(waiting) => {
                self.journal.park(waiting, wake_seq);
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
                begun = self.journal.begin_turn(asked)?;
            }
            self.journal.stage(self.agent, Stage::Calling { tool: &call.tool, call: &call.written.id }, State::Running);
            if is_early || self.is_detached(*index) || self.calls[*index].needs_intent(self.agent, call) {
                self.journal.intend(self.agent, call, begun)?;
            }
        }
        self.commit().await?;
        if is_early {
            self.journal.at(Point::TurnBegun).await;
        }
        if let Err(stop) = self.journal.may_launch().await {
            for (index, call) in &ready {
                // A detached call that an earlier attempt accepted may have run.
                if self.calls[*index].answer.is_none() {
                    self.journal.withdraw(self.agent, call)?;
                }
            }
            self.end(stop).await?;
            return Ok(events);
        }
        let named = || ready.iter().map(|(_, call)| call.tool.as_str()).collect::<Vec<_>>().join(", ");
        self.journal.about_to(|| format!("calling {}", named())).await;
        self.journal.at(Point::BeforeCall).await;
        for (index, call) in ready {
            if self.is_detached(index) {
                events.extend(self.detach(index, call)?);
                continue;
            }
            let key = self.journal.call_idempotency_key(&call.key);
            let execution = (self.journal.execution(), self.journal.tenant());
            let permits = self.journal.call_permits();
            self.running.push(Box::pin(run_call(&self.agent.toolbox, execution, permits, index, call, key)));
        }
        Ok(events)
    }

    /// Commits all pending writes, and the turn if it is among them.
    async fn commit(&mut self) -> Step<()> {
        self.journal.flush().await?;
        if std::mem::take(&mut self.is_unrecorded) {
            self.journal.at(Point::TurnRecorded).await;
        }
        Ok(())
    }

    /// Records what calls came to, in one commit, then starts what waited for them.
    async fn ended(&mut self, all: Vec<CompletedCall>) -> Step<()> {
        let (count, mut endings, mut events, mut refused) = (all.len(), Vec::new(), VecDeque::new(), None);
        for mut ran in all {
            self.journal.at(Point::CallAnswered).await;
            let waits = self.journal.waits_for_server(self.agent, &mut ran);
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
        self.journal.flush().await?;
        if let Some(error) = refused {
            return Err(error);
        }
        for _ in 0..count {
            self.journal.at(Point::CallRecorded).await;
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
        self.schedule.on(Event::Draining, self.journal.state());
        Ok(())
    }

    fn record(&mut self, index: usize, ready: ReadyCall, outcome: CallOutcome) -> Step<Event> {
        let fate = self.record_ran(CompletedCall { index, ready, outcome, scratchpad: std::sync::Arc::default() })?;
        Ok(Event::CallFinished { index, fate })
    }

    fn record_ran(&mut self, ran: CompletedCall) -> Step<Fate> {
        let taken = &mut self.calls[ran.index];
        let answered = self.journal.record_call(self.agent, &ran, taken.planned.as_ref())?;
        Ok(taken.answered(answered))
    }

    fn refuse(&mut self, index: usize, error: &CallError) -> Step<Event> {
        self.answer(index, Reply::error(error, &self.calls[index].call), None)?;
        Ok(Event::CallFinished { index, fate: Fate::Failed })
    }

    fn answer_unrun(&mut self, index: usize, unrun: Unrun) -> Step<()> {
        let call = &self.calls[index].call;
        let reply = match unrun {
            Unrun::Error(error) => Reply::error(&error, call),
            Unrun::UntakenBranch => Reply::skipped(json!({
                "status": "skipped_branch",
                "message": "the call reads an alternative that its producer did not take; it did not run",
            })),
            Unrun::HeldCondition(condition) => {
                Reply::skipped(json!({ "status": "held_condition", "condition": condition }))
            }
            Unrun::Superseded => Reply::skipped(json!({
                "status": "superseded", "message": "the reply submits another output after this one, which counts",
            })),
        };
        self.answer(index, reply, None)
    }

    fn answer(&mut self, index: usize, reply: Reply, resolution: Option<&str>) -> Step<()> {
        let taken = &mut self.calls[index];
        let answered = self.journal.record_answer(self.agent, taken.key, &taken.call, reply, resolution)?;
        taken.answered(answered);
        Ok(())
    }

    fn answer_latent(&mut self, index: usize, resolved: Resolved) -> Step<Event> {
        let Some(output) = resolved.output else {
            let reply = Reply::skipped(json!({ "status": "deferred" }));
            self.answer(index, reply, None)?;
            return Ok(Event::CallFinished { index, fate: Fate::Skipped });
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

    /// Closes the tick: every call has its result, or the attempt ends.
    fn close(self) -> Step<Ticked> {
        let Self { agent, journal, calls, output, ending, .. } = self;
        if let Some(ending) = ending {
            return Err(ending);
        }
        if journal.parked().is_some() {
            return Err(Interrupt::Waiting.into());
        }
        journal.note_conflicts();
        journal.collect_detached(agent)?;
        let (taken, answers): (Vec<_>, Vec<Option<Answered>>) =
            calls.into_iter().map(|taken| (taken.call, taken.answer)).unzip();
        let repeats = taken.iter().zip(&answers).filter_map(|(call, answer)| Some((call, answer.as_ref()?)));
        let guarded = if agent.profile.takes_part() { journal.guard_repeats(repeats) } else { Ok(()) };
        let answers = answers.into_iter().flatten().collect();
        if let Some((index, text)) = output {
            let Some(call) = taken.into_iter().nth(index) else { return Ok(Ticked::Output(text)) };
            journal.hold_output(agent, call, answers, index);
            return Ok(Ticked::Output(text));
        }
        journal.close_tick(agent, answers);
        guarded?;
        Ok(Ticked::Continue)
    }
}
