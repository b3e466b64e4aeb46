//! Core-rules 9 and 14: writes that share a statement succeed or fail independently and do not block each other.

use std::time::Duration;

use futures::future::join_all;
use longhaul_domain::{ExecutionId, LimitKey, ServeKey};
use longhaul_store::StoreError;
use longhaul_store::executions::claims::Claimed;
use longhaul_store::executions::submit::{NewExecution, Submitted, Submitter};
use longhaul_store::history::journal::StepKind::{Prompt, Turn};
use serde_json::json;
use tokio::task::unconstrained;

use crate::support::leases::{Conclusion, TestWorker, World, step, write};
use crate::support::wait::{SOON, within};

const BATCH: usize = 500;
const POISONED: usize = 250;
/// Time limit for a batch: one bad item halves it nine times, in a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Submits all writes before the first flush, so that they share statements.
async fn at_once<T>(writes: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    within("every write's verdict", PATIENCE, unconstrained(join_all(writes))).await
}

/// Fails unless exactly the poisoned write was refused, as `Rejected`.
fn only_the_poison_failed<T: std::fmt::Debug>(verdicts: &[Result<T, StoreError>]) {
    assert_eq!(verdicts.len(), BATCH);
    for (place, verdict) in verdicts.iter().enumerate() {
        match verdict {
            Ok(_) => assert_ne!(place, POISONED, "the poison was stored: {verdict:?}"),
            Err(error) => assert!(place == POISONED && matches!(error, StoreError::Rejected(_)), "{place}: {error}"),
        }
    }
}

async fn count(world: &World, sql: &'static str) -> usize {
    let count: i64 = sqlx::query_scalar(sql).fetch_one(world.pool()).await.unwrap();
    usize::try_from(count).unwrap()
}

#[tokio::test]
async fn submit_that_jsonb_cannot_hold_fails_alone() {
    let world = World::create().await;
    let submitter = Submitter::spawn(world.store.clone(), SOON);
    let mut new = Vec::with_capacity(BATCH);
    for place in 0..BATCH {
        let metadata = if place == POISONED { json!({"name": "a\u{0}b"}) } else { json!({"name": "fine"}) };
        new.push(NewExecution { metadata, ..world.new_execution().await });
    }
    let ids: Vec<ExecutionId> = new.iter().map(|new| new.id).collect();
    let verdicts = at_once(new.into_iter().map(|new| submitter.submit(new))).await;
    only_the_poison_failed(&verdicts);
    let created = verdicts
        .into_iter()
        .zip(ids)
        .filter(|(verdict, id)| matches!(verdict, Ok(Submitted::Created(created)) if created == id));
    assert_eq!(created.count(), BATCH - 1);
    assert_eq!(count(&world, "select count(*) from executions").await, BATCH - 1);
    world.check().await;
}

/// An index row that is too large raises SQLSTATE 54000, not class 22 or 23, and is still about the values.
#[tokio::test]
async fn submit_that_no_index_can_hold_fails_alone() {
    let world = World::create().await;
    let submitter = Submitter::spawn(world.store.clone(), SOON);
    let mut new = Vec::with_capacity(BATCH);
    for _ in 0..BATCH {
        new.push(world.new_execution().await);
    }
    new[POISONED].serve_key = ServeKey((0..120).map(|_| uuid::Uuid::new_v4().to_string()).collect());
    let verdicts = at_once(new.into_iter().map(|new| submitter.submit(new))).await;
    only_the_poison_failed(&verdicts);
    assert_eq!(count(&world, "select count(*) from executions").await, BATCH - 1);
    world.check().await;
}

#[tokio::test]
async fn unstorable_step_or_end_fails_alone() {
    let world = World::create().await;
    world.submit(BATCH).await;
    let worker = world.worker().await;
    let claimed = worker.claim(i32::try_from(BATCH).unwrap()).await;
    let turn = |place: usize| {
        let mut turn = step(1, Turn, "said");
        turn.failure_code = (place == POISONED).then(|| "a\u{0}b".into());
        turn
    };
    let records = claimed.iter().enumerate().map(|(place, one)| worker.record(write(one, 1, vec![turn(place)])));
    only_the_poison_failed(&at_once(records).await);
    assert_eq!(count(&world, "select count(*) from steps").await, BATCH - 1);
    assert_eq!(count(&world, "select count(*) from events where kind = 'turn'").await, BATCH - 1);

    let output = |place: usize| if place == POISONED { "not JSON" } else { "7" };
    let ends = claimed
        .iter()
        .enumerate()
        .map(|(place, one)| worker.end(one, Conclusion::Finish { output: output(place).into() }));
    only_the_poison_failed(&at_once(ends).await);
    assert_eq!(count(&world, "select count(*) from executions where status = 'FINISHED'").await, BATCH - 1);
    // The worker still holds the refused execution and can end it in another way.
    worker.finish(&claimed[POISONED]).await.unwrap();
    world.check().await;
}

/// Records one step for each of the lease's `writes`.
async fn work(worker: &TestWorker, claimed: &Claimed, writes: std::ops::RangeInclusive<i32>) {
    for number in writes {
        worker.record(write(claimed, number, vec![step(number, Turn, "said")])).await.unwrap();
    }
}

#[tokio::test]
async fn locked_row_delays_only_its_own_writes() {
    let world = World::create().await;
    world.submit(20).await;
    let worker = world.worker().await;
    let claimed = worker.claim(20).await;
    let (locked, others) = claimed.split_first().unwrap();
    // A statement outside Longhaul, such as an operator's, in a transaction that stays open.
    let mut foreign = world.pool().begin().await.unwrap();
    sqlx::query("select from executions where id = $1 for update")
        .bind(locked.id.0)
        .execute(&mut *foreign)
        .await
        .unwrap();
    let mut waiting = std::pin::pin!(async {
        work(&worker, locked, 1..=1).await;
        worker.finish(locked).await.unwrap();
    });
    // The other executions of the same batches finish while the row is locked.
    let beside = at_once(others.iter().map(|one| async {
        work(&worker, one, 1..=5).await;
        worker.finish(one).await.unwrap();
    }));
    tokio::select! {
        () = &mut waiting => panic!("a locked row was written"),
        ended = beside => assert_eq!(ended.len(), 19),
    }
    assert_eq!(count(&world, "select count(*) from executions where status = 'FINISHED'").await, 19);
    assert_eq!(world.standing(locked.id).await.0, "IN_PROGRESS");
    foreign.rollback().await.unwrap();
    within("the locked one's end", PATIENCE, waiting).await;
    assert_eq!(world.events(locked.id).await, ["submitted", "claimed", "turn", "finished"]);
    world.check().await;
}

#[tokio::test]
async fn writers_of_one_prompt_do_not_block_each_other() {
    let world = World::create().await;
    world.submit(33).await;
    let prompt = "you are a careful clerk";
    let first = world.worker().await;
    let open = first.claim_one().await;
    // An open group commit of the same prompt: its step is inserted but not committed.
    let message = step(1, Prompt, prompt);
    let mut under_way = world.pool().begin().await.unwrap();
    sqlx::query(
        "insert into steps (execution_id, seq, attempt, kind, state, key, body, appends, started_at)
         values ($1, 1, 1, 'prompt', 'live', $2, $3, array[$3], now())",
    )
    .bind(open.id.0)
    .bind(message.key.as_slice())
    .bind(message.body.as_slice())
    .execute(&mut *under_way)
    .await
    .unwrap();
    let mut writers = Vec::new();
    for _ in 0..32 {
        let writer = world.worker().await;
        let claimed = writer.claim_one().await;
        writers.push((writer, claimed));
    }
    let records = writers.iter().map(|(writer, claimed)| writer.record(write(claimed, 1, vec![message.clone()])));
    for verdict in at_once(records).await {
        verdict.unwrap();
    }
    // Each of the 32 writers has stored its own copy while the first is uncommitted.
    assert_eq!(count(&world, "select count(*) from steps").await, 32);
    under_way.commit().await.unwrap();
    assert_eq!(count(&world, "select count(distinct key) from steps").await, 1);
}

#[tokio::test]
async fn locked_limit_key_delays_only_ends_freeing_its_slots() {
    let world = World::create().await;
    world.store.put_limit(Some(world.tenant), &LimitKey::parse("metadata.customer").unwrap(), 1).await.unwrap();
    let acme = |new| NewExecution { metadata: json!({"customer": "acme"}), ..new };
    let mut limited = Vec::new();
    for _ in 0..2 {
        limited.push(std::sync::Arc::new(acme(world.new_execution().await)));
    }
    world.store.submit_executions(&limited).await.unwrap();
    world.submit(20).await;
    let worker = world.worker().await;
    let claimed = worker.claim(30).await;
    assert_eq!(claimed.len(), 21, "one waits for the slot");
    let (first, others): (Vec<_>, Vec<_>) = claimed.iter().partition(|one| one.id == limited[0].id);
    // Another transaction hands over slots of the key and holds its row.
    let mut foreign = world.pool().begin().await.unwrap();
    sqlx::query("select from slot_keys for update").execute(&mut *foreign).await.unwrap();
    let mut waiting = std::pin::pin!(worker.finish(first[0]));
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("a slot was handed over without its key"),
        ended = at_once(others.iter().map(|one| worker.finish(one))) => assert!(ended.iter().all(Result::is_ok)),
    }
    assert_eq!(count(&world, "select count(*) from executions where status = 'FINISHED'").await, 21);
    foreign.rollback().await.unwrap();
    let woken = within("the slot's new holder", PATIENCE, waiting).await.unwrap().woken;
    assert_eq!(woken.iter().map(|one| one.id).collect::<Vec<_>>(), [limited[1].id]);
    world.check().await;
}
