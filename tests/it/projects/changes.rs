//! What people do with a project, and what a failed task does to the others.

use longhaul_store::tenants::api_keys::Scope;
use longhaul_testkit::model::{Gate, ev_gate, reply_status, reply_text};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use super::{Service, prompt_of, task};

/// A model that fails the tasks in `broken` and holds those whose prompt begins with `slow`.
#[derive(Clone, Default)]
struct Model {
    broken: Arc<Mutex<BTreeSet<String>>>,
    gate: Gate,
}

impl Model {
    async fn serve(max_running: u32) -> (Self, Service) {
        let (model, service) = (Self::default(), Service::limited(max_running).await);
        let of_server = model.clone();
        service.fleet.llm.answer_with(move |request| {
            let prompt = prompt_of(request);
            if of_server.broken.lock().unwrap().contains(&prompt) {
                return reply_status(400, "no");
            }
            let reply = reply_text(&format!("done: {prompt}"));
            if prompt.starts_with("slow") { reply.before(ev_gate(&of_server.gate)) } else { reply }
        });
        (model, service)
    }

    fn breaks(&self, prompt: &str) {
        self.broken.lock().unwrap().insert(prompt.to_owned());
    }

    fn mends(&self, prompt: &str) {
        self.broken.lock().unwrap().remove(prompt);
    }
}

fn status<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_task_skips_dependants_until_its_retry() {
    let (model, service) = Model::serve(10).await;
    model.breaks("a");
    model.breaks("x");
    let _worker = service.fleet.worker();
    let mut tasks = vec![task("a", &[]), task("b", &["a"]), task("c", &["b"]), task("x", &[]), task("y", &["x", "c"])];
    tasks.extend([task("other", &[]), task("last", &["other"])]);
    let project = service.create(tasks, json!({})).await;
    let body = service.until(&project, "failed").await;
    assert_eq!(body["failure_code"], "task_failed");
    let statuses = json!(service.statuses(&project).await);
    let expected = json!({"a": "failed", "b": "skipped", "c": "skipped", "x": "failed", "y": "skipped",
        "other": "completed", "last": "completed"});
    assert_eq!(statuses, expected, "independent branches go on");
    service.check().await;
    let refused = service.api.acme.post(&format!("{project}/tasks/b/retry"), &json!({})).await;
    assert_eq!(refused.error(), (409, "task_not_failed"));

    model.mends("a");
    service.tell(&format!("{project}/tasks/a/retry")).await;
    let body = service.until(&project, "failed").await;
    let statuses = json!(service.statuses(&project).await);
    assert_eq!((status(&statuses, "c"), status(&statuses, "y")), ("completed", "skipped"), "x still blocks y");
    assert_eq!(body["tasks"]["failed"], 1);
    model.mends("x");
    service.tell(&format!("{project}/tasks/x/retry")).await;
    service.until(&project, "completed").await;
    let task = service.get(&format!("{project}/tasks/a")).await;
    assert_eq!(task["attempts"], 2);
    service.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_task_is_repeated_as_often_as_it_says() {
    let (model, service) = Model::serve(10).await;
    model.breaks("a");
    let _worker = service.fleet.worker();
    let often = json!({"key": "a", "prompt": "a", "retries": 2});
    let project = service.create(vec![often], json!({})).await;
    service.until(&project, "failed").await;
    assert_eq!(service.get(&format!("{project}/tasks/a")).await["attempts"], 3);
    let events = service.events(&project).await;
    assert_eq!(events.iter().filter(|kind| *kind == "task_retrying").count(), 2);
    service.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edit_keeps_what_has_started_and_replaces_the_rest() {
    let (model, service) = Model::serve(10).await;
    let _worker = service.fleet.worker();
    let tasks = vec![task("a", &[]), task("slow", &["a"]), task("c", &["slow"]), task("d", &[])];
    let project = service.create(tasks, json!({ "execution_strategy": "sequential" })).await;
    service.until_task(&project, "slow", "running").await;
    let put = async |plan: Value, version: i64| {
        service.api.acme.put(&format!("{project}/plan"), &json!({ "plan": plan, "version": version })).await
    };
    let other = json!({"key": "slow", "prompt": "another", "depends_on": ["a"]});
    let refused = put(json!({ "tasks": [other] }), 1).await;
    assert_eq!(refused.error(), (409, "task_started"));
    assert!(refused.text.contains("`slow` is `running`"), "{}", refused.text);
    let circle = put(json!({ "tasks": [task("x", &["y"]), task("y", &["x"])] }), 1).await;
    assert_eq!(circle.error(), (422, "invalid_request"));
    assert!(circle.text.contains("`x` → `y` → `x`"), "{}", circle.text);
    assert_eq!(put(json!({ "tasks": [task("e", &[])] }), 7).await.error(), (409, "plan_changed"));
    assert_eq!(service.statuses(&project).await.len(), 4, "a refused plan changes nothing");

    let done = put(json!({ "tasks": [task("e", &["slow", "a"]), task("f", &["e"]), task("slow", &["a"])] }), 1).await;
    assert_eq!(done.status, 200, "{}", done.text);
    assert_eq!(done.body["version"], 2);
    model.gate.open();
    service.until(&project, "completed").await;
    let keys: Vec<String> = service.statuses(&project).await.into_keys().collect();
    assert_eq!(keys, ["a", "e", "f", "slow"]);
    service.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_project_starts_nothing_until_it_resumes() {
    let (model, service) = Model::serve(10).await;
    let _worker = service.fleet.worker();
    let project = service.create(vec![task("slow", &[]), task("b", &["slow"])], json!({})).await;
    service.until_task(&project, "slow", "running").await;
    assert_eq!(service.tell(&format!("{project}/pause")).await["pause_reason"], "request");
    model.gate.open();
    service.until_task(&project, "slow", "completed").await;
    assert_eq!(service.statuses(&project).await["b"], "pending");
    assert_eq!(service.get(&project).await["status"], "paused");
    let refused = service.api.acme.post(&format!("{project}/continue"), &json!({})).await;
    assert_eq!(refused.error(), (409, "project_state"));
    service.tell(&format!("{project}/resume")).await;
    service.until(&project, "completed").await;
    service.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_lets_running_tasks_finish_or_ends_them() {
    let (model, service) = Model::serve(10).await;
    let _worker = service.fleet.worker();
    let plan = || vec![task("slow", &[]), task("b", &["slow"])];
    let finishes = service.create(plan(), json!({})).await;
    let ends = service.create(plan(), json!({})).await;
    for project in [&finishes, &ends] {
        service.until_task(project, "slow", "running").await;
    }
    assert_eq!(service.tell(&format!("{finishes}/cancel")).await["status"], "cancelled");
    let cancel = json!({ "running_tasks": "cancel" });
    assert_eq!(service.api.acme.post(&format!("{ends}/cancel"), &cancel).await.body["status"], "cancelled");
    service.until_task(&ends, "slow", "cancelled").await;
    assert_eq!(service.statuses(&finishes).await["slow"], "running");
    model.gate.open();
    service.until_task(&finishes, "slow", "completed").await;
    for project in [&finishes, &ends] {
        assert_eq!(service.statuses(project).await["b"], "cancelled");
        let refused = service.api.acme.post(&format!("{project}/tasks/slow/retry"), &json!({})).await;
        assert_eq!(refused.status, 409, "{}", refused.text);
        assert_eq!(service.api.acme.post(&format!("{project}/cancel"), &json!({})).await.code(), "project_state");
    }
    service.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gate_waits_between_phases_for_a_person() {
    let (_model, service) = Model::serve(10).await;
    let _worker = service.fleet.worker();
    let of = |key: &str, phase: &str| json!({"key": key, "prompt": key, "phase": phase});
    let plan = json!({
        "phases": [{"name": "one", "gate": true}, {"name": "two", "execution_strategy": "sequential"},
            {"name": "three"}],
        "tasks": [of("c", "three"), of("a", "one"), of("b", "two"), of("b2", "two")],
    });
    let project = service.create_with(plan, json!({ "needs_approval": true })).await;
    assert_eq!(service.get(&project).await["status"], "awaiting_approval");
    assert_eq!(service.statuses(&project).await["a"], "pending");
    service.tell(&format!("{project}/approve")).await;
    let body = service.until(&project, "paused").await;
    assert_eq!((status(&body, "pause_reason"), status(&body, "phase")), ("gate", "one"));
    let statuses = service.statuses(&project).await;
    assert_eq!((statuses["a"].as_str(), statuses["b"].as_str()), ("completed", "pending"));
    assert_eq!(service.api.acme.post(&format!("{project}/resume"), &json!({})).await.code(), "project_state");
    service.tell(&format!("{project}/continue")).await;
    let body = service.until(&project, "completed").await;
    assert_eq!(body["phase"], "three");
    let mut tasks = service.tasks(&project).await;
    tasks.sort_by_key(|task| task.started_at);
    let keys: Vec<&str> = tasks.iter().map(|task| task.key.as_str()).collect();
    assert_eq!(keys, ["a", "b", "b2", "c"]);
    assert!(tasks[1].finished_at <= tasks[2].started_at, "the phase's own strategy");
    service.check().await;
}

/// A key that put a plan or retried a task wrote what its tasks do, and approves none of their calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_have_the_authors_of_their_plan() {
    let (model, service) = Model::serve(10).await;
    model.breaks("b");
    let editor = service.api.caller("acme", Scope::ALL).await;
    let helper = service.api.caller("acme", Scope::ALL).await;
    let project = service.create(vec![task("a", &[])], json!({ "needs_approval": true })).await;
    let plan = json!({ "plan": { "tasks": [task("b", &[])] } });
    let put = editor.put(&format!("{project}/plan"), &plan).await;
    assert_eq!(put.status, 200, "{}", put.text);
    let _worker = service.fleet.worker();
    service.tell(&format!("{project}/approve")).await;
    service.until(&project, "failed").await;
    model.mends("b");
    let retried = helper.post(&format!("{project}/tasks/b/retry"), &json!({})).await;
    assert_eq!(retried.status, 200, "{}", retried.text);
    service.until(&project, "completed").await;
    let ids: Vec<uuid::Uuid> =
        sqlx::query_scalar("select id from executions order by id").fetch_all(&service.fleet.db.pool).await.unwrap();
    let authors = async |id: uuid::Uuid| service.api.store.submitters_of(id.into(), false).await.unwrap().len();
    assert_eq!((authors(ids[0]).await, authors(ids[1]).await), (2, 3), "the creator, the editor, then the helper");
}
