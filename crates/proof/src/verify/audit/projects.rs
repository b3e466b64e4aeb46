//! Judges projects: each task was started once, after the ends of those that it depends on, and all completed.

use longhaul_store::proof::audit::{AuditedProject, AuditedTask};

use super::{Finding, Findings};
use crate::verify::seen::Evidence;

pub(super) fn projects(evidence: &Evidence, findings: &mut Findings) {
    for project in &evidence.projects {
        let of = |what: String| Finding { execution: None, what: format!("{}: {what}", project.id) };
        match project.status.as_str() {
            "completed" => {}
            "failed" | "cancelled" => findings.failed.push(of(format!("the project is {}", project.status))),
            status => findings.stuck.push(of(format!("the project is {status}"))),
        }
        for task in &project.tasks {
            if task.executions != 1 || task.attempts != 1 {
                let what = format!("task {} has {} executions in {} starts", task.key, task.executions, task.attempts);
                findings.tasks.push(of(what));
            }
            findings.tasks.extend(too_early(project, task).map(of));
        }
    }
}

/// The first task that a task depends on and did not wait for.
fn too_early(project: &AuditedProject, task: &AuditedTask) -> Option<String> {
    let began = task.started_at?;
    let on = task.depends_on.iter().find(|on| {
        let on = project.tasks.iter().find(|other| other.key == **on);
        // Both times are of the database's clock, in transactions that follow each other.
        !on.is_some_and(|on| on.status == "completed" && on.finished_at.is_some_and(|ended| ended <= began))
    })?;
    Some(format!("task {} began at {began}, before the end of {on}", task.key))
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta};
    use longhaul_domain::ProjectId;

    use super::*;

    fn task(key: &str, depends_on: &[&str], from: i64, until: i64) -> AuditedTask {
        let at = |millis| Some(DateTime::UNIX_EPOCH + TimeDelta::milliseconds(millis));
        AuditedTask {
            key: key.into(),
            depends_on: depends_on.iter().map(|&on| on.to_owned()).collect(),
            status: "completed".into(),
            attempts: 1,
            executions: 1,
            started_at: at(from),
            finished_at: at(until),
        }
    }

    /// Numbers of stuck and failed projects, and of tasks out of order, after `doctor` has changed an honest project.
    fn found(doctor: impl FnOnce(&mut AuditedProject)) -> [usize; 3] {
        let tasks = vec![task("a", &[], 0, 100), task("b", &["a"], 100, 200)];
        let mut project =
            AuditedProject { id: ProjectId(uuid::Uuid::nil()), number: 9, status: "completed".into(), tasks };
        doctor(&mut project);
        let mut findings = Findings::default();
        projects(&Evidence { projects: vec![project], ..Evidence::default() }, &mut findings);
        [findings.stuck.len(), findings.failed.len(), findings.tasks.len()]
    }

    #[test]
    fn tasks_out_of_order_or_doubled_are_found() {
        assert_eq!(found(|_| {}), [0, 0, 0]);
        assert_eq!(found(|project| project.status = "in_progress".into()), [1, 0, 0]);
        assert_eq!(found(|project| project.status = "failed".into()), [0, 1, 0]);
        assert_eq!(found(|project| project.tasks[1] = task("b", &["a"], 99, 200)), [0, 0, 1], "it began too early");
        assert_eq!(found(|project| project.tasks[0].status = "failed".into()), [0, 0, 1], "after a failed task");
        assert_eq!(found(|project| project.tasks[1].executions = 2), [0, 0, 1], "a start with two executions");
        assert_eq!(found(|project| project.tasks[1].attempts = 2), [0, 0, 1], "a start without an execution");
    }
}
