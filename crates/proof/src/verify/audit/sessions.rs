//! Judges sessions: each message has its place, and every request and transcript holds the messages before it.

use std::collections::{HashMap, HashSet};

use longhaul_domain::{ExecutionId, SessionId};
use longhaul_store::proof::audit::AuditedExecution;

use super::{Finding, Findings, Index, numbered};
use crate::verify::{model_server::marked_number, seen::Evidence};

/// The messages of each session, in order.
pub(super) fn messages(evidence: &Evidence) -> HashMap<SessionId, Vec<&AuditedExecution>> {
    let mut sessions: HashMap<_, Vec<_>> = HashMap::new();
    for execution in &evidence.executions {
        if let Some(turn) = execution.turn {
            sessions.entry(turn.session).or_default().push(execution);
        }
    }
    for messages in sessions.values_mut() {
        messages.sort_by_key(|message| message.turn.map(|turn| turn.number));
    }
    sessions
}

impl Index<'_> {
    /// Returns true if a later message of the session, or a later tick of the schedule, may have cancelled this one.
    pub(super) fn is_interrupted(&self, execution: &AuditedExecution) -> bool {
        let Some(own) = execution.turn else { return self.superseded.contains(&execution.id) };
        let later = self.sessions.get(&own.session).into_iter().flatten().filter_map(|message| message.turn);
        execution.failure_code.as_deref() == Some("cancelled")
            && later.into_iter().any(|turn| turn.interrupts && turn.number > own.number)
    }

    /// The same for an execution by its id.
    pub(super) fn was_interrupted(&self, id: ExecutionId) -> bool {
        let messages = self.sessions.values().flatten();
        self.superseded.contains(&id) || messages.into_iter().any(|one| one.id == id && self.is_interrupted(one))
    }
}

/// Each request of a message, and each transcript, must hold the messages before it once and in order.
pub(super) fn transcripts(evidence: &Evidence, index: &Index<'_>, findings: &mut Findings) {
    requests(evidence, index, findings);
    let turns = evidence.steps.iter().filter(|step| step.kind == "turn" && step.state == "live");
    // In order of their position: the last turn of each execution is its answer.
    let answers: HashMap<ExecutionId, &str> =
        turns.map(|step| (step.execution, step.preview.as_deref().unwrap_or_default())).collect();
    let folded: HashMap<_, _> = evidence.transcripts.iter().map(|one| (one.session, &one.messages)).collect();
    for (session, sent) in &index.sessions {
        let texts: &[(ExecutionId, String)] = folded.get(session).map_or(&[], |messages| messages.as_slice());
        let marks: Vec<i64> = texts.iter().filter_map(|(_, text)| marked_number(text)).collect();
        if let Some(what) = misplaced(&marks, sent) {
            findings.transcripts.push(Finding { execution: None, what: format!("transcript of {session}: {what}") });
        }
        for message in sent.iter().filter(|message| message.status == "FINISHED") {
            let own = texts.iter().filter(|(execution, _)| *execution == message.id);
            let last = own.filter_map(|(_, text)| numbered(text)).next_back();
            if last != answers.get(&message.id).copied().and_then(numbered) {
                let what = format!("its answer is not the last of its messages in the transcript of {session}");
                findings.transcripts.push(Finding::of(message.id, what));
            }
        }
    }
}

fn requests(evidence: &Evidence, index: &Index<'_>, findings: &mut Findings) {
    let places: HashMap<i64, (&[&AuditedExecution], usize)> = index
        .sessions
        .values()
        .flat_map(|sent| sent.iter().enumerate().map(|(at, message)| (message.number, (sent.as_slice(), at))))
        .collect();
    let mut found = HashSet::new();
    for asked in &evidence.asked {
        let what = match places.get(&asked.execution) {
            Some((sent, at)) => misplaced(&asked.before, &sent[..*at]),
            None if asked.before.is_empty() => None,
            None => Some("it is no message of a session, and its request has messages before it".to_owned()),
        };
        if let Some(what) = what.filter(|_| found.insert(asked.execution)) {
            findings.transcripts.push(index.finding(asked.execution, format!("its request: {what}")));
        }
    }
}

/// The way in which `marks` are not the numbers of `sent` in order. One that was cancelled before it began may be
/// absent.
fn misplaced(marks: &[i64], sent: &[&AuditedExecution]) -> Option<String> {
    let mut rest = marks.iter();
    let mut next = rest.next();
    for message in sent {
        if next == Some(&message.number) {
            next = rest.next();
        } else if message.status == "FINISHED" || message.started_at.is_some() {
            return Some(format!("message {} is missing or out of its place among {marks:?}", message.number));
        }
    }
    next.map(|extra| format!("message {extra} is doubled or out of its place among {marks:?}"))
}
