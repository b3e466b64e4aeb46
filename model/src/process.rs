//! The actions of a worker process: it claims, reconciles, runs its attempts step by step, and handles replies.

use crate::{
    machine::{Action, Machine},
    rows::{Lease, Process, State, Wait, Wrong},
    scenario::{Broken, Work},
    statement::{Ending, LeaseName, Phase, Reply, Running, Statement, Verb, Write},
};

impl Machine {
    /// Adds the next actions of a process.
    pub(crate) fn process(&self, state: &State, at: usize, process: &Process, actions: &mut Vec<Action>) {
        let Some(by) = process.identity else { return };
        let worker = state.worker(by);
        // A process learns from its renewal that it is dead, so it waits for a renewal under way.
        let is_renewing = state.running.iter().any(|one| one.statement == Statement::Renew { worker: by });
        if !worker.is_alive() && (!worker.is_excused || worker.is_dead) && !is_renewing {
            actions.push(Action::StartOver { process: at });
        }
        let mine = |running: &&Running| running.statement.by() == Some(by);
        let claims = |running: &Running| matches!(running.statement, Statement::Claim { .. });
        let is_claiming = state.running.iter().filter(mine).any(claims);
        for execution in state.numbers() {
            let row = state.execution(execution);
            let of_it = |one: &&Running| one.statement.execution() == Some(execution);
            let mut under_way = state.running.iter().filter(mine).filter(of_it).map(|one| one.statement);
            let lease = process.leases[usize::from(execution)];
            if let Some(first) = under_way.next() {
                if let (Statement::Record { lease: name, .. }, None, Some(lease)) = (first, under_way.next(), lease)
                    && lease.token == name.token
                {
                    self.end_early(state, name, lease, actions);
                }
                continue;
            }
            if let Some(lease) = lease {
                self.attempt(state, at, LeaseName { by, execution, token: lease.token }, lease, actions);
            } else if row.worker == Some(by) && row.end.is_none() {
                // Reconciliation. A claim whose reply may still arrive is left alone: the grace period is longer
                // than that.
                if !self.scenario.is(Broken::NoReconcile) {
                    let lease = LeaseName { by, execution, token: row.token };
                    let ending = Ending::alone(Verb::Release);
                    actions.push(Action::Begin(Statement::Conclude { lease, ending }));
                }
            } else if !is_claiming && row.exists && row.wait == Some(Wait::Worker) {
                actions.push(Action::Begin(Statement::Claim { by, execution }));
            }
        }
    }

    /// Adds the next actions of an attempt without a statement under way.
    fn attempt(&self, state: &State, process: usize, name: LeaseName, lease: Lease, actions: &mut Vec<Action>) {
        let conclude = |verb| Action::Begin(Statement::Conclude { lease: name, ending: Ending::alone(verb) });
        let execution = name.execution;
        let write = Write { number: lease.write + 1, step: lease.steps };
        let record = Action::Begin(Statement::Record { lease: name, write });
        if let Some(ending) = lease.ending {
            // An end with a write is not applied before the write that precedes it.
            let is_behind = ending.write.is_some() && lease.is_in_doubt;
            return actions.push(if is_behind {
                record
            } else {
                Action::Begin(Statement::Conclude { lease: name, ending })
            });
        }
        if lease.is_cancelled {
            return actions.push(conclude(Verb::Cancel));
        }
        actions.push(match (self.scenario.work(execution), lease.steps) {
            (Work::Plain(steps), done) if done < steps => record,
            (Work::Suspect, 0) => record,
            (Work::Asks, 0) => record,
            (Work::Asks, 1) if lease.is_ready => record,
            (Work::Asks, 1) => Action::Begin(Statement::Request { lease: name }),
            (Work::Spawns(_), _) if !lease.has_acted => Action::Begin(Statement::Spawn { lease: name }),
            (Work::Spawns(_), _) if !lease.is_ready => Action::Look { process, execution },
            (Work::Pays | Work::PayingChild(_), 0) if !lease.is_ready => {
                Action::Begin(Statement::Reserve { lease: name })
            }
            (Work::Pays | Work::PayingChild(_), 0) if lease.has_acted => record,
            // Nothing is launched under a lease that may have expired (core-rules 2).
            (Work::Pays | Work::PayingChild(_), 0) if !state.worker(name.by).is_alive() => return,
            (Work::Pays | Work::PayingChild(_), 0) => Action::Call { process, execution },
            (
                Work::Plain(_)
                | Work::Asks
                | Work::Spawns(_)
                | Work::Child(_)
                | Work::Pays
                | Work::PayingChild(_)
                | Work::Limited
                | Work::Suspect,
                _,
            ) => conclude(Verb::Finish),
        });
        if !lease.is_in_doubt {
            self.end_with(state, name, lease, write, actions);
        }
        if state.left.releases > 0 {
            actions.push(conclude(Verb::Release));
        }
        if state.left.retries > 0 {
            actions.push(conclude(Verb::Park(Wait::Backoff, lease.wake_seq)));
        }
        let row = state.execution(execution);
        if row.cancel && row.is_held_by(name.by, name.token) {
            actions.push(Action::Hear { process, execution });
        }
    }

    /// Adds the ends that may be sent while a write of the lease is under way. The worker waits for its answer first;
    /// the store must not depend on that: the number alone orders the two.
    fn end_early(&self, state: &State, name: LeaseName, lease: Lease, actions: &mut Vec<Action>) {
        match lease.ending {
            Some(ending) if ending.write.is_some() => {
                actions.push(Action::Begin(Statement::Conclude { lease: name, ending }));
            }
            Some(_) => {}
            None => {
                let write = Write { number: lease.write + 2, step: lease.steps + 1 };
                self.end_with(state, name, lease, write, actions);
            }
        }
    }

    /// Adds the ends that carry this write, if it has the last step. The worker sends a write only with an end that is
    /// final; the statement takes it with every end.
    fn end_with(&self, state: &State, name: LeaseName, lease: Lease, write: Write, actions: &mut Vec<Action>) {
        let is_last = match self.scenario.work(name.execution) {
            Work::Plain(steps) => write.step + 1 == steps,
            Work::Pays | Work::PayingChild(_) => write.step == 0 && lease.has_acted,
            Work::Asks | Work::Spawns(_) | Work::Child(_) | Work::Limited | Work::Suspect => false,
        };
        if !self.scenario.ends_in_one_commit || !is_last {
            return;
        }
        let mut end = |verb| {
            let ending = Ending { verb, write: Some(write) };
            actions.push(Action::Begin(Statement::Conclude { lease: name, ending }));
        };
        end(Verb::Finish);
        if state.left.retries > 0 {
            end(Verb::Park(Wait::Backoff, lease.wake_seq));
        }
    }
}

pub(crate) fn with_lease(state: &mut State, process: usize, execution: u8, change: impl FnOnce(&mut Lease)) {
    if let Some(lease) = &mut state.processes[process].leases[usize::from(execution)] {
        change(lease);
    }
}

/// Delivers a reply to the process that sent the statement.
pub(crate) fn deliver(state: &mut State, running: Running) {
    let Phase::Replied(reply) = running.phase else { return };
    let (Some(by), Some(execution)) = (running.statement.by(), running.statement.execution()) else { return };
    let Some(process) = state.process_of(by) else { return };
    if let Reply::Claimed { token, wake_seq } = reply {
        let steps = u8::try_from(state.execution(execution).steps.len()).unwrap_or(u8::MAX);
        state.processes[process].leases[usize::from(execution)] = Some(Lease {
            token,
            write: 0,
            is_in_doubt: false,
            steps,
            wake_seq,
            is_cancelled: false,
            is_ready: false,
            has_acted: false,
            ending: None,
        });
        return;
    }
    let named = running.statement.lease().map(|lease| lease.token);
    let held = state.processes[process].leases[usize::from(execution)];
    let Some(mut lease) = held.filter(|held| Some(held.token) == named) else { return };
    let mut is_over = false;
    match reply {
        Reply::Recorded { wake_seq, is_cancelled } => {
            let recorded = state.execution(execution).steps.get(usize::from(lease.steps));
            if recorded != Some(&lease.token) {
                state.note(Wrong::LostStep);
            }
            lease.write += 1;
            lease.is_in_doubt = false;
            lease.steps += 1;
            lease.wake_seq = wake_seq;
            lease.is_cancelled |= is_cancelled;
        }
        Reply::Concluded | Reply::Lost => is_over = true,
        Reply::Asked { is_decided: true } | Reply::Granted => lease.is_ready = true,
        Reply::Asked { is_decided: false } => {
            lease.ending = Some(Ending::alone(Verb::Park(Wait::Approval, lease.wake_seq)));
        }
        Reply::NoBudget { wake_seq } => lease.ending = Some(Ending::alone(Verb::Park(Wait::Budget, wake_seq))),
        Reply::Spawned => lease.has_acted = true,
        Reply::Cancelled => lease.is_cancelled = true,
        Reply::Claimed { .. } => {}
    }
    state.processes[process].leases[usize::from(execution)] = Some(lease).filter(|_| !is_over);
}
