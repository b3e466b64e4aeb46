//! The senders of each statement, and the faults: paused processes, lost replies, callers, people, the sweep, a
//! Postgres outage.
//!
//! A paused process needs no action of its own: the checker tries every order of actions, including those in which
//! the process does nothing for long. A wake-up has none either, because it gives no right: any process may claim
//! at any time, twice or never.

use stateright::{Model, Property};

use crate::{
    locks::{Step, is_writing, step},
    normal::normalise,
    process::{deliver, with_lease},
    properties,
    rows::{Asked, Reservation, State, Wait, Worker},
    scenario::{Broken, COST, Scenario},
    statement::{Ending, Phase, Running, Statement, Verb, free, halves},
    writes::{die, write},
};

/// One atomic transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A statement takes its snapshot.
    Begin(Statement),
    /// A statement gets its next lock, finds that it must not have it, or commits.
    Go(Running),
    /// A reply arrives.
    Deliver(Running),
    /// A reply is lost; the sender knows that it has timed out.
    Lose(Running),
    /// A process checks if the child of an execution that it holds has ended.
    Look {
        /// The process.
        process: usize,
        /// The parent.
        execution: u8,
    },
    /// A process makes its model call.
    Call {
        /// The process.
        process: usize,
        /// The execution.
        execution: u8,
    },
    /// A process reads that an execution is to be cancelled.
    Hear {
        /// The process.
        process: usize,
        /// The execution.
        execution: u8,
    },
    /// A worker's lease expires while its process is paused or gone.
    Expire {
        /// The worker.
        worker: u8,
    },
    /// A worker's process loses its connection to Postgres for longer than its lease, and gets it back.
    Cut {
        /// The worker.
        worker: u8,
    },
    /// A process finds that it was paused for too long and declares its own worker dead, once its writes have
    /// ended.
    GiveUp {
        /// The worker.
        worker: u8,
    },
    /// A process whose worker is dead drops everything and registers a new worker.
    StartOver {
        /// The process.
        process: usize,
    },
    /// Postgres goes away for longer than a lease and comes back.
    Outage,
    /// Postgres hangs for longer than a lease, and then executes the statements sent before.
    Hang,
    /// One worker's renewals have run without a gap for a full lease; those of every healthy worker have too, by
    /// then.
    Steady,
}

/// The model of one scenario.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Its bounds.
    pub scenario: Scenario,
}

impl Model for Machine {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(&self.scenario)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_some() {
            return;
        }
        for running in &state.running {
            match running.phase {
                Phase::Replied(_) => {
                    actions.push(Action::Deliver(*running));
                    if state.left.losses > 0 {
                        actions.push(Action::Lose(*running));
                    }
                }
                Phase::Begun | Phase::Fenced | Phase::Locked(_) | Phase::Waking(_) | Phase::Missed => {
                    actions.push(Action::Go(*running));
                }
            }
        }
        // A statement that waits for a lock has no transition.
        actions.retain(|action| match action {
            Action::Go(running) => self.step_of(state, running).is_some_and(|(_, step)| step != Step::Blocked),
            Action::Deliver(_)
            | Action::Lose(_)
            | Action::Begin(_)
            | Action::Look { .. }
            | Action::Call { .. }
            | Action::Hear { .. }
            | Action::Expire { .. }
            | Action::Cut { .. }
            | Action::GiveUp { .. }
            | Action::StartOver { .. }
            | Action::Outage
            | Action::Hang
            | Action::Steady => true,
        });
        self.faults(state, actions);
        for (at, process) in state.processes.iter().enumerate() {
            self.process(state, at, process, actions);
        }
        let under_way = state.running.iter().filter(|one| !matches!(one.phase, Phase::Replied(_))).count();
        if under_way >= self.scenario.statements {
            actions.retain(|action| !matches!(action, Action::Begin(_)));
        } else {
            self.environment(state, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.apply(&mut state, action);
        normalise(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl Machine {
    fn step_of(&self, state: &State, running: &Running) -> Option<(usize, Step)> {
        let at = state.running.iter().position(|one| one == running)?;
        Some((at, step(&self.scenario, state, at)))
    }

    /// Adds the faults, and the renewals after them.
    fn faults(&self, state: &State, actions: &mut Vec<Action>) {
        for at in 0..u8::try_from(state.workers.len()).unwrap_or(u8::MAX) {
            let worker = state.worker(at);
            if state.process_of(at).is_none() {
                continue;
            }
            if state.left.expiries > 0 && worker.is_alive() {
                actions.push(Action::Expire { worker: at });
            }
            if state.left.cuts > 0 && worker.is_alive() {
                actions.push(Action::Cut { worker: at });
            }
            let renewal = Statement::Renew { worker: at };
            let is_under_way = state.running.iter().any(|running| running.statement == renewal);
            if !is_under_way && Running::begin(&self.scenario, state, renewal).snapshot.fits {
                actions.push(Action::Begin(renewal));
            }
            if worker.is_expired && !worker.is_excused && !worker.is_dead && !is_writing(&self.scenario, state, at) {
                actions.push(Action::GiveUp { worker: at });
            }
        }
        if state.left.outages > 0 {
            actions.extend([Action::Outage, Action::Hang]);
        }
        let is_back = |worker: &Worker| worker.is_alive() || worker.is_at_fault || worker.is_dead;
        if state.is_young && state.workers.iter().all(is_back) {
            actions.push(Action::Steady);
        }
    }

    /// Adds the statements of callers, people, reapers and sweeps, where their snapshot fits.
    fn environment(&self, state: &State, actions: &mut Vec<Action>) {
        let mut begin = |statement: Statement| {
            let is_under_way = state.running.iter().any(|running| running.statement == statement);
            if !is_under_way && Running::begin(&self.scenario, state, statement).snapshot.fits {
                actions.push(Action::Begin(statement));
            }
        };
        for execution in state.numbers().filter(|&at| state.execution(at).exists) {
            let row = state.execution(execution);
            begin(Statement::Reap { execution });
            begin(Statement::Decide { execution });
            if row.wait == Some(Wait::Backoff) {
                begin(Statement::WakeDue { execution });
            }
            begin(Statement::HandOver { execution });
            if state.left.cancels > 0 {
                begin(Statement::Cancel { execution });
            }
            if self.scenario.parent(execution).is_some_and(|parent| state.execution(parent).is_ending) {
                begin(Statement::CancelChild { execution });
            }
        }
        for worker in 0..u8::try_from(state.workers.len()).unwrap_or(u8::MAX) {
            if !state.is_young || self.scenario.is(Broken::NoGap) {
                begin(Statement::Bury { worker });
            }
        }
        let is_due = |reservation: &Option<Reservation>| match reservation {
            Some(Reservation::Settled(_)) => true,
            Some(Reservation::Waiting) => state.budget.fits() && !self.scenario.is(Broken::SilentSettle),
            Some(Reservation::Open(_)) | None => false,
        };
        if state.executions.iter().any(|row| is_due(&row.reservation)) {
            begin(Statement::Fold);
        }
        if state.left.raises > 0 {
            begin(Statement::Raise);
        }
    }

    /// Returns the actions possible in `state`.
    #[must_use]
    pub fn possible(&self, state: &State) -> Vec<Action> {
        let mut actions = Vec::new();
        self.actions(state, &mut actions);
        actions
    }

    /// Runs a statement to its end with nothing else under way. Returns it with its reply if a sender waits for
    /// one.
    #[must_use]
    pub fn carry_out(&self, state: &mut State, statement: Statement) -> Option<Running> {
        self.apply(state, Action::Begin(statement));
        while let Some(running) = state.running.first().copied() {
            if matches!(running.phase, Phase::Replied(_)) {
                return Some(running);
            }
            self.apply(state, Action::Go(running));
        }
        None
    }

    /// Applies an action to `state`.
    pub fn apply(&self, state: &mut State, action: Action) {
        match action {
            Action::Begin(statement) => self.begin(state, statement),
            Action::Go(running) => self.go(state, &running),
            Action::Deliver(running) => {
                state.running.retain(|one| *one != running);
                deliver(state, running);
            }
            Action::Lose(running) => {
                state.left.losses -= 1;
                state.running.retain(|one| *one != running);
            }
            Action::Look { process, execution } => {
                let has_open = state.execution(execution).open_children > 0;
                with_lease(state, process, execution, |lease| {
                    lease.is_ready = !has_open;
                    let park = Ending::alone(Verb::Park(Wait::Children, lease.wake_seq));
                    lease.ending = has_open.then_some(park);
                });
            }
            Action::Call { process, execution } => {
                state.made += COST;
                with_lease(state, process, execution, |lease| lease.has_acted = true);
            }
            Action::Hear { process, execution } => {
                with_lease(state, process, execution, |lease| lease.is_cancelled = true);
            }
            Action::Expire { worker } => {
                state.left.expiries -= 1;
                let row = &mut state.workers[usize::from(worker)];
                row.is_expired = true;
                row.is_at_fault = true;
            }
            Action::Cut { worker } => {
                state.left.cuts -= 1;
                let row = &mut state.workers[usize::from(worker)];
                row.is_expired = true;
                row.is_excused = true;
                row.is_at_fault = true;
            }
            Action::GiveUp { worker } => die(state, worker, state.suspects_of(worker)),
            Action::StartOver { process } => self.start_over(state, process),
            Action::Outage => {
                state.left.outages -= 1;
                state.is_young = true;
                state.running.clear();
                for worker in state.workers.iter_mut().filter(|worker| !worker.is_dead) {
                    worker.is_expired = true;
                    worker.is_excused = true;
                }
            }
            Action::Hang => {
                state.left.outages -= 1;
                state.is_young = true;
                // The outage also excuses workers that were paused before, because they cannot tell.
                for worker in state.workers.iter_mut().filter(|worker| worker.is_alive()) {
                    worker.is_expired = true;
                    worker.is_excused = true;
                }
            }
            Action::Steady => state.is_young = false,
        }
    }

    fn begin(&self, state: &mut State, statement: Statement) {
        let running = Running::begin(&self.scenario, state, statement);
        state.running.push(running);
        match statement {
            Statement::Conclude { lease, ending } => {
                let held = state
                    .process_of(lease.by)
                    .and_then(|process| state.processes[process].leases[usize::from(lease.execution)].as_mut());
                // Counted once: a repeated ending was counted before.
                if let Some(held) = held.filter(|held| held.token == lease.token && held.ending.is_none()) {
                    held.ending = Some(ending);
                    match ending.verb {
                        Verb::Release => state.left.releases -= 1,
                        Verb::Park(Wait::Backoff, _) => state.left.retries -= 1,
                        Verb::Park(..) | Verb::Finish | Verb::Cancel => {}
                    }
                }
            }
            Statement::Record { lease, .. } => {
                if let Some(process) = state.process_of(lease.by) {
                    with_lease(state, process, lease.execution, |held| {
                        held.is_in_doubt = self.scenario.ends_in_one_commit && held.token == lease.token;
                    });
                }
            }
            Statement::Cancel { .. } => state.left.cancels -= 1,
            Statement::Raise => state.left.raises -= 1,
            Statement::Claim { .. }
            | Statement::Request { .. }
            | Statement::Spawn { .. }
            | Statement::Reserve { .. }
            | Statement::Fold
            | Statement::Renew { .. }
            | Statement::Bury { .. }
            | Statement::Reap { .. }
            | Statement::WakeDue { .. }
            | Statement::HandOver { .. }
            | Statement::CancelChild { .. }
            | Statement::Decide { .. } => {}
        }
    }

    fn go(&self, state: &mut State, running: &Running) {
        let Some((at, step)) = self.step_of(state, running) else { return };
        if let (Step::Commit(slot), Some((first, second))) = (step, halves(&self.scenario, running.statement)) {
            write(&self.scenario, state, Running { statement: first, ..*running }, slot);
            state.running[at] = Running::begin(&self.scenario, state, second);
            return;
        }
        let phase = match step {
            Step::Blocked => return,
            Step::To(phase) => Some(phase),
            Step::Over => None,
            Step::Commit(slot) => write(&self.scenario, state, *running, slot).map(Phase::Replied),
        };
        let is_heard = running.statement.by().is_some_and(|by| state.process_of(by).is_some());
        match phase {
            // The sender of the statement is gone, and so is its reply.
            Some(Phase::Replied(_) | Phase::Missed) if !is_heard => drop(state.running.remove(at)),
            Some(phase @ Phase::Replied(_)) if self.scenario.is_coarse => {
                state.running.remove(at);
                deliver(state, Running { phase, ..*running });
            }
            Some(
                phase @ (Phase::Begun
                | Phase::Fenced
                | Phase::Locked(_)
                | Phase::Waking(_)
                | Phase::Missed
                | Phase::Replied(_)),
            ) => state.running[at].phase = phase,
            None => drop(state.running.remove(at)),
        }
    }

    fn start_over(&self, state: &mut State, process: usize) {
        let old = state.processes[process].identity;
        let most = usize::from(self.scenario.processes + self.scenario.expiries);
        let next = u8::try_from(state.workers.len()).ok().filter(|_| state.workers.len() < most);
        if next.is_some() {
            state.workers.push(Worker::FRESH);
        }
        state.processes[process].identity = next;
        state.processes[process].leases.fill(None);
        let is_deaf = |phase: Phase| matches!(phase, Phase::Replied(_) | Phase::Missed);
        state.running.retain(|one| !(one.statement.by() == old && is_deaf(one.phase)));
    }

    /// Returns true if no action is possible.
    #[must_use]
    pub fn is_quiescent(&self, state: &State) -> bool {
        // Checked first because it is cheaper than listing all actions.
        let goes_on = |at: usize| {
            matches!(state.running[at].phase, Phase::Replied(_)) || step(&self.scenario, state, at) != Step::Blocked
        };
        if (0..state.running.len()).any(goes_on) {
            return false;
        }
        self.possible(state).is_empty()
    }

    /// Returns true if an execution may still wait in a state without further actions, because its condition is not
    /// met.
    #[must_use]
    pub fn may_wait(&self, state: &State, execution: u8) -> bool {
        let row = state.execution(execution);
        match row.wait {
            Some(Wait::Budget) => row.reservation == Some(Reservation::Waiting) && !state.budget.fits(),
            Some(Wait::Approval) => row.asked == Some(Asked::Waiting),
            Some(Wait::Children) => row.open_children > 0,
            Some(Wait::Slot) => free(state) == 0,
            Some(Wait::Backoff) => true,
            Some(Wait::Worker) | None => false,
        }
    }
}
