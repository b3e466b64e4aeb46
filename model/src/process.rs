//! The actions of a worker process: it claims, reconciles, runs its attempts step by step, and handles replies.

use crate::{
    machine::{Action, Machine},
    rows::{Lease, Process, State, Wait, Wrong},
    scenario::{Broken, Work},
    statement::{LeaseName, Phase, Reply, Running, Statement, Verb},
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
            let is_busy = state.running.iter().filter(mine).any(|one| one.statement.execution() == Some(execution));
            if is_busy {
                continue;
            }
            if let Some(lease) = process.leases[usize::from(execution)] {
                self.attempt(state, at, LeaseName { by, execution, token: lease.token }, lease, actions);
            } else if row.worker == Some(by) && row.end.is_none() {
                // Reconciliation. A claim whose reply may still arrive is left alone: the grace period is longer
                // than that.
                if !self.scenario.is(Broken::NoReconcile) {
                    let lease = LeaseName { by, execution, token: row.token };
                    actions.push(Action::Begin(Statement::Conclude { lease, verb: Verb::Release }));
                }
            } else if !is_claiming && row.exists && row.wait == Some(Wait::Worker) {
                actions.push(Action::Begin(Statement::Claim { by, execution }));
            }
        }
    }

    /// Adds the next actions of an attempt without a statement under way.
    fn attempt(&self, state: &State, process: usize, name: LeaseName, lease: Lease, actions: &mut Vec<Action>) {
        let conclude = |verb| Action::Begin(Statement::Conclude { lease: name, verb });
        let execution = name.execution;
        if let Some(verb) = lease.ending {
            return actions.push(conclude(verb));
        }
        if lease.is_cancelled {
            return actions.push(conclude(Verb::Cancel));
        }
        let record = Action::Begin(Statement::Record { lease: name, write: lease.write + 1, step: lease.steps });
        actions.push(match (self.scenario.work(execution), lease.steps) {
            (Work::Plain(steps), done) if done < steps => record,
            (Work::Suspect, 0) => record,
            (Work::Asks, 0) => record,
            (Work::Asks, 1) if lease.is_ready => record,
            (Work::Asks, 1) => Action::Begin(Statement::Request { lease: name }),
            (Work::Spawns(_), _) if !lease.has_acted => Action::Begin(Statement::Spawn { lease: name }),
            (Work::Spawns(_), _) if !lease.is_ready => Action::Look { process, execution },
            (Work::Pays, 0) if !lease.is_ready => Action::Begin(Statement::Reserve { lease: name }),
            (Work::Pays, 0) if lease.has_acted => record,
            // Nothing is launched under a lease that may have expired (core-rules 2).
            (Work::Pays, 0) if !state.worker(name.by).is_alive() => return,
            (Work::Pays, 0) => Action::Call { process, execution },
            (
                Work::Plain(_)
                | Work::Asks
                | Work::Spawns(_)
                | Work::Child(_)
                | Work::Pays
                | Work::Limited
                | Work::Suspect,
                _,
            ) => conclude(Verb::Finish),
        });
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
            lease.steps += 1;
            lease.wake_seq = wake_seq;
            lease.is_cancelled |= is_cancelled;
        }
        Reply::Concluded | Reply::Lost => is_over = true,
        Reply::Asked { is_decided: true } | Reply::Granted => lease.is_ready = true,
        Reply::Asked { is_decided: false } => lease.ending = Some(Verb::Park(Wait::Approval, lease.wake_seq)),
        Reply::NoBudget { wake_seq } => lease.ending = Some(Verb::Park(Wait::Budget, wake_seq)),
        Reply::Spawned => lease.has_acted = true,
        Reply::Cancelled => lease.is_cancelled = true,
        Reply::Claimed { .. } => {}
    }
    state.processes[process].leases[usize::from(execution)] = Some(lease).filter(|_| !is_over);
}
