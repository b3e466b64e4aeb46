//! Judges what is left when nothing runs, and faults that had no effect.

use super::{Finding, Findings, Index};
use crate::verify::{fault_kind::FaultScope, seen::Evidence};

pub(super) fn leftovers(evidence: &Evidence, findings: &mut Findings) {
    let left = evidence.leftovers;
    let rows = [
        (left.held, "executions are held"),
        (left.parked, "executions are parked"),
        (left.reservations, "reservations are open"),
        (left.requests, "requests wait for a person"),
        (left.deadlines, "deadlines of ended executions are left"),
        (left.slots, "slots of concurrency limits are held"),
        (left.ends, "ends have reactions to come"),
        (left.slot_waiters, "places in the lines before concurrency limits are left"),
    ];
    for (n, what) in rows.into_iter().filter(|(n, _)| *n > 0) {
        findings.leftovers.push(Finding { execution: None, what: format!("{n} {what}") });
    }
    findings.leftovers.extend(evidence.complaints.iter().map(|what| Finding { execution: None, what: what.clone() }));
}

/// The victim of a fault must have held a lease: a fault without effect proves nothing.
pub(super) fn victims(evidence: &Evidence, index: &Index<'_>, findings: &mut Findings) {
    for fault in evidence.faults.iter().filter(|fault| fault.kind.reach() == FaultScope::Victim) {
        let process = fault.process.as_deref().unwrap_or_default();
        let pid = index.pids.get(process).copied();
        let held_something = pid.is_some()
            && evidence.attempts.iter().any(|attempt| {
                evidence.pid(attempt) == pid
                    && attempt.started_at <= fault.from
                    && attempt.ended_at.is_none_or(|ended| ended > fault.from)
            });
        if !held_something {
            let what = format!("{} at {} found nothing to lose: {process} held nothing", fault.kind.name(), fault.from);
            findings.leftovers.push(Finding { execution: None, what });
        }
    }
}
