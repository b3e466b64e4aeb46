//! Expired rows are deleted at the rate at which they are written.

use std::time::Duration;

use longhaul_domain::{ServeKey, WaitReason};
use longhaul_store::executions::expiry::KEEP_KEYS;
use longhaul_store::history::prune::Retention;

use crate::support::leases::{Conclusion, World};

/// Deletes in many portions, and deletes nothing while another process does so.
#[tokio::test]
async fn idempotency_keys_are_deleted_until_none_is_left() {
    let world = World::create().await;
    let fill = "insert into idempotency_keys (tenant_id, key, execution_id, request_hash, created_at)
                select $1, n::text, gen_random_uuid(), '', clock_timestamp() - (n % 2) * interval '31 days'
                from generate_series(1, 5000) n";
    sqlx::query(fill).bind(world.tenant.0).execute(world.pool()).await.unwrap();
    let keys = async || {
        let keys: i64 =
            sqlx::query_scalar("select count(*) from idempotency_keys").fetch_one(world.pool()).await.unwrap();
        keys
    };
    let mut held = world.pool().begin().await.unwrap();
    sqlx::query("select pg_advisory_xact_lock(hashtext('longhaul.idempotency_keys'))")
        .execute(&mut *held)
        .await
        .unwrap();
    assert_eq!(world.store.forget_idempotency_keys(KEEP_KEYS, 1_000).await.unwrap(), 0, "another process is at it");
    held.rollback().await.unwrap();

    let mut gone = Vec::new();
    while gone.last().is_none_or(|last| *last == 1_000) {
        gone.push(world.store.forget_idempotency_keys(KEEP_KEYS, 1_000).await.unwrap());
    }
    assert_eq!(gone, [1_000, 1_000, 500]);
    assert_eq!(keys().await, 2_500, "those of this month");
}

#[tokio::test]
async fn prune_deletes_expired_idempotency_keys() {
    let world = World::create().await;
    let fill = "insert into idempotency_keys (tenant_id, key, execution_id, request_hash, created_at)
                select $1, n::text, gen_random_uuid(), '', clock_timestamp() - interval '31 days'
                from generate_series(1, 2500) n";
    sqlx::query(fill).bind(world.tenant.0).execute(world.pool()).await.unwrap();
    world.store.prune(Retention::new(Retention::SHORTEST).unwrap()).await.unwrap();
    let keys: i64 = sqlx::query_scalar("select count(*) from idempotency_keys").fetch_one(world.pool()).await.unwrap();
    assert_eq!(keys, 0);
}

#[tokio::test]
async fn serve_key_is_deleted_when_old_and_unused() {
    const DAY: Duration = Duration::from_secs(24 * 3_600);
    let world = World::create().await;
    for key in ["old", "held", "parked", "runnable", "put again"] {
        world.store.put_serve_key(&ServeKey(key.into()), &[]).await.unwrap();
    }
    let age = "update serve_keys set put_at = put_at - interval '25 hours'";
    sqlx::query(age).execute(world.pool()).await.unwrap();
    world.store.put_serve_key(&ServeKey("put again".into()), &[]).await.unwrap();
    let worker = world.worker().await;
    let [held, parked, runnable]: [_; 3] = world.submit(3).await.try_into().unwrap();
    for claimed in worker.claim(2).await {
        if claimed.id == parked {
            let wait = Some(DAY);
            let park = Conclusion::Park { reason: WaitReason::Scheduled, wait, wake_seq: claimed.wake_seq };
            worker.end(&claimed, park).await.unwrap();
        }
    }
    for (id, key) in [(held, "held"), (parked, "parked"), (runnable, "runnable")] {
        let set = "update executions set serve_key = $2 where id = $1";
        sqlx::query(set).bind(id.0).bind(key).execute(world.pool()).await.unwrap();
    }
    assert_eq!(world.store.forget_serve_keys(DAY).await.unwrap(), 1);
    let mut left: Vec<_> = world.store.serve_keys().await.unwrap().into_iter().map(|(key, _)| key).collect();
    left.retain(|key| !key.is_empty());
    left.sort();
    assert_eq!(left, ["held", "parked", "put again", "runnable"]);
}

#[tokio::test]
async fn count_that_falls_to_zero_is_deleted() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(1).await;
    world.store.fold_counts(1_000).await.unwrap();
    let claimed = worker.claim_one().await;
    worker.finish(&claimed).await.unwrap();
    world.store.fold_counts(1_000).await.unwrap();
    let counts: Vec<(String, i64)> =
        sqlx::query_as("select status::text, n from execution_counts").fetch_all(world.pool()).await.unwrap();
    assert_eq!(counts, [("FINISHED".to_owned(), 1)]);
    world.check().await;
}
