//! Twenty tasks under each strategy: the recorded times show their order and how many ran at a time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use longhaul_testkit::model::{Gate, ev_gate, reply_text};
use serde_json::{Value, json};

use super::{Service, Task, prompt_of, task};

/// Most tasks that ran at the same time, by their recorded times.
fn most_at_a_time(tasks: &[Task]) -> usize {
    let running_at = |at| tasks.iter().filter(|task| task.started_at <= at && at < task.finished_at).count();
    tasks.iter().map(|task| running_at(task.started_at)).max().unwrap_or_default()
}

/// Fails unless each task began after the ends of all that it depends on.
fn assert_in_order(tasks: &[Task]) {
    for task in tasks {
        for on in &task.depends_on {
            let on = tasks.iter().find(|other| other.key == *on).unwrap();
            assert!(on.finished_at <= task.started_at, "{} ended after {} began", on.key, task.key);
        }
    }
}

/// A service whose model answers no task before `together` of them are asked.
async fn service(together: usize) -> Service {
    let service = Service::start().await;
    let (asked, gate) = (Arc::new(AtomicUsize::new(0)), Gate::new());
    service.fleet.llm.answer_with(move |request| {
        if asked.fetch_add(1, Ordering::SeqCst) + 1 == together {
            gate.open();
        }
        reply_text(&format!("done: {}", prompt_of(request))).before(ev_gate(&gate))
    });
    service
}

/// Twenty tasks: two depend on the first, others on pairs.
fn diamond() -> Vec<Value> {
    let keys: Vec<String> = (0..20).map(|number| format!("t{number}")).collect();
    let on = |number: usize| match number {
        0..12 => vec![],
        12..18 => vec![keys[number - 12].as_str(), keys[number - 6].as_str()],
        _ => vec![keys[number - 6].as_str(), keys[number - 5].as_str()],
    };
    (0..20).map(|number| task(&keys[number], &on(number))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequential_tasks_run_one_at_a_time_in_order() {
    let service = service(1).await;
    let _worker = service.fleet.worker();
    let project = service.create(diamond(), json!({ "execution_strategy": "sequential" })).await;
    let body = service.until(&project, "completed").await;
    assert_eq!(body["tasks"]["completed"], 20);
    let mut tasks = service.tasks(&project).await;
    assert_eq!(most_at_a_time(&tasks), 1);
    assert_in_order(&tasks);
    tasks.sort_by_key(|task| task.started_at);
    let keys: Vec<&str> = tasks.iter().map(|task| task.key.as_str()).collect();
    assert_eq!(keys, (0..20).map(|number| format!("t{number}")).collect::<Vec<_>>(), "the order of the plan");
    service.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_tasks_run_all_at_once() {
    let service = service(20).await;
    let _worker = service.fleet.worker();
    let tasks = (0..20).map(|number| task(&format!("t{number}"), &[])).collect();
    let project = service.create(tasks, json!({ "execution_strategy": "parallel" })).await;
    service.until(&project, "completed").await;
    assert_eq!(most_at_a_time(&service.tasks(&project).await), 20);
    service.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_tasks_wait_for_what_they_depend_on() {
    let service = service(12).await;
    let _worker = service.fleet.worker();
    let project = service.create(diamond(), json!({ "execution_strategy": "parallel" })).await;
    service.until(&project, "completed").await;
    let tasks = service.tasks(&project).await;
    assert!(most_at_a_time(&tasks) >= 12, "all ready ones at once");
    assert_in_order(&tasks);
    service.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dag_runs_at_most_its_cap_in_order() {
    let service = service(8).await;
    let _worker = service.fleet.worker();
    let project = service.create(diamond(), json!({})).await;
    let body = service.until(&project, "completed").await;
    assert_eq!((body["execution_strategy"].as_str(), body["max_parallel_tasks"].as_i64()), (Some("dag"), Some(8)));
    let tasks = service.tasks(&project).await;
    assert_eq!(most_at_a_time(&tasks), 8);
    assert_in_order(&tasks);
    let events = service.events(&project).await;
    assert_eq!(events[..3], ["created", "planned", "in_progress"]);
    assert_eq!(events.last().unwrap(), "completed");
    service.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_prompts_hold_cut_outputs_of_earlier_tasks() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|request| match prompt_of(request).as_str() {
        "first" => reply_text(&"x".repeat(20_000)),
        other => reply_text(&format!("{} bytes", other.len())),
    });
    let _worker = service.fleet.worker();
    let last = json!({ "key": "last", "agent": "b", "depends_on": ["short"],
        "prompt": "{{ tasks.first.output }}|{{tasks.short.output}}|{{ tasks }}" });
    let short = json!({ "key": "short", "prompt": "{{tasks.first.output}}", "depends_on": ["first"] });
    let project = service.create(vec![task("first", &[]), short, last], json!({})).await;
    service.until(&project, "completed").await;
    let asked = service.fleet.llm.requests();
    let prompt = prompt_of(asked.last().unwrap());
    let [first, short, rest] = prompt.split('|').collect::<Vec<_>>()[..] else { panic!("{prompt}") };
    assert!(first.starts_with("xxxx") && first.ends_with("left out]") && first.len() <= 16 * 1024, "{}", first.len());
    assert_eq!((short, rest), (format!("{} bytes", first.len()).as_str(), "{{ tasks }}"));
    service.check().await;
}
