//! Judges what the webhook was told: the end of each root execution, under one id.

use std::collections::{HashMap, HashSet};

use super::{Finding, Findings};
use crate::verify::seen::Evidence;

/// A repeated delivery under the same id is allowed: its answer may have been lost.
pub(super) fn told(evidence: &Evidence, findings: &mut Findings) {
    let Some(told) = &evidence.told else { return };
    let mut ids: HashMap<&str, HashSet<(&str, &str)>> = HashMap::new();
    for one in told {
        ids.entry(one.execution.as_str()).or_default().insert((one.id.as_str(), one.event.as_str()));
    }
    for execution in evidence.executions.iter().filter(|execution| execution.is_root) {
        let expected = match execution.status.as_str() {
            "FINISHED" => "execution.finished",
            "FAILED" => "execution.failed",
            _ => continue,
        };
        let id = execution.id.to_string();
        let ends: Vec<_> = ids.get(id.as_str()).into_iter().flatten().filter(|(_, event)| is_end(event)).collect();
        let what = match ends.as_slice() {
            [(_, event)] if *event == expected => continue,
            [] => "its end was not told".to_owned(),
            [(_, event)] => format!("its end was told as {event}, and it is {}", execution.status),
            several => format!("its end was told under {} ids", several.len()),
        };
        findings.told.push(Finding::of(execution.id, what));
    }
}

fn is_end(event: &str) -> bool {
    matches!(event, "execution.finished" | "execution.failed")
}

#[cfg(test)]
mod tests {
    use longhaul_domain::ExecutionId;
    use longhaul_store::proof::audit::AuditedExecution;
    use uuid::Uuid;

    use super::*;
    use crate::verify::seen::ToldEnd;

    fn found(told: &[(&str, &str)]) -> usize {
        let id = ExecutionId(Uuid::from_u128(1));
        let execution = AuditedExecution {
            id,
            number: 0,
            status: "FINISHED".into(),
            wait_reason: None,
            failure_code: None,
            created_at: chrono::DateTime::UNIX_EPOCH,
            started_at: None,
            finished_at: None,
            turn: None,
            schedule: None,
            is_root: true,
        };
        let one = |(name, event): &(&str, &str)| ToldEnd {
            id: (*name).to_owned(),
            event: (*event).to_owned(),
            execution: id.to_string(),
        };
        let told_ends = Some(told.iter().map(one).collect());
        let evidence = Evidence { executions: vec![execution], told: told_ends, ..Evidence::default() };
        let mut findings = Findings::default();
        super::told(&evidence, &mut findings);
        findings.told.len()
    }

    #[test]
    fn end_is_told_once_under_one_id() {
        let (finished, failed) = ("execution.finished", "execution.failed");
        assert_eq!(found(&[("a", finished)]), 0);
        assert_eq!(found(&[("a", finished), ("a", finished)]), 0, "a repeated delivery");
        assert_eq!(found(&[("a", finished), ("b", "question.asked")]), 0);
        assert_eq!(found(&[]), 1);
        assert_eq!(found(&[("a", finished), ("b", finished)]), 1);
        assert_eq!(found(&[("a", failed)]), 1);
    }
}
