//! Core-rules 28: the clock of SQL is stable, so that a comparison with it is an index condition, and tests move it for
//! every open connection.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::join_all;
use longhaul_sdk::Usd;
use longhaul_sdk::spec::BudgetSpec;
use longhaul_store::executions::budgets::{CallPrice, Caps, Reservation, Reserved};
use sqlx::Acquire as _;

use crate::support::leases::World;

#[tokio::test]
async fn moved_clock_moves_open_connections() {
    let world = World::create().await;
    let mut open = world.pool().acquire().await.unwrap();
    let now = "select longhaul_now()";
    let before: DateTime<Utc> = sqlx::query_scalar(now).fetch_one(&mut *open).await.unwrap();
    world.shift_clock(3_600.0).await;
    let after: DateTime<Utc> = sqlx::query_scalar(now).fetch_one(&mut *open).await.unwrap();
    assert!(after - before >= TimeDelta::hours(1), "{before} {after}");
}

#[tokio::test]
async fn clock_stands_still_within_a_statement() {
    let world = World::create().await;
    let mut transaction = world.pool().begin().await.unwrap();
    let connection = transaction.acquire().await.unwrap();
    let within = "select longhaul_now(), longhaul_now() from (select pg_sleep(0.02)) slept, generate_series(1, 2)";
    let rows: Vec<(DateTime<Utc>, DateTime<Utc>)> = sqlx::query_as(within).fetch_all(&mut *connection).await.unwrap();
    assert!(rows.iter().all(|row| *row == rows[0] && row.0 == row.1), "{rows:?}");
    let next: DateTime<Utc> = sqlx::query_scalar("select longhaul_now()").fetch_one(connection).await.unwrap();
    assert!(next - rows[0].0 >= TimeDelta::milliseconds(20), "it moves between the statements of a transaction");
}

#[tokio::test]
async fn comparison_with_the_clock_is_an_index_condition() {
    let world = World::create().await;
    let plan: Vec<String> = sqlx::query_scalar(
        "explain select execution_id from parked where wait_until <= longhaul_now() order by wait_until limit 10",
    )
    .fetch_all(world.pool())
    .await
    .unwrap();
    let plan = plan.join("\n");
    assert!(plan.contains("Index Cond: (wait_until <= longhaul_now())"), "{plan}");
}

/// The reservations of one statement have one time; they are granted in the order in which they were asked for.
#[tokio::test]
async fn reservations_of_one_statement_keep_their_order() {
    let world = World::create().await;
    let worker = world.worker().await;
    let mut root = world.new_execution().await;
    root.budget = Some(BudgetSpec { max_model_calls: Some(0), ..BudgetSpec::default() });
    let root_id = root.id;
    world.store.submit_executions(&[root.into()]).await.unwrap();
    let parent = worker.claim_one().await;
    worker.spawn(&parent, 0..8).await;
    let mut children = worker.claim(8).await;
    children.sort_by_key(|child| std::cmp::Reverse(child.id));
    let ask = |child: &longhaul_store::executions::claims::Claimed| Reservation {
        id: child.id,
        token: child.token,
        step_key: [1; 32],
        price: Some(CallPrice { prompt: Usd::ZERO, reply: Usd::ZERO }),
        prompt_tokens: 1,
        reply_tokens: 1,
        least_reply_tokens: 1,
        may_wait: true,
    };
    let asked = join_all(children.iter().map(|child| worker.writer.reserve(ask(child)))).await;
    assert!(asked.iter().all(|reserved| matches!(reserved, Ok(Reserved::Waiting { .. }))), "{asked:?}");
    let order: Vec<uuid::Uuid> = sqlx::query_scalar("select execution_id from reservations order by asked_at")
        .fetch_all(world.pool())
        .await
        .unwrap();
    assert_eq!(order, children.iter().map(|child| child.id.0).collect::<Vec<_>>());
    world.store.raise_budget(root_id, Caps { max_calls: Some(1), ..Caps::default() }).await.unwrap();
    let granted: uuid::Uuid = sqlx::query_scalar("select execution_id from reservations where state = 'open'")
        .fetch_one(world.pool())
        .await
        .unwrap();
    assert_eq!(granted, children[0].id.0);
    tokio::time::timeout(Duration::from_secs(10), worker.finish(&parent)).await.unwrap().unwrap();
}
