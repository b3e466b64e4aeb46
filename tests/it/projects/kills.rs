//! Deaths of workers: each task is started once for each of its attempts, and the project goes on.

use longhaul_agent::probe::Point;
use longhaul_domain::{ProjectId, ProjectStatus};
use longhaul_store::projects::{Edited, NewPlan};
use longhaul_testkit::model::reply_text;
use serde_json::json;

use super::{Service, prompt_of, task};
use crate::{
    support::{fleet::PATIENCE, wait::eventually},
    worker::journal::Holds,
};

/// Points that a task without tools passes. At the last, its end is committed and its project has not been driven.
const POINTS: [Point; 6] = [
    Point::Claimed,
    Point::Restored,
    Point::BeforeTurn,
    Point::TurnAnswered,
    Point::BeforeConclusion,
    Point::Concluded,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_task_starts_once_wherever_the_worker_dies() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|request| reply_text(&prompt_of(request)));
    let holds = Holds::default();
    let mut projects = Vec::new();
    for point in POINTS {
        let project = service.create(vec![task("a", &[]), task("b", &["a"]), task("c", &["b"])], json!({})).await;
        let first = service.get(&format!("{project}/tasks/a")).await["execution_id"].as_str().unwrap().parse().unwrap();
        holds.plan(first, point, 1);
        projects.push(project);
    }
    let first = service.fleet.worker_with(|builder| builder.probe(holds.probe()));
    holds.all_held().await;
    first.kill().await;
    service.fleet.bury_workers().await;
    let _second = service.fleet.worker();
    for project in &projects {
        service.until(project, "completed").await;
    }
    service.check().await;
    let attempts: i64 =
        sqlx::query_scalar("select sum(attempts) from project_tasks").fetch_one(&service.fleet.db.pool).await.unwrap();
    assert_eq!(attempts, 18, "no task was started twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn project_survives_one_death_after_another() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|request| reply_text(&prompt_of(request)));
    let keys: Vec<String> = (0..20).map(|number| format!("t{number}")).collect();
    let on = |number: usize| keys[number.saturating_sub(3)..number].iter().map(String::as_str).collect::<Vec<_>>();
    let tasks = (0..20).map(|number| task(&keys[number], &on(number))).collect();
    let project = service.create(tasks, json!({})).await;
    for wanted in [3, 7, 11, 15] {
        let worker = service.fleet.worker();
        eventually("tasks are completed", PATIENCE, || async {
            let body = service.get(&project).await;
            if body["tasks"]["completed"].as_i64() >= Some(wanted) { Ok(()) } else { Err(body.to_string()) }
        })
        .await;
        worker.kill().await;
        service.fleet.bury_workers().await;
    }
    let _worker = service.fleet.worker();
    service.until(&project, "completed").await;
    assert!(service.tasks(&project).await.iter().all(|task| task.status == "completed"));
    service.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweep_runs_a_plan_that_was_only_stored() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|request| reply_text(&prompt_of(request)));
    let body = json!({ "goal": "g", "agent": "a", "planner": false });
    let answer = service.api.acme.post("/v1/projects", &body).await;
    let id: ProjectId = answer.body["id"].as_str().unwrap().parse().unwrap();
    let plan = serde_json::from_value(json!({ "tasks": [task("a", &[]), task("b", &["a"])] })).unwrap();
    // Only stored: the process dies behind its commit.
    let new = NewPlan { plan, seen: Some(0), agents: Vec::new(), author: None, may_approve: true };
    assert_eq!(
        service.api.store.put_plan(service.api.tenant, id, new).await.unwrap(),
        Edited::Done { version: 1, status: ProjectStatus::Approved }
    );
    let project = format!("/v1/projects/{id}");
    assert_eq!(service.get(&project).await["status"], "approved");
    let _worker = service.fleet.worker();
    service.until(&project, "completed").await;
    service.check().await;
}
