//! Core-rules 16: cost of an execution in the database, and cost of claims while a snapshot is held.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use longhaul_store::executions::claims::{ClaimBounds, ClaimFor, ClaimRequest, Claimed};
use longhaul_store::executions::submit::NewExecution;
use longhaul_store::fleet::lease_writer::LeaseWriter;
use longhaul_store::history::journal::StepKind::{Call, Compression, Prompt, Turn};
use longhaul_store::{Store, StoreOptions};
use sqlx::PgPool;

use crate::support::db::TestDb;
use crate::support::leases::{TestWorker, World, step, write};
use crate::support::servers::dedicated_postgres;
use crate::support::wait::eventually;

/// Limit for statistics to appear: a session reports them when it ends, or seconds after its last statement.
const STATISTICS: Duration = Duration::from_secs(60);

/// Submits `count` executions in batches of 500, as the API does.
pub(super) async fn submit(world: &World, count: usize) {
    let template = world.new_execution().await;
    for _ in 0..count / 500 {
        let mut batch = Vec::with_capacity(500);
        for _ in 0..500 {
            let id = world.store.new_execution_id().await.unwrap();
            batch.push(Arc::new(NewExecution { id, ..template.clone() }));
        }
        world.store.submit_executions(&batch).await.unwrap();
    }
}

/// Write-ahead log position of the whole server in bytes.
async fn wal_bytes(pool: &PgPool) -> i64 {
    sqlx::query_scalar("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
        .fetch_one(pool)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn execution_writes_a_bounded_amount_of_wal() {
    const EXECUTIONS: usize = 3_000;
    /// Bytes. Measured: 5,936 here and 6,819 with the bodies of a whole run (docs/reference/performance.md),
    /// including the full-page images of a new database. The rest is headroom for other versions of the server.
    const LIMIT: i64 = 9_000;
    // A server of its own, because the log is the whole server's.
    let postgres = dedicated_postgres().await;
    let world = World::on(TestDb::create_on(postgres.url()).await).await;
    let before = wal_bytes(world.pool()).await;
    submit(&world, EXECUTIONS).await;
    let worker = world.worker().await;
    for _ in 0..EXECUTIONS / 250 {
        let claimed = worker.claim(250).await;
        assert_eq!(claimed.len(), 250);
        // As in a run of one turn: the prompt shares the turn's write, with the messages of both.
        join_all(claimed.iter().map(|one| async {
            let steps = vec![step(1, Prompt, "you are a careful clerk"), step(2, Turn, r#"{"total": 12}"#)];
            worker.record(write(one, 1, steps)).await.unwrap();
            worker.finish(one).await.unwrap();
        }))
        .await;
    }
    let each = (wal_bytes(world.pool()).await - before) / i64::try_from(EXECUTIONS).unwrap();
    println!("{each} bytes of write-ahead log per execution");
    assert!(each <= LIMIT, "{each} bytes of write-ahead log per execution");
    world.check().await;
}

/// Updates of `executions`, all and HOT, once `expected` of them have been counted.
async fn updates(pool: &PgPool, expected: i64) -> (i64, i64) {
    eventually("the updates are counted", STATISTICS, async || {
        let (all, hot): (i64, i64) =
            sqlx::query_as("select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'executions'")
                .fetch_one(pool)
                .await
                .unwrap();
        if all == expected { Ok((all, hot)) } else { Err(format!("{all} of {expected} updates")) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recording_a_step_touches_no_index_of_executions() {
    const EXECUTIONS: usize = 1_000;
    const STEPS: i32 = 6;
    const ROUNDS: i32 = 5;
    // A server of its own, because a transaction in another database can keep dead row versions from being pruned.
    let postgres = dedicated_postgres().await;
    let world = World::on(TestDb::create_on(postgres.url()).await).await;
    submit(&world, EXECUTIONS).await;
    let claiming = Store::open(StoreOptions::new(&world.db.url)).unwrap();
    let worker = TestWorker::start(&claiming).await;
    let claimed = worker.claim(i32::try_from(EXECUTIONS).unwrap()).await;
    // A session reports its statistics when it ends.
    claiming.close().await;
    let claims = i64::try_from(claimed.len()).unwrap();
    let (_, mut hot_before) = updates(world.pool(), claims).await;

    // Other load on the machine can keep a statement of this test open while the next update looks for room on its
    // page, so a round is repeated. With a changed column in an index, no round would come near.
    let mut shares = Vec::new();
    for round in 0..ROUNDS {
        record_steps(&world, &worker, &claimed, round * STEPS + 1..=(round + 1) * STEPS).await;
        let records = claims * i64::from(STEPS);
        let (_, hot) = updates(world.pool(), claims + records * i64::from(round + 1)).await;
        shares.push((hot - hot_before) as f64 / records as f64);
        hot_before = hot;
        if shares.iter().any(|share| *share >= 0.95) {
            println!("updates that record a step and touched no index, by round: {shares:.3?}");
            return;
        }
    }
    panic!("too few of the updates touched no index: {shares:.3?}");
}

/// Records the steps `numbers` one after the other, of all executions at once, over connections of its own.
async fn record_steps(world: &World, worker: &TestWorker, claimed: &[Claimed], numbers: RangeInclusive<i32>) {
    let recording = Store::open(StoreOptions::new(&world.db.url)).unwrap();
    let writer = LeaseWriter::spawn(&recording, worker.id, Duration::from_secs(10));
    for number in numbers {
        // The next step begins after all records of this one, as a model call lies between two steps. Otherwise two
        // batches that always overlap keep each other's dead row versions, and only every second update is HOT
        // (measured: 51 %).
        let records = claimed.iter().map(|one| writer.record(write(one, number, vec![step(number, Turn, "said")])));
        for recorded in join_all(records).await {
            recorded.unwrap();
        }
    }
    // A session reports its statistics when it ends.
    recording.close().await;
}

/// Claims `expected` executions in small batches with one set of remembered bounds, as a worker under backlog does.
async fn claim_in_batches(store: &Store, worker: &TestWorker, max: i32, expected: usize) -> Vec<Vec<Claimed>> {
    let (queues, serves) = (["default".to_owned()], [String::new(), "of another definition".to_owned()]);
    let bounds = ClaimBounds::default();
    let mut all: Vec<Vec<Claimed>> = Vec::new();
    while all.iter().map(Vec::len).sum::<usize>() < expected {
        let request = ClaimRequest {
            worker: worker.id,
            queues: &queues,
            serves: &serves,
            tenants: ClaimFor::AnyTenant,
            max,
            suspects: 0,
            may_take_alone: false,
        };
        let claimed = store.claim(&request, &bounds).await.unwrap().claimed;
        assert!(!claimed.is_empty(), "nothing left after {} claims", all.len());
        all.push(claimed);
    }
    all
}

/// Claims all over connections of its own. Returns also the entries of the claim index that this read.
async fn claim_all(world: &World, expected: usize) -> (Vec<Vec<Claimed>>, i64) {
    let before = entries_read(world.pool()).await;
    let store = Store::open(StoreOptions::new(&world.db.url)).unwrap();
    let worker = TestWorker::start(&store).await;
    let all = claim_in_batches(&store, &worker, 50, expected).await;
    store.close().await;
    (all, entries_read_since(world, before, expected).await)
}

async fn entries_read_since(world: &World, before: i64, at_least: usize) -> i64 {
    let at_least = i64::try_from(at_least).unwrap();
    eventually("the scans are counted", STATISTICS, async || {
        let read = entries_read(world.pool()).await - before;
        if read >= at_least { Ok(read) } else { Err(read) }
    })
    .await
}

/// Entries of the claim index that scans have returned so far, dead ones included.
async fn entries_read(pool: &PgPool) -> i64 {
    sqlx::query_scalar("select idx_tup_read from pg_stat_user_indexes where indexrelname = 'executions_turn'")
        .fetch_one(pool)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_snapshot_keeps_claims_correct_and_cheap() {
    const EXECUTIONS: usize = 6_000;
    let world = World::create().await;
    submit(&world, EXECUTIONS).await;
    let (_, freely) = claim_all(&world, EXECUTIONS).await;

    // A forgotten report: from here on its snapshot keeps dead row versions from being removed.
    let mut report = world.pool().begin().await.unwrap();
    sqlx::query("set transaction isolation level repeatable read").execute(&mut *report).await.unwrap();
    let seen = async |report: &mut sqlx::PgConnection| -> i64 {
        let count = "select count(*) from executions where wait_reason is null";
        sqlx::query_scalar(count).fetch_one(report).await.unwrap()
    };
    let before = seen(&mut report).await;
    submit(&world, EXECUTIONS).await;
    let claiming_since = Instant::now();
    let (claimed, held) = claim_all(&world, EXECUTIONS).await;
    let claiming_for = claiming_since.elapsed();
    assert_eq!(seen(&mut report).await, before, "the snapshot was not held");

    // Each claimed once, the oldest first.
    assert!(claimed.iter().flatten().all(|one| one.attempt == 1));
    let newest = |batch: &[Claimed]| batch.iter().map(|one| one.id).max();
    let oldest = |batch: &[Claimed]| batch.iter().map(|one| one.id).min();
    assert!(claimed.windows(2).all(|pair| newest(&pair[0]) < oldest(&pair[1])), "claimed out of order");
    println!("{EXECUTIONS} claims read {freely} entries of their index; {held} while a snapshot was held");
    // Each claim steps over the entries of the one before it, and once a second a claim starts from the beginning:
    // twice, for tenants and for their executions, over both halves. Without a remembered bound each of the 120
    // claims would step over everything claimed before it: sixty times as many entries or more.
    let looks_from_the_start = i64::try_from(claiming_for.as_secs()).unwrap() + 1;
    let limit = (4 + 4 * looks_from_the_start) * i64::try_from(EXECUTIONS).unwrap();
    assert!(held <= limit, "{held} entries read in {claiming_for:?} while a snapshot was held; {limit} are allowed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_made_on_empty_table_do_not_scan_backlog() {
    const EXECUTIONS: usize = 6_000;
    let world = World::create().await;
    let store = Store::open(StoreOptions::new(&world.db.url)).unwrap();
    let worker = TestWorker::start(&store).await;
    // A claim with more candidates than it may take and one that takes all, so that every statement of a claim has
    // its plan.
    world.submit(2).await;
    claim_in_batches(&store, &worker, 1, 1).await;
    claim_in_batches(&store, &worker, 50, 1).await;
    submit(&world, EXECUTIONS).await;
    let before = entries_read(world.pool()).await;
    claim_in_batches(&store, &worker, 50, EXECUTIONS).await;
    store.close().await;
    let read = entries_read_since(&world, before, EXECUTIONS).await;
    println!("{EXECUTIONS} claims read {read} entries of their index by plans that are older than they are");
    // One or two entries per execution. A claim of fifty that scans the backlog reads thousands, sixty times as
    // many.
    assert!(read <= 10 * i64::try_from(EXECUTIONS).unwrap(), "{read} entries read");
}

#[tokio::test]
async fn usage_view_adds_up_models_and_tools() {
    let world = World::create().await;
    world.submit(1).await;
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    let mut failed = step(3, Call, "failed call");
    (failed.name, failed.failure_code) = (Some("search".into()), Some("runtime".into()));
    let mut call = step(2, Call, "call");
    call.name = Some("search".into());
    let steps = vec![step(1, Turn, "turn"), call, failed, step(4, Compression, "summary"), step(5, Turn, "answer")];
    worker.record(write(&claimed, 1, steps)).await.unwrap();
    let rows: Vec<(String, String, i64, i64, Option<i64>)> = sqlx::query_as(
        "select kind, name, calls, errors, input_tokens from execution_usage where execution_id = $1 order by kind",
    )
    .bind(claimed.id.0)
    .fetch_all(world.pool())
    .await
    .unwrap();
    let expected = [("model", "scripted", 3, 0, Some(30)), ("tool", "search", 2, 1, Some(20))];
    assert_eq!(
        rows,
        expected.map(|(kind, name, calls, errors, tokens)| (kind.into(), name.into(), calls, errors, tokens))
    );
}
