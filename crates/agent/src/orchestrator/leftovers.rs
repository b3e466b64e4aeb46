//! Classification of the calls of a reply that nothing can start any more, by a fixed table of rows in this order:
//!
//! Held for a person's approval · an alternative that its producer did not write · a condition that does not hold ·
//! a dependency that failed or did not run · a cycle that a literal breaks · a cycle · a path that nothing writes.
//! Each round applies one row, because its answers may unblock other calls.

use longhaul_domain::{CallError, CallErrorKind};
use longhaul_references::{Missing, Path, Resolution, StateLog};
use serde_json::json;

use super::scheduled_call::{Fate, Progress, ScheduledCall, Unrun};

/// A call that cannot start.
#[derive(Debug)]
pub(super) struct Stranded {
    /// Index in the reply.
    pub(super) index: usize,
    /// Current resolution of the call.
    pub(super) lacks: Resolution,
}

/// Decision on a stranded call.
#[derive(Debug)]
pub(super) enum Leftover {
    /// Hold the call: a person may still give this approval.
    Hold(Path),
    /// Use the literals of its alternatives, because the paths before them are in a cycle.
    TakeLiterals,
    /// Answer the call without running it.
    Unrun(Unrun),
}

/// One row of the table: the decision, if the row applies to the call.
type Row<'a> = &'a dyn Fn(&Stranded) -> Option<Leftover>;

/// Applies the first row that matches any stranded call, to all calls that it matches.
pub(super) fn classify(slots: &[ScheduledCall], stranded: &[Stranded], state: &StateLog) -> Vec<(usize, Leftover)> {
    let rows: [Row<'_>; 7] = [
        &|call| call.missing().iter().find_map(gate).map(Leftover::Hold),
        &|call| untaken_branch(slots, call),
        &|call| match &call.lacks {
            Resolution::Unmet { condition } => Some(Leftover::Unrun(Unrun::UnmetCondition(condition.clone()))),
            Resolution::Ready(_) | Resolution::Waiting(_) | Resolution::Invalid(_) => None,
        },
        &|call| dependency_failed(slots, call),
        &|call| literals(slots, stranded, call),
        &|call| cycle(slots, stranded, call),
        &|call| unresolved(slots, call, state),
    ];
    for row in rows {
        let found: Vec<_> = stranded.iter().filter_map(|call| row(call).map(|left| (call.index, left))).collect();
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

impl Stranded {
    fn missing(&self) -> &[Missing] {
        match &self.lacks {
            Resolution::Waiting(missing) => missing,
            Resolution::Ready(_) | Resolution::Unmet { .. } | Resolution::Invalid(_) => &[],
        }
    }
}

fn gate(missing: &Missing) -> Option<Path> {
    missing.any_of.iter().find(|path| path.is_approval()).cloned()
}

/// Calls that declare to write one of the paths in `missing`, as seen by `reader`.
fn producers<'a>(
    slots: &'a [ScheduledCall],
    reader: usize,
    missing: &'a Missing,
) -> impl Iterator<Item = (usize, &'a ScheduledCall)> {
    let instance = slots[reader].instance.as_ref();
    slots.iter().enumerate().filter(move |(_, slot)| missing.any_of.iter().any(|path| slot.declares(path, instance)))
}

fn may_still_come(slots: &[ScheduledCall], reader: usize, missing: &Missing) -> bool {
    producers(slots, reader, missing).any(|(_, slot)| slot.open().is_some())
}

/// Its producer succeeded and wrote another alternative.
fn untaken_branch(slots: &[ScheduledCall], call: &Stranded) -> Option<Leftover> {
    let is_untaken = |missing: &&Missing| {
        let took_another = producers(slots, call.index, missing).any(|(_, slot)| match &slot.progress {
            Progress::Done(Fate::Succeeded { wrote }) => {
                !wrote.iter().any(|wrote| missing.any_of.iter().any(|path| wrote.is_above_or_below(path)))
            }
            Progress::Done(Fate::Failed | Fate::Skipped)
            | Progress::Pending(_)
            | Progress::Running(_)
            | Progress::Waiting(_) => false,
        });
        took_another && !may_still_come(slots, call.index, missing)
    };
    call.missing().iter().find(is_untaken).map(|_| Leftover::Unrun(Unrun::UntakenBranch))
}

/// The call reads from a call that failed or did not run.
fn dependency_failed(slots: &[ScheduledCall], call: &Stranded) -> Option<Leftover> {
    let (missing, at, producer) = call.missing().iter().find_map(|missing| {
        if may_still_come(slots, call.index, missing) {
            return None;
        }
        let ended_without =
            |slot: &ScheduledCall| matches!(slot.progress, Progress::Done(Fate::Failed | Fate::Skipped));
        let found = producers(slots, call.index, missing).find(|(_, slot)| ended_without(slot));
        found.map(|(at, slot)| (missing, at, slot))
    })?;
    let how = if matches!(producer.progress, Progress::Done(Fate::Failed)) { "failed" } else { "did not run" };
    let path = missing.any_of.first().map(ToString::to_string).unwrap_or_default();
    let message =
        format!("call {} of the reply (`{}`) {how}, and this call reads {path} from it", at + 1, producer.tool);
    let details = json!({ "argument": missing.argument, "path": path, "cause": named(producer) });
    Some(error(CallErrorKind::DependencyFailed, message, details))
}

/// The call is in a cycle and has a literal for every missing value. Only the first such call uses its literals:
/// the others may get the value that it writes.
fn literals(slots: &[ScheduledCall], stranded: &[Stranded], call: &Stranded) -> Option<Leftover> {
    let can = |call: &&Stranded| {
        let missing = call.missing();
        !missing.is_empty()
            && missing.iter().all(|missing| missing.has_literal)
            && cycle(slots, stranded, call).is_some()
    };
    let first = stranded.iter().find(can)?;
    (first.index == call.index).then_some(Leftover::TakeLiterals)
}

/// The call waits, directly or indirectly, for itself.
fn cycle(slots: &[ScheduledCall], stranded: &[Stranded], call: &Stranded) -> Option<Leftover> {
    let waits_for = |reader: &Stranded| -> Vec<usize> {
        let producers = reader.missing().iter().flat_map(|missing| producers(slots, reader.index, missing));
        producers.filter(|(_, slot)| slot.open().is_some()).map(|(at, _)| at).collect()
    };
    let reach = |from: usize| -> Vec<usize> {
        let mut reached = Vec::new();
        let mut next = vec![from];
        while let Some(at) = next.pop() {
            let found = stranded.iter().find(|call| call.index == at).map(waits_for).unwrap_or_default();
            for at in found {
                if !reached.contains(&at) {
                    reached.push(at);
                    next.push(at);
                }
            }
        }
        reached
    };
    let reached = reach(call.index);
    if !reached.contains(&call.index) {
        return None;
    }
    let mut members: Vec<usize> = reached.into_iter().filter(|&at| reach(at).contains(&call.index)).collect();
    members.sort_unstable();
    let names: Vec<String> = members.iter().map(|&at| format!("{} (`{}`)", at + 1, slots[at].tool)).collect();
    let message = match names.as_slice() {
        [only] => format!("call {only} of the reply reads what it writes itself"),
        _ => format!("the calls {} of the reply wait for each other", names.join(", ")),
    };
    let members: Vec<_> = members.iter().map(|&at| named(&slots[at])).collect();
    Some(error(CallErrorKind::Cycle, message, json!({ "members": members })))
}

/// No call wrote the path and none will. Paths that an open call may still write are skipped: once that call is
/// answered, its reader is told the cause.
fn unresolved(slots: &[ScheduledCall], call: &Stranded, state: &StateLog) -> Option<Leftover> {
    let missing = call.missing().iter().find(|missing| !may_still_come(slots, call.index, missing))?;
    let path = missing.any_of.first()?;
    let nearest: Vec<String> = state.nearest(path).iter().map(ToString::to_string).collect();
    let message = format!("nothing is at {path}, and no call of the reply writes it");
    let details = json!({ "argument": missing.argument, "path": path.to_string(), "nearest": nearest });
    Some(error(CallErrorKind::UnresolvedReference, message, details))
}

fn named(slot: &ScheduledCall) -> serde_json::Value {
    json!({ "id": slot.id, "_tool": slot.tool })
}

fn error(kind: CallErrorKind, message: String, details: serde_json::Value) -> Leftover {
    Leftover::Unrun(Unrun::Error(CallError::new(kind, message).with_details(details)))
}
