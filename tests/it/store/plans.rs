//! Cached query plans: a plan made while few executions were open must not be slow when many are.

use std::time::Duration;

use chrono::DateTime;
use longhaul_domain::WaitReason;
use longhaul_store::Store;
use longhaul_store::executions::list_filter::uuid_floor;
use longhaul_store::history::journal::StepKind::Prompt;
use longhaul_store::quarantine::QuarantineRules;
use sqlx::PgPool;

use super::costs::submit;
use crate::support::db::TestDb;
use crate::support::leases::{Conclusion, TestWorker, World, step, write};
use crate::support::servers::dedicated_postgres;
use crate::support::wait::eventually;

const CHUNK: i64 = 500;
const HOUR: Duration = Duration::from_secs(3_600);

/// Runs every duty that workers do for the fleet once.
async fn duties(store: &Store, worker: &TestWorker) {
    store.expire_requests(CHUNK, None).await.unwrap();
    store.wake_decided(None, CHUNK, HOUR).await.unwrap();
    store.wake_due(CHUNK).await.unwrap();
    store.wake_served(CHUNK).await.unwrap();
    store.end_overdue(CHUNK).await.unwrap();
    store.neglected(CHUNK, HOUR, Duration::ZERO).await.unwrap();
    store.cancel_descendants(CHUNK).await.unwrap();
    store.fold_budgets(None, CHUNK).await.unwrap();
    store.clear_leaked_slots(None).await.unwrap();
    store.sweep_slots(None, CHUNK).await.unwrap();
    store.fold_counts(10_000).await.unwrap();
    store.queue_heads(1_000).await.unwrap();
    let rules = QuarantineRules { auto_release: true, hold_after: 10, hold_window: HOUR, release_per_minute: 10 };
    store.tend_quarantine(&rules).await.unwrap();
    store.wake_unheld(CHUNK).await.unwrap();
    store.wake_childless(None).await.unwrap();
    store.wake_unblocked(500).await.unwrap();
    store.unserved().await.unwrap();
    store.tidy(1).await.unwrap();
    store.tidy_slots().await.unwrap();
    store.tidy_suspect_notes().await.unwrap();
    store.waiting().await.unwrap();
    store.wake_unlined(None).await.unwrap();
    store.forget_ended_waits(None).await.unwrap();
    store.leases_of(worker.id, HOUR).await.unwrap();
    while !store.reap(CHUNK).await.unwrap().is_empty() {}
}

/// Rows of tables and entries of indexes that were read, the most first. Waits until every other session has ended,
/// because a session reports its statistics at its end.
async fn reads(pool: &PgPool) -> Vec<(String, i64)> {
    eventually("the sessions have ended", Duration::from_secs(60), async || {
        let open: i64 = sqlx::query_scalar("select count(*) from pg_stat_activity where application_name = 'longhaul'")
            .fetch_one(pool)
            .await
            .unwrap();
        if open == 0 { Ok(()) } else { Err(open) }
    })
    .await;
    let by_name = "select relname::text as name, seq_tup_read from pg_stat_user_tables where seq_tup_read > 0
        union all select indexrelname::text, idx_tup_read from pg_stat_user_indexes where idx_tup_read > 0
        order by 2 desc";
    sqlx::query_as(by_name).fetch_all(pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_made_when_quiet_read_linearly_under_load() {
    const QUIET: usize = 500;
    const OPEN: usize = 4_000;
    let postgres = dedicated_postgres().await;
    let world = World::on(TestDb::create_on(postgres.url()).await).await;
    let (living, dying) = (world.worker().await, world.worker().await);
    // The quiet hour: all executions have ended when the plans are made.
    submit(&world, QUIET).await;
    for claimed in living.claim(QUIET as i32).await {
        living.record(write(&claimed, 1, vec![step(1, Prompt, "you are a careful clerk")])).await.unwrap();
        living.finish(&claimed).await.unwrap();
    }
    sqlx::query("analyze").execute(world.pool()).await.unwrap();
    duties(&world.store, &living).await;

    submit(&world, OPEN).await;
    let held = living.claim(OPEN as i32 / 2).await;
    assert_eq!(dying.claim(OPEN as i32 / 4).await.len(), OPEN / 4);
    for claimed in &held {
        living.record(write(claimed, 1, vec![step(1, Prompt, "you are a careful clerk")])).await.unwrap();
    }
    for claimed in held.iter().take(OPEN / 4) {
        let park = Conclusion::Park { reason: WaitReason::Scheduled, wait: Some(HOUR), wake_seq: claimed.wake_seq };
        living.end(claimed, park).await.unwrap();
    }
    dying.die().await;
    duties(&world.store, &living).await;
    world.store.close().await;

    let reads = reads(world.pool()).await;
    let of_all: i64 = reads.iter().map(|(_name, reads)| reads).sum();
    println!("{of_all} rows and entries read: {:?}", &reads[..8]);
    // A statement per held execution that reads all held ones would read four million or more.
    assert!(of_all <= 50 * OPEN as i64, "{of_all} rows and entries were read: {reads:?}");
}

#[tokio::test]
async fn id_bound_of_an_instant_rounds_down() {
    let world = World::create().await;
    for micros in [0, 1, 499, 500, 999] {
        let at = DateTime::from_timestamp_micros(1_767_225_600_123_000 + micros).unwrap();
        let bound: uuid::Uuid =
            sqlx::query_scalar("select longhaul_uuid_floor($1)").bind(at).fetch_one(world.pool()).await.unwrap();
        assert_eq!(bound, uuid_floor(at), "{micros} µs");
    }
}
