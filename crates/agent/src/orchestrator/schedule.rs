//! Scheduling of the calls of one reply: a pure state machine that turns events into commands.
//!
//! A call starts when the values it reads exist, no earlier unfinished call may still write them (program order),
//! its condition holds and a slot is free. When no call runs and none can start, the rest are classified
//! (`leftovers`), so that no call waits for a value that cannot come.

use longhaul_references::{Access, Path, PlannedCall, Resolution, Resolved, StateLog};
use longhaul_sdk::spec::Launch;

use super::{
    leftovers::{self, Leftover, Stranded},
    scheduled_call::{Fate, Progress, ScheduledCall, Streamed, Unrun},
};

/// Input of the state machine. Cancellation, deadlines and lost leases are not events: they abort the attempt.
#[derive(Debug)]
pub(crate) enum Event {
    /// The arguments of the next call are complete.
    CallStreamed(Box<Streamed>),
    /// A call has its result: its tool answered, or it was refused.
    CallFinished {
        /// Index in the reply.
        index: usize,
        fate: Fate,
    },
    /// A call waits for a person or another execution.
    CallWaits {
        /// Index in the reply.
        index: usize,
    },
    /// The approval that a call was held for was given.
    GateOpened {
        /// Index in the reply.
        index: usize,
    },
    /// The reply is complete or broken: no more calls follow.
    StreamClosed,
    /// The worker drains: running calls may end, no call starts.
    Draining,
}

/// Output of the state machine.
#[derive(Debug)]
pub(crate) enum Command {
    /// Run the call with these arguments, if it is admitted.
    Start {
        /// Index in the reply.
        index: usize,
        /// Arguments with references replaced by values.
        resolved: Resolved,
    },
    /// Answer the call without running it.
    Answer {
        /// Index in the reply.
        index: usize,
        unrun: Unrun,
    },
    /// Hold the call: it reads an approval that only a person can give.
    Hold {
        /// Index in the reply.
        index: usize,
        /// Path of the approval.
        gate: Path,
    },
}

/// The calls of one reply.
#[derive(Debug)]
pub(crate) struct Schedule {
    slots: Vec<ScheduledCall>,
    max_running: usize,
    is_closed: bool,
    is_draining: bool,
}

impl Schedule {
    /// An empty schedule that runs at most `max_running` calls at a time.
    pub(crate) fn new(max_running: usize) -> Self {
        Self { slots: Vec::new(), max_running: max_running.max(1), is_closed: false, is_draining: false }
    }

    /// Applies an event and returns the commands, in the order of the calls.
    pub(crate) fn on(&mut self, event: Event, state: &StateLog) -> Vec<Command> {
        let mut commands = Vec::new();
        match event {
            Event::CallStreamed(streamed) => self.slots.push(ScheduledCall::from(*streamed)),
            Event::CallFinished { index, fate } => self.set(index, |_| Progress::Done(fate)),
            Event::CallWaits { index } => self.set(index, Progress::Waiting),
            Event::GateOpened { index } => self.set(index, Progress::Pending),
            Event::StreamClosed => self.close(&mut commands),
            Event::Draining => self.is_draining = true,
        }
        self.settle(state, &mut commands);
        commands
    }

    /// True if nothing more happens without an event from outside: every call has its result or waits, or the
    /// worker drains.
    pub(crate) fn is_quiescent(&self) -> bool {
        self.is_closed && self.running(None) == 0
    }

    fn close(&mut self, commands: &mut Vec<Command>) {
        self.is_closed = true;
        // The last output counts.
        let outputs: Vec<usize> = (0..self.slots.len()).filter(|&at| self.slots[at].is_output).collect();
        for &index in outputs.iter().rev().skip(1).rev() {
            if self.slots[index].open().is_some() {
                self.answer(index, Unrun::Superseded, commands);
            }
        }
    }

    /// Starts calls until none can start; if none runs either, resolves the leftovers.
    fn settle(&mut self, state: &StateLog, commands: &mut Vec<Command>) {
        loop {
            self.start(state, commands);
            if self.is_draining || !self.is_quiescent() {
                return;
            }
            let left = leftovers::classify(&self.slots, &self.stranded(state), state);
            if left.is_empty() {
                return;
            }
            for (index, leftover) in left {
                match leftover {
                    Leftover::Hold(gate) => {
                        self.set(index, Progress::Waiting);
                        commands.push(Command::Hold { index, gate });
                    }
                    Leftover::TakeLiterals => self.slots[index].takes_literals = true,
                    Leftover::Unrun(unrun) => self.answer(index, unrun, commands),
                }
            }
        }
    }

    fn start(&mut self, state: &StateLog, commands: &mut Vec<Command>) {
        let mut index = 0;
        while index < self.slots.len() && !self.is_draining {
            if let Some(resolution) = self.resolution(index, state) {
                match resolution {
                    Resolution::Ready(resolved) if self.has_room(index) => {
                        self.set(index, Progress::Running);
                        commands.push(Command::Start { index, resolved });
                    }
                    Resolution::Invalid(error) => {
                        self.answer(index, Unrun::Error(error), commands);
                        // Its declared value will not come: earlier calls may have waited for it.
                        index = 0;
                        continue;
                    }
                    Resolution::Ready(_) | Resolution::Waiting(_) | Resolution::Unmet { .. } => {}
                }
            }
            index += 1;
        }
    }

    /// Resolution of a pending call; `None` if it must not start yet.
    fn resolution(&self, index: usize, state: &StateLog) -> Option<Resolution> {
        let slot = &self.slots[index];
        let Progress::Pending(planned) = &slot.progress else { return None };
        let may_start = match slot.launch {
            Launch::Eager => true,
            Launch::OnClose => self.is_closed,
        };
        let others_are_done = || {
            let mut others = self.slots.iter().enumerate().filter(|(at, _)| *at != index);
            others.all(|(_, slot)| slot.open().is_none())
        };
        if !may_start || slot.is_output && !others_are_done() {
            return None;
        }
        Some(self.resolve(index, planned, state))
    }

    fn resolve(&self, index: usize, planned: &PlannedCall, state: &StateLog) -> Resolution {
        let takes_literals = self.slots[index].takes_literals;
        planned.resolve(state, &|path| match self.access(index, path) {
            Access::Awaited if takes_literals => Access::Lost,
            access @ (Access::Open | Access::Awaited | Access::Lost) => access,
        })
    }

    /// Access of a call to `path`: `Awaited` while an earlier call may still write there, `Lost` if one should have
    /// and did not, unless another earlier call of the reply wrote there.
    fn access(&self, index: usize, path: &Path) -> Access {
        let reader = self.slots[index].instance.as_ref();
        let mut is_stale = false;
        for slot in &self.slots[..index] {
            match &slot.progress {
                Progress::Pending(planned) | Progress::Running(planned) | Progress::Waiting(planned) => {
                    if planned.may_write(path, reader) {
                        return Access::Awaited;
                    }
                }
                Progress::Done(Fate::Failed | Fate::Skipped) => is_stale |= slot.declares(path, reader),
                Progress::Done(Fate::Succeeded { .. }) => {}
            }
        }
        let is_fresh = |slot: &ScheduledCall| match &slot.progress {
            Progress::Done(Fate::Succeeded { wrote }) => {
                slot.declares(path, reader) && wrote.iter().any(|wrote| wrote.is_above_or_below(path))
            }
            Progress::Done(Fate::Failed | Fate::Skipped)
            | Progress::Pending(_)
            | Progress::Running(_)
            | Progress::Waiting(_) => false,
        };
        if is_stale && !self.slots[..index].iter().any(is_fresh) { Access::Lost } else { Access::Open }
    }

    fn has_room(&self, index: usize) -> bool {
        let slot = &self.slots[index];
        let is_latent = slot.open().is_some_and(PlannedCall::is_latent);
        let has_room = self.running(None) < self.max_running
            && slot.concurrency.is_none_or(|max| self.running(Some(&slot.tool)) < max.max(1));
        is_latent || has_room
    }

    fn running(&self, tool: Option<&str>) -> usize {
        let runs = |slot: &&ScheduledCall| match &slot.progress {
            Progress::Running(_) => tool.is_none_or(|tool| slot.tool == tool),
            Progress::Pending(_) | Progress::Waiting(_) | Progress::Done(_) => false,
        };
        self.slots.iter().filter(runs).count()
    }

    /// Pending calls that nothing will start, with their resolutions. Empty while a call waits for a person or
    /// another execution: a value may still come. The output is stranded only after its siblings have ended.
    fn stranded(&self, state: &StateLog) -> Vec<Stranded> {
        if self.slots.iter().any(|slot| matches!(slot.progress, Progress::Waiting(_))) {
            return Vec::new();
        }
        let of = |is_output: bool| -> Vec<Stranded> {
            let pending = |(index, slot): (usize, &ScheduledCall)| match &slot.progress {
                Progress::Pending(planned) if slot.is_output == is_output => {
                    Some(Stranded { index, lacks: self.resolve(index, planned, state) })
                }
                Progress::Pending(_) | Progress::Running(_) | Progress::Waiting(_) | Progress::Done(_) => None,
            };
            self.slots.iter().enumerate().filter_map(pending).collect()
        };
        let calls = of(false);
        if calls.is_empty() { of(true) } else { calls }
    }

    fn answer(&mut self, index: usize, unrun: Unrun, commands: &mut Vec<Command>) {
        let fate = match unrun {
            Unrun::Error(_) => Fate::Failed,
            Unrun::UntakenBranch | Unrun::UnmetCondition(_) | Unrun::Superseded => Fate::Skipped,
        };
        self.set(index, |_| Progress::Done(fate));
        commands.push(Command::Answer { index, unrun });
    }

    fn set(&mut self, index: usize, next: impl FnOnce(PlannedCall) -> Progress) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let progress = std::mem::replace(&mut slot.progress, Progress::Done(Fate::Skipped));
        slot.progress = match progress {
            Progress::Pending(planned) | Progress::Running(planned) | Progress::Waiting(planned) => next(planned),
            done @ Progress::Done(_) => done,
        };
    }
}
