//! How many sub-agents run at a time: no slot leaks, and no tree stands still at any limit.

use longhaul_sdk::AgentSpec;
use longhaul_testkit::model::{Captured, Gate, Reply, ev_gate, ev_text, reply_events, reply_text};
use serde_json::{Value, json};

use super::{CHILDREN, HELD, count, is_aside, prepare, repeat, spawn, spawns, submit, task_of, tasks, told};
use crate::{
    support::{
        fleet::{Fleet, PATIENCE, agent},
        process::WorkerProcess,
        wait::eventually,
    },
    worker::{
        journal::quick_fleet,
        kit::{agent_with, definition},
    },
};

const STRATEGIES: [&str; 7] =
    ["collect", "concatenate", "first_success", "majority_vote", "merge_json", "best_of", "synthesize"];

/// Stores agents that may nest three deep.
async fn prepare_tree(fleet: &Fleet) {
    let tools = vec![spawns(&json!({ "agents": ["child"] }))];
    fleet.apply(&AgentSpec { tools: tools.clone(), ..agent_with(&[]) }, &definition("d", &["is_valid_json"])).await;
    fleet.store.put_shared_agent(&AgentSpec { tools, ..agent("child") }).await.unwrap();
}

/// Replies of a tree with so many children at each level. Parents on the way down use the strategies in turn.
fn tree(widths: [usize; 3]) -> impl Fn(&Captured) -> Reply + Send + Sync {
    move |request| {
        if is_aside(request) {
            return reply_text(r#"{"scores": [1, 2, 3]}"#);
        }
        let task = task_of(request);
        let path = task.as_deref().unwrap_or("task");
        let level = path.matches('-').count();
        if request.replies() > 0 {
            return if task.is_none() { repeat(request) } else { reply_text(r#"{"level": 1}"#) };
        }
        match widths.get(level) {
            Some(width) => {
                let number: usize = path.bytes().map(usize::from).sum();
                // The ends of `first_success` would cancel others: its turn is at the last level.
                let strategy = STRATEGIES[number % STRATEGIES.len()];
                let strategy = if strategy == "first_success" && level < 2 { "collect" } else { strategy };
                spawn(json!({ "tasks": tasks(path, *width), "strategy": strategy }))
            }
            None => reply_text(r#"{"leaf": true}"#),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tree_of_forty_ends_although_a_worker_dies() {
    let fleet = quick_fleet().await;
    prepare_tree(&fleet).await;
    fleet.llm.answer_with(tree([4, 3, 2]));
    let mut doomed = WorkerProcess::start(&fleet).await;
    let _worker = fleet.worker();
    let id = submit(&fleet).await;
    eventually("the tree is half grown", PATIENCE, || async {
        let children = count(&fleet, CHILDREN).await;
        if children >= 16 { Ok(()) } else { Err(children) }
    })
    .await;
    doomed.kill();
    let row = fleet.ended(id).await;
    assert_eq!(row["status"], "FINISHED", "{row}");
    assert_eq!(count(&fleet, CHILDREN).await, 40);
    quiet(&fleet, 8).await;
    let repeated = "select count(*) from (
            select from steps where kind in ('turn', 'aggregation') and state = 'live'
            group by execution_id, key having count(*) > 1
        ) doubled";
    assert_eq!(count(&fleet, repeated).await, 0);
}

/// Checks that nothing is held once all executions are over, and that no more than `limit` slots were ever taken.
async fn quiet(fleet: &Fleet, limit: i64) {
    eventually("all are over and hold nothing", PATIENCE, || async {
        let open = count(fleet, "select count(*) from executions where finished_at is null").await;
        let held = count(fleet, HELD).await;
        if (open, held) == (0, 0) { Ok(()) } else { Err(format!("{open} open, {held} held")) }
    })
    .await;
    let most = count(fleet, "select coalesce(max(number), 0)::bigint from slots").await;
    assert!(most <= limit, "{most} slots of {limit}");
    assert_eq!(count(fleet, "select count(*) from slot_waiters").await, 0);
}

#[tokio::test]
async fn no_limit_from_one_up_stops_a_tree() {
    for limit in 1..=4 {
        let mut fleet = Fleet::start().await;
        fleet.set("LONGHAUL__SUB_AGENTS__MAX_RUNNING", &limit.to_string());
        prepare_tree(&fleet).await;
        fleet.llm.answer_with(tree([2, 2, 1]));
        let _workers = (fleet.worker(), fleet.worker());
        let row = fleet.ended(submit(&fleet).await).await;
        assert_eq!(row["status"], "FINISHED", "{limit}: {row}");
        assert_eq!(count(&fleet, CHILDREN).await, 10);
        quiet(&fleet, limit).await;
        assert_eq!(count(&fleet, "select max(number)::bigint from slots").await, limit, "the limit was reached");
    }
}

#[tokio::test]
async fn tenants_have_own_limits_below_the_fleets() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__SUB_AGENTS__MAX_RUNNING", "2");
    fleet.set("LONGHAUL__SUB_AGENTS__MAX_RUNNING_FLEET", "3");
    prepare(&fleet, json!({ "agents": ["child"] })).await;
    let gate = Gate::new();
    let held = gate.clone();
    fleet.llm.answer_with(move |request| match (task_of(request), request.replies()) {
        (Some(_), _) => reply_events([ev_gate(&held), ev_text("done")]),
        (None, 0) => spawn(json!({ "tasks": tasks("task", 4) })),
        (None, _) => repeat(request),
    });
    let _worker = fleet.worker();
    let mine = submit(&fleet).await;
    let running = |tenants: Value| {
        let fleet = &fleet;
        async move {
            let sql = "select coalesce(jsonb_agg(n order by n), '[]') from (
                    select count(*) as n from executions where parent_id is not null and worker_id is not null
                    group by tenant_id
                ) running";
            eventually("as many run as may", PATIENCE, || async {
                let now = fleet.json(sql).await;
                let waiting = count(fleet, "select count(*) from slot_waiters").await;
                if now == tenants && fleet.llm.in_flight() as i64 + waiting == count(fleet, CHILDREN).await {
                    Ok(())
                } else {
                    Err(format!("{now}, {waiting} wait"))
                }
            })
            .await;
        }
    };
    running(json!([2])).await;
    let mut other = fleet.new_execution("d", json!({ "task": super::WHOLE })).await;
    other.tenant_id = fleet.store.ensure_tenant("other", None).await.unwrap().id;
    let other = fleet.submit_new(other).await;
    running(json!([1, 2])).await;
    gate.open();
    for id in [mine, other] {
        assert_eq!(told(&fleet, id).await["results"].as_array().unwrap().len(), 4);
    }
    quiet(&fleet, 3).await;
}
