//! The planner: an execution whose answer is the plan.

use longhaul_testkit::model::{Captured, Gate, ev_gate, reply_text};
use serde_json::{Value, json};

use super::{Service, prompt_of, task};

fn is_planner(request: &Captured) -> bool {
    request.messages().iter().any(|message| message.to_string().contains("Make a plan of tasks"))
}

async fn plans(service: &Service, more: Value) -> String {
    let mut body = json!({ "goal": "win", "agent": "a", "agents": ["b"] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = service.api.acme.post("/v1/projects", &body).await;
    assert_eq!((answer.status, answer.body["status"].as_str()), (201, Some("planning")), "{}", answer.text);
    format!("/v1/projects/{}", answer.body["id"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planner_corrects_its_plan_which_then_waits_for_approval() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|request| {
        if !is_planner(request) {
            return reply_text(&format!("done: {}", prompt_of(request)));
        }
        let tasks = match request.replies() {
            0 => json!([task("x", &["y"]), task("y", &["x"])]),
            1 => json!([{"key": "x", "prompt": "p", "agent": "nope"}]),
            _ => {
                json!([task("x", &[]), {"key": "y", "prompt": "{{tasks.x.output}}", "agent": "b", "depends_on": ["x"]}])
            }
        };
        reply_text(&json!({ "tasks": tasks }).to_string())
    });
    let _worker = service.fleet.worker();
    let project = plans(&service, json!({ "needs_approval": true })).await;
    let body = service.until(&project, "awaiting_approval").await;
    assert_eq!((body["plan_version"].as_i64(), body["tasks"]["pending"].as_i64()), (Some(1), Some(2)));
    let asked: Vec<Captured> = service.fleet.llm.requests();
    assert_eq!(asked.len(), 3);
    let told = |request: &Captured| prompt_of(request);
    assert!(told(&asked[0]).contains("win"), "{}", told(&asked[0]));
    assert!(told(&asked[0]).contains("- b"), "the agents that a task may name");
    assert!(told(&asked[1]).contains("`x` → `y` → `x`"), "{}", told(&asked[1]));
    assert!(told(&asked[2]).contains("names the agent `nope`"), "{}", told(&asked[2]));
    assert_eq!(service.get(&format!("{project}/plan")).await["plan"]["tasks"][1]["agent"], "b");
    service.tell(&format!("{project}/approve")).await;
    service.until(&project, "completed").await;
    assert_eq!(prompt_of(service.fleet.llm.requests().last().unwrap()), "done: x");
    service.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn project_fails_with_its_planner() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|_| reply_text(r#"{"tasks": []}"#));
    let _worker = service.fleet.worker();
    let project = plans(&service, json!({ "execution_strategy": "parallel" })).await;
    let body = service.until(&project, "failed").await;
    assert_eq!(body["failure_code"], "plan_failed");
    assert!(body["failure_summary"].as_str().unwrap().contains("max_retries_exceeded"), "{body}");
    let prompt = prompt_of(&service.fleet.llm.requests()[0]);
    assert!(prompt.contains("leave `depends_on` empty"), "{prompt}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_ends_the_planner() {
    let service = Service::start().await;
    let gate = Gate::new();
    service.fleet.llm.answer_with(move |_| reply_text("{}").before(ev_gate(&gate)));
    let _worker = service.fleet.worker();
    let project = plans(&service, json!({})).await;
    let planner = service.get(&project).await["planner_execution_id"].as_str().unwrap().parse().unwrap();
    service.fleet.until(planner, "the planner runs", |row| row["status"] == "IN_PROGRESS").await;
    let refused =
        service.api.acme.put(&format!("{project}/plan"), &json!({ "plan": { "tasks": [task("a", &[])] } })).await;
    assert_eq!(refused.error(), (409, "project_state"));
    service.tell(&format!("{project}/cancel")).await;
    assert_eq!(service.fleet.ended(planner).await["failure_code"], "cancelled");
    assert_eq!(service.get(&project).await["status"], "cancelled");
}
