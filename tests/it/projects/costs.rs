//! The cost of a task does not grow with its project.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use longhaul_domain::{ExecutionStrategy, Plan, ProjectId, ServeKey};
use longhaul_store::projects::{Created, NewProject, PlanOrigin, ProjectAgent};
use serde_json::json;
use tracing::{
    Dispatch, Event, Metadata, Subscriber,
    dispatcher::set_default,
    span::{Attributes, Id, Record},
};

use super::task;
use crate::support::{leases::World, wait::eventually};

/// Counts the statements that this thread sends.
struct Statements(Arc<AtomicU64>);

impl Subscriber for Statements {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::query"
    }

    fn event(&self, event: &Event<'_>) {
        if event.metadata().target() == "sqlx::query" {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// A project in which each task depends on two of the ten before it.
fn project(world: &World, tasks: usize) -> NewProject {
    let keys: Vec<String> = (0..tasks).map(|number| format!("t{number}")).collect();
    let on = |number: usize| match number {
        0..10 => vec![],
        _ => vec![keys[number - 10].as_str(), keys[number - 10 + (number + 1) % 10 - number % 10].as_str()],
    };
    let tasks: Vec<_> = (0..tasks).map(|number| task(&keys[number], &on(number))).collect();
    let plan: Plan = serde_json::from_value(json!({ "tasks": tasks })).unwrap();
    let agent = ProjectAgent {
        agent_key: "clerk".into(),
        agent_version_id: uuid::Uuid::nil().into(),
        definition_version_id: uuid::Uuid::nil().into(),
        serve_key: ServeKey::default(),
        requirements: Vec::new(),
        budget: None,
    };
    NewProject {
        id: ProjectId::random(),
        tenant_id: world.tenant,
        name: "p".into(),
        goal: "g".into(),
        agent_key: "clerk".into(),
        execution_strategy: ExecutionStrategy::Dag,
        max_parallel_tasks: 8,
        needs_approval: false,
        queue: "default".into(),
        metadata: json!({}),
        submitted_by: None,
        deadline: None,
        budget: None,
        idempotency: None,
        agents: vec![agent],
        plan: PlanOrigin::Given(plan.check(|_| true).unwrap()),
    }
}

/// Statements and rows read for each task of a project that runs from its first task to its last.
async fn cost_per_task(tasks: usize) -> (f64, f64, String) {
    let world = World::create().await;
    let new = project(&world, tasks);
    let worker = world.worker().await;
    let id = match world.store.create_project(&new).await.unwrap() {
        Created::Created(id) => id,
        other => panic!("{other:?}"),
    };
    let statements = Arc::new(AtomicU64::new(0));
    {
        let _counting = set_default(&Dispatch::new(Statements(Arc::clone(&statements))));
        world.store.drive_line(world.tenant, 10).await.unwrap();
        let mut done = 0;
        while done < tasks {
            for claimed in worker.claim(8).await {
                worker.finish(&claimed).await.unwrap();
                world.store.drive_project(id, 10).await.unwrap();
                done += 1;
            }
        }
    }
    let status: String = sqlx::query_scalar("select status from projects").fetch_one(world.pool()).await.unwrap();
    assert_eq!(status, "completed");
    world.check().await;
    world.store.close().await;
    let rows = eventually("the sessions have ended", Duration::from_secs(60), async || {
        let open: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity
             where application_name = 'longhaul' and datname = current_database()",
        )
        .fetch_one(world.pool())
        .await
        .unwrap();
        let rows: Vec<(String, i64)> = sqlx::query_as(
            "select relname::text, (seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint from pg_stat_user_tables
             where relname like 'project%' or relname in ('executions', 'execution_payloads') order by 2 desc",
        )
        .fetch_all(world.pool())
        .await
        .unwrap();
        if open == 0 { Ok(rows) } else { Err(open) }
    })
    .await;
    let each = |number: f64| number / tasks as f64;
    let of_all: i64 = rows.iter().map(|(_, number)| number).sum();
    (each(statements.load(Ordering::Relaxed) as f64), each(of_all as f64), format!("{rows:?}"))
}

#[tokio::test]
async fn task_of_a_large_project_costs_no_more() {
    // With a single dispatcher, tracing asks the one of this thread, which is not set yet, and remembers its answer.
    let _second = Dispatch::new(Statements(Arc::default()));
    let (statements, rows, of_few) = cost_per_task(100).await;
    let (of_many, rows_of_many, by_table) = cost_per_task(1_000).await;
    println!("statements per task {statements:.1} and {of_many:.1}, rows read {rows:.1} and {rows_of_many:.1}");
    assert!(statements > 5.0, "{statements} statements were counted for each task");
    assert!(of_many <= 1.2 * statements, "{statements} statements per task of 100, {of_many} of 1,000");
    assert!(
        rows_of_many <= 1.2 * rows,
        "{rows} rows read per task of 100, {rows_of_many} of 1,000: {of_few}, {by_table}"
    );
}
