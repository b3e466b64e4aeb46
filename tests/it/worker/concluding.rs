//! An execution whose end is being written does not block the next one, as long as no more ends are being written
//! than executions run. It has ended only once the store has accepted the end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use longhaul_agent::probe::{Point, Probe};
use longhaul_sdk::DefinitionSpec;
use longhaul_testkit::model::{reply_hang_up, reply_text};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, time::timeout};

use crate::support::{
    counted::Counted,
    fleet::{Fleet, PATIENCE, agent},
    wait::{eventually, within},
};

/// Observation time for something that must not happen.
const AT_ONCE: Duration = Duration::from_millis(500);

/// A time of a row as Postgres writes it; within one day and time zone it compares as text.
fn time(row: &Value, name: &str) -> String {
    row[name].as_str().unwrap_or_else(|| panic!("{name} is not set: {row}")).to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_execution_starts_while_one_end_is_written() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", "1");
    fleet.apply(&agent("a"), &DefinitionSpec::new("d", "a")).await;
    fleet.llm.answer_with(|_| reply_text("{}"));
    let mut ids = Vec::new();
    for number in 0..3 {
        ids.push(fleet.submit("d", json!({ "number": number })).await);
    }
    let [first, second, third] = ids[..] else { panic!("three were submitted") };
    let [may_end, has_run, has_begun] = [(); 3].map(|()| Arc::new(Semaphore::new(0)));
    let (ending, running, beginning) = (may_end.clone(), has_run.clone(), has_begun.clone());
    let probe = Probe::armed(move |point, id| {
        if (point, id) == (Point::TurnAnswered, second) {
            running.add_permits(1);
        }
        if (point, id) == (Point::Claimed, third) {
            beginning.add_permits(1);
        }
        let ending = ending.clone();
        let is_held = (point, id) == (Point::BeforeConclusion, first);
        async move {
            if is_held {
                ending.acquire().await.unwrap().forget();
            }
        }
        .boxed()
    });
    let worker = fleet.worker_with(|builder| builder.probe(probe));
    // The second runs in the place of the first, which is held before its end.
    within("the second has run", PATIENCE, has_run.acquire()).await.unwrap().forget();
    // One runs and one end is being written, so the third waits until that end is stored.
    assert!(timeout(AT_ONCE, has_begun.acquire()).await.is_err());
    may_end.add_permits(1);
    let mut rows = Vec::new();
    for id in [first, second, third] {
        rows.push(fleet.ended(id).await);
    }
    assert!(rows.iter().all(|row| row["status"] == "FINISHED"), "{rows:?}");
    assert!(time(&rows[1], "started_at") < time(&rows[0], "finished_at"));
    assert!(time(&rows[2], "started_at") > time(&rows[0], "finished_at"));
    worker.drain().await;
}

#[tokio::test]
async fn end_is_counted_once_the_store_accepts_it() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__SWEEP_TICK_SECONDS", "0.3");
    fleet.apply(&agent("a"), &DefinitionSpec::new("d", "a")).await;
    fleet.llm.answer_with(|_| reply_text("{}"));
    let (store, tenant, pool) = (fleet.store.clone(), fleet.tenant, fleet.db.pool.clone());
    let ends = AtomicUsize::new(0);
    // At the first end, the worker was declared dead meanwhile; at the third, a retry, a cancel comes first.
    let probe = Probe::armed(move |point, id| {
        let nth = if point == Point::BeforeConclusion { ends.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
        let (store, pool) = (store.clone(), pool.clone());
        async move {
            match nth {
                1 => {
                    let dead = "update workers set dead_at = clock_timestamp() where dead_at is null";
                    sqlx::query(dead).execute(&pool).await.unwrap();
                    store.reap(10).await.unwrap();
                }
                3 => drop(store.cancel_execution(tenant, id).await.unwrap()),
                _ => {}
            }
        }
        .boxed()
    });
    let counted = Counted::start();
    let worker = fleet.worker_with(|builder| builder.probe(probe));
    let id = fleet.submit("d", json!({})).await;
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], &row["attempts"]), (&json!("FINISHED"), &json!(2)));
    // The row is visible before the worker has its reply.
    eventually("the end is counted", PATIENCE, || async {
        let now = counted.executions();
        if now == [1, 1, 0] { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;

    fleet.llm.answer_with(|_| reply_hang_up());
    let cancelled = fleet.submit("d", json!({})).await;
    assert_eq!(fleet.ended(cancelled).await["failure_code"], "cancelled");
    worker.drain().await;
    assert_eq!(counted.executions(), [2, 1, 1]);
    assert_eq!(counted.of("longhaul_executions_retries_total{failure_class=\"transient\"}"), 0);
}
