//! Projects (docs/design/projects.md), served by an API and workers over one database.

mod approval;
mod changes;
mod kills;
mod limits;
mod planner;
mod session;
mod strategies;

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use longhaul_api::ApiOptions;
use longhaul_store::tenants::api_keys::Scope;
use longhaul_testkit::model::Captured;
use serde_json::{Value, json};

use crate::{
    support::{
        api::{EVERYDAY, TestApi},
        fleet::{Fleet, PATIENCE, agent},
        wait::eventually,
    },
    worker::journal::quick_fleet,
};

/// An API and a fleet over one database, with the agents `a` and `b`.
struct Service {
    fleet: Fleet,
    api: TestApi,
}

impl Service {
    async fn start() -> Self {
        Self::limited(10).await
    }

    /// A service that runs at most this many projects of a tenant at a time.
    async fn limited(max_running_projects: u32) -> Self {
        let mut fleet = quick_fleet().await;
        // A worker that stands still beside load keeps its lease: deaths are the tests' own.
        fleet.set("LONGHAUL__WORKER__LEASE_SECONDS", "60");
        fleet.set("WORKFLOW_MAX_CONCURRENT_RUNS", &max_running_projects.to_string());
        for key in ["a", "b"] {
            fleet.store.put_shared_agent(&agent(key)).await.unwrap();
        }
        let options = ApiOptions { max_running_projects, ..ApiOptions::default() };
        let mut api = TestApi::over(&fleet, options).await;
        api.acme = api.caller("acme", &[EVERYDAY, &[Scope::ApprovalsDecide]].concat()).await;
        Self { fleet, api }
    }

    /// Creates a project with this plan; returns its path.
    async fn create(&self, tasks: Vec<Value>, more: Value) -> String {
        self.create_with(json!({ "tasks": tasks }), more).await
    }

    async fn create_with(&self, plan: Value, more: Value) -> String {
        let mut body = json!({ "goal": "a report", "agent": "a", "plan": plan });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = self.api.acme.post("/v1/projects", &body).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        format!("/v1/projects/{}", answer.body["id"].as_str().unwrap())
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.api.acme.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.body
    }

    /// Does something to a project; fails unless that is allowed.
    async fn tell(&self, path: &str) -> Value {
        let answer = self.api.acme.post(path, &json!({})).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.body
    }

    async fn until(&self, project: &str, status: &str) -> Value {
        eventually(&format!("the project is {status}"), PATIENCE, || async {
            let body = self.get(project).await;
            if body["status"] == status { Ok(body) } else { Err(body.to_string()) }
        })
        .await
    }

    async fn tasks(&self, project: &str) -> Vec<Task> {
        let body = self.get(&format!("{project}/tasks?limit=1000")).await;
        body["tasks"].as_array().unwrap().iter().map(Task::read).collect()
    }

    /// Statuses by key.
    async fn statuses(&self, project: &str) -> BTreeMap<String, String> {
        self.tasks(project).await.into_iter().map(|task| (task.key, task.status)).collect()
    }

    async fn until_task(&self, project: &str, key: &str, status: &str) {
        eventually(&format!("task {key} is {status}"), PATIENCE, || async {
            let body = self.get(&format!("{project}/tasks/{key}")).await;
            if body["status"] == status { Ok(()) } else { Err(body.to_string()) }
        })
        .await;
    }

    async fn events(&self, project: &str) -> Vec<String> {
        let body = self.get(&format!("{project}/events?limit=1000")).await;
        let events = body["events"].as_array().unwrap();
        for (expected, event) in (1..).zip(events) {
            assert_eq!(event["seq"], json!(expected), "the events have a gap");
        }
        events.iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
    }

    /// Each task has as many executions as it was started times, and its project's numbers are those of its tasks.
    async fn check(&self) {
        let astray = "select (select count(*) from project_tasks t where t.attempts <> (
                 select count(*) from executions e where e.project_id = t.project_id and e.metadata ->> 'task' = t.key
             ))
             + (select count(*) from project_tasks t join executions e on e.id = t.execution_id
                 where (t.status = 'running') <> (e.finished_at is null) and t.status <> 'pending')
             + (select count(*) from projects p where array[p.pending, p.running, p.completed, p.failed, p.skipped,
                     p.cancelled]
                 <> (select array[count(*) filter (where status = 'pending'),
                     count(*) filter (where status = 'running'), count(*) filter (where status = 'completed'), \
                     count(*) filter (where status = 'failed'),
                     count(*) filter (where status = 'skipped'), count(*) filter (where status = 'cancelled')]::int[]
                     from project_tasks t where t.project_id = p.id))
             + (select count(*) from project_phases f where f.open <> (
                 select count(*) from project_tasks t where t.project_id = f.project_id and t.phase = f.position
                     and t.status in ('pending', 'running')))
             + (select count(*) from executions e
                 where e.project_id is not null and (e.depth <> 0 or e.parent_id is not null))
             + (select count(*) from project_tasks t where t.remaining_deps <> (
                 select count(*) from project_tasks d where d.project_id = t.project_id and d.key = any (t.depends_on)
                     and d.status <> 'completed'))";
        // The end of a task is a reaction to that of its execution.
        eventually("starts, numbers, phases and dependencies fit their tasks", PATIENCE, async || {
            let astray: i64 = sqlx::query_scalar(astray).fetch_one(&self.fleet.db.pool).await.unwrap();
            if astray == 0 { Ok(()) } else { Err(astray) }
        })
        .await;
    }
}

/// A task as the API shows it.
#[derive(Debug)]
struct Task {
    key: String,
    status: String,
    depends_on: Vec<String>,
    started_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
}

impl Task {
    fn read(of: &Value) -> Self {
        let time = |name: &str| of[name].as_str().map(|text| text.parse().unwrap());
        let on = of["depends_on"].as_array().unwrap().iter().map(|key| key.as_str().unwrap().to_owned());
        Self {
            key: of["key"].as_str().unwrap().to_owned(),
            status: of["status"].as_str().unwrap().to_owned(),
            depends_on: on.collect(),
            started_at: time("started_at"),
            finished_at: time("finished_at"),
        }
    }
}

/// A task of a plan, whose prompt is its key.
fn task(key: &str, depends_on: &[&str]) -> Value {
    json!({ "key": key, "prompt": key, "depends_on": depends_on })
}

/// Text of the task that a request is for.
pub(crate) fn prompt_of(request: &Captured) -> String {
    let messages = request.messages().iter().filter(|message| message["role"] == "user");
    messages.filter_map(|message| message["content"].as_str()).next_back().unwrap_or_default().to_owned()
}
