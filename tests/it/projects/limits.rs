//! Limits of projects: how many run, their budgets and deadlines, and the requests that make them.

use std::time::Duration;

use longhaul_api::ApiOptions;
use longhaul_domain::ProjectId;
use longhaul_store::{history::prune::Retention, tenants::api_keys::Scope};
use longhaul_testkit::model::{Gate, ev_gate, reply_text};
use serde_json::json;

use super::{Service, prompt_of, task};
use crate::support::{
    api::{EVERYDAY, TestApi},
    copies,
    fleet::agent,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eleventh_project_waits_as_approved_for_a_place() {
    let service = Service::start().await;
    let gate = Gate::new();
    let of_model = gate.clone();
    service.fleet.llm.answer_with(move |_| reply_text("done").before(ev_gate(&of_model)));
    let _worker = service.fleet.worker();
    let mut projects = Vec::new();
    for _ in 0..11 {
        projects.push(service.create(vec![task("a", &[])], json!({})).await);
    }
    for project in &projects[..10] {
        service.until_task(project, "a", "running").await;
    }
    assert_eq!(service.get(&projects[10]).await["status"], "approved");
    assert_eq!(service.statuses(&projects[10]).await["a"], "pending");
    let other = service.api.caller("beta", EVERYDAY).await;
    let body = json!({ "goal": "g", "agent": "a", "plan": { "tasks": [task("a", &[])] } });
    assert_eq!(other.post("/v1/projects", &body).await.body["status"], "in_progress", "each tenant has its own");
    // A paused one has no place; it waits again when it resumes.
    service.tell(&format!("{}/pause", projects[0])).await;
    service.until_task(&projects[10], "a", "running").await;
    assert_eq!(service.tell(&format!("{}/resume", projects[0])).await["status"], "approved");
    gate.open();
    for project in &projects {
        service.until(project, "completed").await;
    }
    service.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budget_is_that_of_all_tasks_together() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|request| reply_text(&prompt_of(request)));
    let _worker = service.fleet.worker();
    let tasks = (0..6).map(|number| task(&format!("t{number}"), &[])).collect();
    let budget = json!({ "max_model_calls": 4, "on_exhausted": "fail" });
    let more = json!({ "budget": budget, "execution_strategy": "sequential" });
    let project = service.create(tasks, more).await;
    let body = service.until(&project, "failed").await;
    assert_eq!((&body["tasks"]["completed"], &body["tasks"]["failed"]), (&json!(4), &json!(2)));
    assert_eq!(service.get(&format!("{project}/tasks/t5")).await["failure_code"], "budget_exhausted");
    assert_eq!(service.fleet.llm.requests().len(), 4);
    assert_eq!(
        body["budget"]["spent_model_calls"].as_i64().or(body["budget"]["spent"]["model_calls"].as_i64()),
        Some(4),
        "{}",
        body["budget"]
    );
    let raised = service.api.acme.post(&format!("{project}/budget"), &json!({ "max_model_calls": 10 })).await;
    assert_eq!(raised.status, 200, "{}", raised.text);
    for key in ["t4", "t5"] {
        service.tell(&format!("{project}/tasks/{key}/retry")).await;
    }
    service.until(&project, "completed").await;
    service.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn project_ends_at_its_deadline() {
    let service = Service::start().await;
    let gate = Gate::new();
    let of_model = gate.clone();
    service.fleet.llm.answer_with(move |_| reply_text("done").before(ev_gate(&of_model)));
    let _worker = service.fleet.worker();
    let tasks = vec![task("a", &[]), task("b", &["a"])];
    let project = service.create(tasks, json!({ "deadline_seconds": 3_600 })).await;
    service.until_task(&project, "a", "running").await;
    service.fleet.advance(Duration::from_secs(7_200)).await;
    let body = service.until(&project, "failed").await;
    assert_eq!(body["failure_code"], "deadline_exceeded");
    // It is skipped if the end of the first is seen before the deadline is.
    let statuses = service.statuses(&project).await;
    assert!(["cancelled", "skipped"].contains(&statuses["b"].as_str()), "{statuses:?}");
    service.until_task(&project, "a", "failed").await;
    assert_eq!(service.get(&format!("{project}/tasks/a")).await["failure_code"], "deadline_exceeded");
    let refused = service.api.acme.post(&format!("{project}/tasks/a/retry"), &json!({})).await;
    assert_eq!(refused.error(), (409, "project_state"));
    service.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_project_leaves_no_text() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|_| reply_text("secret answer"));
    let _worker = service.fleet.worker();
    let project = service.create(vec![task("secret", &[])], json!({ "needs_approval": true })).await;
    let early = service.api.acme.delete(&project).await;
    assert_eq!(early.error(), (409, "project_state"));
    service.tell(&format!("{project}/approve")).await;
    service.until(&project, "completed").await;
    let execution = service.get(&format!("{project}/tasks/secret")).await["execution_id"].as_str().unwrap().to_owned();
    let gate = Gate::new();
    let of_model = gate.clone();
    service.fleet.llm.answer_with(move |_| reply_text("secret answer").before(ev_gate(&of_model)));
    let fork = service.api.acme.post(&format!("/v1/executions/{execution}/fork"), &json!({ "from_step": 2 })).await;
    assert_eq!(fork.status, 201, "{}", fork.text);
    assert_eq!(
        service.api.acme.delete(&project).await.error(),
        (409, "execution_not_ended"),
        "the fork is erased with it"
    );
    gate.open();
    service.fleet.ended(fork.body["id"].as_str().unwrap().parse().unwrap()).await;
    assert_eq!(service.api.acme.delete(&project).await.status, 204);
    assert_eq!(service.api.acme.get(&project).await.error(), (404, "not_found"));
    let left: i64 = sqlx::query_scalar(
        "select (select count(*) from execution_payloads where input::text like '%secret%' \
             or output::text like '%secret%')
             + (select count(*) from project_tasks) + (select count(*) from project_events)
             + (select count(*) from project_signals) + (select count(*) from ends)",
    )
    .fetch_one(&service.fleet.db.pool)
    .await
    .unwrap();
    assert_eq!(left, 0);
    let copies = copies::in_database(&service.fleet.db.pool, "secret answer").await;
    assert_eq!(copies, Vec::<String>::new());
    assert_eq!(service.get(&format!("/v1/executions/{execution}")).await["status"], "FINISHED", "its numbers stay");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erased_output_is_named_as_such() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|_| reply_text("secret answer"));
    let _worker = service.fleet.worker();
    let of = |key: &str, prompt: &str, phase: &str, on: &[&str]| {
        json!({
            "key": key, "prompt": prompt, "phase": phase, "depends_on": on
        })
    };
    let plan = json!({
        "phases": [{ "name": "one", "gate": true }, { "name": "two" }],
        "tasks": [of("a", "a", "one", &[]), of("b", "It was: {{ tasks.a.output }}", "two", &["a"])],
    });
    let project = service.create_with(plan, json!({})).await;
    service.until(&project, "paused").await;
    let execution = service.get(&format!("{project}/tasks/a")).await["execution_id"].as_str().unwrap().to_owned();
    assert_eq!(service.api.acme.delete(&format!("/v1/executions/{execution}/content")).await.status, 200);
    service.tell(&format!("{project}/continue")).await;
    service.until(&project, "completed").await;
    let asked = service.fleet.llm.requests();
    assert_eq!(prompt_of(asked.last().unwrap()), "It was: [the output was erased]");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn projects_are_pruned_with_their_executions() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|_| reply_text("done"));
    let worker = service.fleet.worker();
    let budget = json!({ "budget": { "max_model_calls": 9 } });
    let old = service.create(vec![task("a", &[])], budget).await;
    service.until(&old, "completed").await;
    let open = service.create(vec![task("a", &[])], json!({ "needs_approval": true })).await;
    service.fleet.advance(Duration::from_secs(40 * 24 * 3_600)).await;
    let new = service.create(vec![task("a", &[])], json!({})).await;
    service.until(&new, "completed").await;
    worker.drain().await;
    let retention = Retention::new(Duration::from_secs(31 * 24 * 3_600)).unwrap();
    assert_eq!(service.fleet.store.prune(retention).await.unwrap().executions, 1);
    assert_eq!(service.api.acme.get(&old).await.error(), (404, "not_found"));
    for kept in [&open, &new] {
        service.get(kept).await;
    }
    let budgets: i64 =
        sqlx::query_scalar("select count(*) from budgets").fetch_one(&service.fleet.db.pool).await.unwrap();
    assert_eq!(budgets, 0);
}

/// The sweep drives those with signals; most of them it cannot drive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_project_holds_up_no_other() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|_| reply_text("done"));
    let mut projects = Vec::new();
    for _ in 0..9 {
        projects.push(service.create(vec![task("a", &[])], json!({ "needs_approval": true })).await);
    }
    let sound = projects[4].rsplit('/').next().unwrap().parse::<ProjectId>().unwrap();
    let mut transaction = service.fleet.db.pool.begin().await.unwrap();
    for statement in [
        "update projects set status = 'in_progress', started_at = longhaul_now()",
        "insert into project_signals (project_id) select id from projects",
    ] {
        sqlx::query(statement).execute(&mut *transaction).await.unwrap();
    }
    sqlx::query("delete from project_agents where project_id <> $1")
        .bind(sound.0)
        .execute(&mut *transaction)
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    let _worker = service.fleet.worker();
    service.until(&projects[4], "completed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_of_a_project_are_bounded() {
    let service = Service::start().await;
    let keys: Vec<String> = (0..65).map(|number| format!("agent{number}")).collect();
    for key in &keys {
        service.fleet.store.put_shared_agent(&agent(key)).await.unwrap();
    }
    let of = |key: &String| json!({ "key": key, "prompt": "p", "agent": key });
    let project = service.create(vec![of(&keys[0])], json!({ "needs_approval": true })).await;
    let put = async |keys: &[String]| {
        let tasks: Vec<_> = keys.iter().map(of).collect();
        service.api.acme.put(&format!("{project}/plan"), &json!({ "plan": { "tasks": tasks } })).await
    };
    assert_eq!(put(&keys[..40]).await.status, 200);
    let refused = put(&keys[40..]).await;
    assert_eq!((refused.error(), refused.paths()), ((422, "invalid_request"), vec!["/plan/tasks"]), "{}", refused.text);
    assert_eq!(put(&keys[40..60]).await.status, 200, "a refused plan adds no agents");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn same_key_gives_the_same_project() {
    let service = Service::start().await;
    let acme = &service.api.acme;
    let body = json!({ "goal": "g", "agent_id": "a", "planner": false });
    let key = [("Idempotency-Key", "k1")];
    let first = acme.post_as("/v1/projects", &body, &key).await;
    assert_eq!((first.status, first.body["status"].as_str()), (201, Some("pending")), "{}", first.text);
    let again = acme.post_as("/v1/projects", &body, &key).await;
    assert_eq!((again.status, &again.body["id"]), (200, &first.body["id"]));
    // The agent may be gone, and a process may know nothing of it any more.
    sqlx::query("update agent_versions set removed_at = longhaul_now()").execute(&service.fleet.db.pool).await.unwrap();
    let later = TestApi::over(&service.fleet, ApiOptions::default()).await;
    let again = later.acme.post_as("/v1/projects", &body, &key).await;
    assert_eq!((again.status, &again.body["id"]), (200, &first.body["id"]), "{}", again.text);
    sqlx::query("update agent_versions set removed_at = null").execute(&service.fleet.db.pool).await.unwrap();
    let other = json!({ "goal": "another", "agent": "a", "planner": false });
    assert_eq!(acme.post_as("/v1/projects", &other, &key).await.error(), (409, "idempotency_key_reused"));
    let project = format!("/v1/projects/{}", first.body["id"].as_str().unwrap());
    let plan = json!({ "plan": { "tasks": [task("a", &[])] } });
    assert_eq!(acme.put(&format!("{project}/plan"), &plan).await.status, 200);
    assert_eq!(service.get(&project).await["status"], "in_progress");
    let beta = service.api.caller("beta", &[EVERYDAY, &[Scope::ApprovalsDecide]].concat()).await;
    for path in ["", "/plan", "/tasks", "/tasks/a", "/events"] {
        assert_eq!(beta.get(&format!("{project}{path}")).await.error(), (404, "not_found"), "{path}");
    }
    for verb in ["approve", "pause", "resume", "continue", "cancel", "tasks/a/retry"] {
        assert_eq!(beta.post(&format!("{project}/{verb}"), &json!({})).await.error(), (404, "not_found"), "{verb}");
    }
    assert_eq!(beta.put(&format!("{project}/plan"), &plan).await.status, 404);
    assert_eq!(beta.get("/v1/projects").await.body["projects"], json!([]));
    assert_eq!(service.get("/v1/projects?status=in_progress").await["projects"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_project_is_refused_by_name_and_stores_nothing() {
    let service = Service::start().await;
    let refused = async |plan: serde_json::Value, more: serde_json::Value| {
        let mut body = json!({ "goal": "g", "agent": "a", "plan": plan });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        service.api.acme.post("/v1/projects", &body).await
    };
    let circle = refused(json!({ "tasks": [task("x", &["y"]), task("y", &["x"])] }), json!({})).await;
    assert_eq!((circle.error(), circle.paths()), ((422, "invalid_request"), vec!["/plan/tasks"]), "{}", circle.text);
    assert!(circle.text.contains("`x` → `y` → `x`"), "{}", circle.text);
    let unknown = refused(json!({ "tasks": [task("x", &["nope"])] }), json!({})).await;
    assert!(unknown.text.contains("depends on `nope`"), "{}", unknown.text);
    let agent = refused(json!({ "tasks": [{"key": "x", "prompt": "p", "agent": "nope"}] }), json!({})).await;
    assert_eq!(agent.error(), (422, "unknown_agent"));
    let many: Vec<_> = (0..1_001).map(|number| task(&format!("t{number}"), &[])).collect();
    assert_eq!(refused(json!({ "tasks": many }), json!({})).await.status, 422);
    let cap = refused(json!({ "tasks": [task("a", &[])] }), json!({ "max_parallel_tasks": 0 })).await;
    assert_eq!(cap.paths(), ["/max_parallel_tasks"]);
    assert_eq!(service.get("/v1/projects").await["projects"], json!([]));
}
