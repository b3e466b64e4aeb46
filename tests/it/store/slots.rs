//! Core-rules 12: a limit is a set of slot rows that is never overshot, never leaks, is handed over in order and
//! always wakes its waiters.
//!
//! The file is long because all its tests share the same statements on slots and their holders.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use longhaul_domain::{ExecutionId, LimitKey};
use longhaul_sdk::spec::{ConcurrencySpec, DefinitionSpec};
use longhaul_store::executions::claims::Claimed;
use longhaul_store::executions::control::Cancelled;
use longhaul_store::executions::submit::NewExecution;
use longhaul_store::{Store, StoreOptions};
use serde_json::{Value, json};

use super::fair_order::of_tenant;
use crate::support::leases::{Conclusion, TestWorker, World, bury, transient};

fn key(text: &str) -> LimitKey {
    LimitKey::parse(text).unwrap()
}

async fn submit(world: &World, count: usize, change: impl Fn(usize, NewExecution) -> NewExecution) -> Vec<ExecutionId> {
    let mut items = Vec::new();
    for number in 0..count {
        items.push(Arc::new(change(number, world.new_execution().await)));
    }
    for batch in items.chunks(500) {
        world.store.submit_executions(batch).await.unwrap();
    }
    items.iter().map(|item| item.id).collect()
}

async fn submit_for(world: &World, customer: &str, count: usize) -> Vec<ExecutionId> {
    submit(world, count, |_, new| NewExecution { metadata: json!({"customer": customer}), ..new }).await
}

async fn number(world: &World, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(world.pool()).await.unwrap()
}

async fn held(world: &World) -> i64 {
    number(world, "select count(*) from slots where execution_id is not null").await
}

async fn holders(world: &World) -> BTreeSet<uuid::Uuid> {
    let sql = "select execution_id from slots where execution_id is not null";
    sqlx::query_scalar(sql).fetch_all(world.pool()).await.unwrap().into_iter().collect()
}

async fn reason(world: &World, id: ExecutionId) -> Option<String> {
    world.standing(id).await.1
}

fn ids(claimed: &[Claimed]) -> Vec<ExecutionId> {
    claimed.iter().map(|one| one.id).collect()
}

#[tokio::test]
async fn claim_parks_executions_above_the_limit() {
    let world = World::create().await;
    world.store.put_limit(Some(world.tenant), &key("metadata.customer"), 2).await.unwrap();
    let acme = submit_for(&world, "acme", 4).await;
    let other = submit_for(&world, "other", 1).await;
    let free = world.submit(1).await;
    let worker = world.worker().await;
    // A claim returns at once with what can run; the next claim looks behind the parked executions.
    assert_eq!(ids(&worker.claim(4).await), [acme[0], acme[1]]);
    assert_eq!(ids(&worker.claim(2).await), [other[0], free[0]]);
    for id in &acme[2..] {
        assert_eq!(world.standing(*id).await, ("PENDING".into(), Some("concurrency_limit".into()), None));
        assert_eq!(world.events(*id).await, ["submitted", "parked"]);
    }
    assert!(worker.claim(4).await.is_empty(), "who waits is not looked at again");
    assert_eq!(world.events(acme[2]).await, ["submitted", "parked"]);
    world.check().await;
}

#[tokio::test]
async fn claim_behind_parked_executions_respects_its_room() {
    let world = World::create().await;
    world.store.put_limit(Some(world.tenant), &key("metadata.customer"), 1).await.unwrap();
    let acme = submit_for(&world, "acme", 3).await;
    let free = world.submit(10).await;
    let worker = world.worker().await;
    assert_eq!(ids(&worker.claim(2).await), [acme[0]]);
    assert!(world.standing(acme[1]).await.1.is_some_and(|reason| reason != "worker"));
    assert_eq!(ids(&worker.claim(1).await), [free[0]]);
    assert_eq!(number(&world, "select count(*) from executions where worker_id is not null").await, 2);
    for id in &free[1..] {
        assert_eq!(world.standing(*id).await, ("PENDING".into(), Some("worker".into()), None));
    }
    world.check().await;
}

#[tokio::test]
async fn freed_slot_goes_to_next_waiter_not_newcomer() {
    let world = World::create().await;
    world.store.put_limit(Some(world.tenant), &key("definition:invoice"), 1).await.unwrap();
    let ids = world.submit(3).await;
    let worker = world.worker().await;
    let first = worker.claim(3).await;
    assert_eq!(first.iter().map(|one| one.id).collect::<Vec<_>>(), ids[..1]);
    let ended = worker.finish(&first[0]).await.unwrap();
    assert_eq!(ended.woken.iter().map(|one| one.id).collect::<Vec<_>>(), ids[1..2]);
    assert_eq!(holders(&world).await, [ids[1].0].into());
    // Highest priority, but still behind the queue.
    let newcomer = submit(&world, 1, |_, new| NewExecution { priority: 9, ..new }).await[0];
    let claimed = worker.claim(3).await;
    assert_eq!(claimed.iter().map(|one| one.id).collect::<Vec<_>>(), ids[1..2]);
    assert_eq!(reason(&world, newcomer).await.as_deref(), Some("concurrency_limit"));
    // Within the queue, its priority counts.
    worker.finish(&claimed[0]).await.unwrap();
    assert_eq!(holders(&world).await, [newcomer.0].into());
    world.check().await;
}

#[tokio::test]
async fn parked_execution_frees_its_slot_and_requeues() {
    let world = World::create().await;
    world.store.put_limit(Some(world.tenant), &key("definition"), 1).await.unwrap();
    let ids = world.submit(2).await;
    let worker = world.worker().await;
    let first = worker.claim(2).await.remove(0);
    let retry = Conclusion::Retry { failure: transient(), delay: Duration::from_secs(10), wake_seq: first.wake_seq };
    let parked = worker.end(&first, retry).await.unwrap();
    assert_eq!(parked.woken[0].id, ids[1], "its slot was handed over");
    let second = worker.claim_one().await;
    world.shift_clock(11.0).await;
    assert_eq!(world.store.wake_due(100).await.unwrap()[0].id, ids[0]);
    assert!(worker.claim(2).await.is_empty());
    assert_eq!(reason(&world, ids[0]).await.as_deref(), Some("concurrency_limit"));
    // A release frees the slot as well.
    worker.end(&second, Conclusion::Release { drained: false }).await.unwrap();
    assert_eq!(worker.claim_one().await.id, ids[0]);
    assert_eq!(world.events(ids[0]).await, ["submitted", "claimed", "retrying", "woken", "parked", "woken", "claimed"]);
    world.check().await;
}

#[tokio::test]
async fn several_keys_are_taken_all_or_none() {
    let world = World::create().await;
    let mut spec = DefinitionSpec::new("invoice", "clerk");
    spec.concurrency = vec![
        ConcurrencySpec { key: "metadata.a".into(), limit: 1 },
        ConcurrencySpec { key: "metadata.b".into(), limit: 1 },
    ];
    let version = world.store.put_definition(Some(world.tenant), &spec).await.unwrap().id;
    let needs: [Value; 3] = [json!({"a": "1"}), json!({"a": "1", "b": "1"}), json!({"b": "1"})];
    let new = |n: usize, new: NewExecution| NewExecution {
        metadata: needs[n].clone(),
        definition_version_id: version.into(),
        ..new
    };
    let submitted = submit(&world, 3, new).await;
    let worker = world.worker().await;
    let claimed = worker.claim(3).await;
    assert_eq!(ids(&claimed), [submitted[0], submitted[2]], "one needs both and got neither");
    worker.finish(&claimed[0]).await.unwrap();
    assert_eq!(reason(&world, submitted[1]).await.as_deref(), Some("concurrency_limit"), "the other is still held");
    assert_eq!(held(&world).await, 1);
    let ended = worker.finish(&claimed[1]).await.unwrap();
    assert_eq!(ended.woken[0].id, submitted[1]);
    let last = worker.claim_one().await;
    assert_eq!((last.id, held(&world).await), (submitted[1], 2));
    worker.finish(&last).await.unwrap();
    assert_eq!(held(&world).await, 0);
    world.check().await;
}

/// A limit of one whose slot is held, and a second execution that needs it.
async fn contended() -> (World, TestWorker, Claimed, ExecutionId) {
    let world = World::create().await;
    world.store.put_limit(Some(world.tenant), &key("definition"), 1).await.unwrap();
    let first = world.submit(1).await[0];
    let worker = world.worker().await;
    let holder = worker.claim_one().await;
    assert_eq!(holder.id, first);
    let second = world.submit(1).await[0];
    (world, worker, holder, second)
}

#[tokio::test]
async fn slot_freed_before_the_park_is_taken() {
    let (_world, worker, holder, second) = contended().await;
    worker.finish(&holder).await.unwrap();
    assert_eq!(worker.claim_one().await.id, second);
}

#[tokio::test]
async fn slot_freed_after_the_park_wakes_waiter() {
    let (world, worker, holder, second) = contended().await;
    assert!(worker.claim(1).await.is_empty());
    worker.finish(&holder).await.unwrap();
    assert_eq!(worker.claim_one().await.id, second);
    world.check().await;
}

#[tokio::test]
async fn slot_freed_during_the_park_wakes_waiter() {
    let (world, worker, holder, second) = contended().await;
    // The lock stops both hand-overs after their facts are committed.
    let mut gate = world.pool().begin().await.unwrap();
    sqlx::query("select from slot_keys for update").fetch_all(&mut *gate).await.unwrap();
    let park = async { worker.claim(1).await };
    let free = async { worker.finish(&holder).await.unwrap() };
    let open = async {
        crate::support::wait::eventually("both facts are committed", Duration::from_secs(60), async || {
            let parked = number(&world, "select count(*) from slot_waiters").await;
            let held = held(&world).await;
            if (parked, held) == (1, 0) { Ok(()) } else { Err(format!("{parked} parked, {held} held")) }
        })
        .await;
        gate.commit().await.unwrap();
    };
    let (claimed, _, ()) = tokio::join!(park, free, open);
    // The later of the two hands the slot over; the claim may have taken it at once.
    let claimed = if claimed.is_empty() { worker.claim(1).await } else { claimed };
    assert_eq!(ids(&claimed), [second]);
    world.check().await;
}

#[tokio::test]
async fn missing_handover_is_repaired_by_the_sweep() {
    let (world, worker, holder, second) = contended().await;
    assert!(worker.claim(1).await.is_empty());
    // Clears the lease without a hand-over, as a process does that dies in between.
    sqlx::query("update executions set worker_id = null, active_until = null, wait_reason = 'worker' where id = $1")
        .bind(holder.id.0)
        .execute(world.pool())
        .await
        .unwrap();
    assert_eq!((held(&world).await, reason(&world, second).await.as_deref()), (0, Some("concurrency_limit")));
    assert_eq!(world.store.sweep_slots(None, 100).await.unwrap().0[0].id, second);
    assert!(world.store.sweep_slots(None, 100).await.unwrap().0.is_empty());
}

#[tokio::test]
async fn dead_holders_slot_is_freed_with_its_lease() {
    let (world, worker, holder, second) = contended().await;
    assert!(worker.claim(1).await.is_empty());
    worker.die().await;
    assert_eq!(world.store.reap(100).await.unwrap().len(), 1);
    assert_eq!(held(&world).await, 0);
    assert_eq!(world.store.sweep_slots(None, 100).await.unwrap().0[0].id, second);
    let another = world.worker().await;
    let claimed = another.claim(2).await;
    assert_eq!(ids(&claimed), [second], "who died with its worker is behind it");
    another.finish(&claimed[0]).await.unwrap();
    assert_eq!(another.claim_one().await.id, holder.id);
    world.check().await;
}

#[tokio::test]
async fn cancel_or_deadline_removes_the_waiter() {
    let (world, worker, holder, second) = contended().await;
    let mut third = world.new_execution().await;
    third.deadline = Duration::from_secs(60);
    let third_id = third.id;
    world.store.submit_executions(&[third.into()]).await.unwrap();
    let fourth = world.submit(1).await[0];
    assert!(worker.claim(5).await.is_empty());
    assert_eq!(world.store.cancel_execution(world.tenant, second).await.unwrap(), Cancelled::Ended);
    world.shift_clock(61.0).await;
    world.store.wake_due(100).await.unwrap();
    assert_eq!(world.standing(third_id).await.2.as_deref(), Some("deadline_exceeded"));
    assert_eq!(number(&world, "select count(*) from slot_waiters").await, 1);
    // An execution that was handed the slot and is cancelled before it is claimed.
    worker.finish(&holder).await.unwrap();
    assert_eq!(holders(&world).await, [fourth.0].into());
    assert_eq!(world.store.cancel_execution(world.tenant, fourth).await.unwrap(), Cancelled::Ended);
    assert_eq!(held(&world).await, 0);
    world.check().await;
}

#[tokio::test]
async fn limit_is_resized_or_removed_while_in_use() {
    let world = World::create().await;
    let limit = key("definition");
    let put = async |max| world.store.put_limit(Some(world.tenant), &limit, max).await.unwrap();
    put(4).await;
    world.submit(12).await;
    let worker = world.worker().await;
    let mut claimed = worker.claim(12).await;
    assert_eq!(claimed.len(), 4);
    put(2).await;
    assert_eq!(held(&world).await, 4, "what is held stays held");
    worker.finish(&claimed.remove(0)).await.unwrap();
    worker.finish(&claimed.remove(0)).await.unwrap();
    assert_eq!((held(&world).await, worker.claim(12).await.len()), (2, 0), "two were over it");
    worker.finish(&claimed.remove(0)).await.unwrap();
    assert_eq!(worker.claim(12).await.len(), 1);
    assert_eq!(number(&world, "select count(*) from slots").await, 2);
    assert_eq!(put(5).await.len(), 3, "those that fit now are woken");
    assert_eq!(worker.claim(12).await.len(), 3);
    assert_eq!(put(0).await, []);
    world.submit(1).await;
    assert!(worker.claim(12).await.is_empty());
    assert!(world.store.remove_limit(Some(world.tenant), &limit).await.unwrap());
    assert!(!world.store.remove_limit(Some(world.tenant), &limit).await.unwrap());
    let woken = world.store.sweep_slots(None, 100).await.unwrap().0.len();
    assert_eq!(worker.claim(12).await.len(), woken);
    assert_eq!(number(&world, "select count(*) from executions where wait_reason = 'concurrency_limit'").await, 0);
    world.check().await;
}

#[tokio::test]
async fn held_queue_starts_nothing_until_released() {
    let world = World::create().await;
    let hold = key("queue:default");
    world.store.put_limit(Some(world.tenant), &hold, 0).await.unwrap();
    let ids = world.submit(2).await;
    let worker = world.worker().await;
    assert!(worker.claim(4).await.is_empty());
    assert_eq!(reason(&world, ids[0]).await.as_deref(), Some("concurrency_limit"));
    world.store.put_limit(Some(world.tenant), &key("queue:other"), 0).await.unwrap();
    assert!(world.store.remove_limit(Some(world.tenant), &hold).await.unwrap());
    world.store.sweep_slots(None, 100).await.unwrap();
    assert_eq!(worker.claim(4).await.len(), 2, "the hold of another queue does not count");
    world.check().await;
}

#[tokio::test]
async fn newest_definition_version_sets_the_limit() {
    let world = World::create().await;
    let put = async |limit: u32| {
        let mut spec = DefinitionSpec::new("invoice", "clerk");
        spec.concurrency = vec![ConcurrencySpec { key: "tenant".into(), limit }];
        world.store.put_definition(None, &spec).await.unwrap()
    };
    let first = put(1).await;
    let of = |_, new| NewExecution { definition_version_id: first.id.into(), ..new };
    submit(&world, 6, of).await;
    // The tenant's own definition of the same key is not limited by it.
    let own = world.store.put_definition(Some(world.tenant), &DefinitionSpec::new("invoice", "clerk")).await.unwrap();
    submit(&world, 3, |_, new| NewExecution { definition_version_id: own.id.into(), ..new }).await;
    let worker = world.worker().await;
    assert_eq!(worker.claim(20).await.len(), 1 + 3);
    let second = put(3).await;
    assert_eq!(world.store.sweep_slots(None, 100).await.unwrap().0.len(), 2, "for executions of every version");
    assert_eq!(worker.claim(20).await.len(), 2);
    assert!(world.store.remove_definition_version(None, "invoice", second.version).await.unwrap());
    assert_eq!(
        number(&world, "select max::bigint from limit_rules").await,
        1,
        "the version before it is the newest again"
    );
    world.check().await;
}

#[tokio::test]
async fn tenants_share_a_limit_in_turn() {
    let world = World::create().await;
    world.store.put_limit(None, &key("definition"), 2).await.unwrap();
    let small = world.store.ensure_tenant("small", None).await.unwrap().id;
    let many = world.submit(6).await;
    let one = submit(&world, 1, |_, new| NewExecution { tenant_id: small, ..new }).await[0];
    let worker = world.worker().await;
    let claimed = worker.claim(10).await;
    assert_eq!(claimed.len(), 2);
    let of_small = claimed.iter().filter(|one| one.tenant_id == small).count();
    if of_small == 0 {
        assert_eq!(worker.finish(&claimed[0]).await.unwrap().woken[0].id, one, "who holds none comes first");
    }
    assert!(many.contains(&claimed[0].id));
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_cost_two_updates_per_freed_slot() {
    const WAITERS: usize = 10_000;
    const FREED: usize = 50;
    let world = World::create().await;
    world.store.put_limit(Some(world.tenant), &key("definition"), 5).await.unwrap();
    submit(&world, WAITERS, |_, new| new).await;
    let worker = world.worker().await;
    let mut running = Vec::new();
    while number(&world, "select count(*) from executions where wait_reason = 'worker'").await > 0 {
        running.extend(worker.claim(100).await);
    }
    assert_eq!(running.len(), 5);
    let seq = "select sum(event_seq)::bigint from executions";
    let before = number(&world, seq).await;
    for _ in 0..FREED {
        worker.finish(&running.remove(0)).await.unwrap();
        running.extend(worker.claim(100).await);
        assert_eq!(running.len(), 5);
    }
    // Every update that moves an execution writes an event: one for the end, two for the next waiter.
    let updates = number(&world, seq).await - before;
    assert_eq!(updates, (FREED * 3) as i64, "{} updates besides the ends", updates - FREED as i64);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_and_resizes_never_overshoot_or_leak_slots() {
    const WORKERS: usize = 16;
    const CLAIMS: usize = 1_000;
    const LIMIT: i32 = 10;
    let world = World::create().await;
    let limit = key("definition");
    world.store.put_limit(Some(world.tenant), &limit, LIMIT).await.unwrap();
    submit(&world, 1_500, |_, new| new).await;
    let (claims, peak, over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let work = async |which: usize| {
        // Connections of its own, because workers are processes.
        let store = Store::open(StoreOptions { max_connections: 1, ..StoreOptions::new(&world.db.url) }).unwrap();
        let mut worker = TestWorker::start(&store).await;
        for round in 0..CLAIMS {
            if number(&world, "select count(*) from executions where finished_at is null").await == 0 {
                break;
            }
            let claimed = worker.claim(1 + i32::try_from(round % 3).unwrap()).await;
            claims.fetch_add(claimed.len(), Ordering::Relaxed);
            if (round + which) % 97 == 96 {
                // The worker dies with all it holds.
                worker.expire().await;
                bury(&world.store, Duration::ZERO).await;
                worker = TestWorker::start(&store).await;
                while !world.store.reap(500).await.unwrap().is_empty() {}
                world.store.sweep_slots(None, 100).await.unwrap();
                continue;
            }
            for (place, one) in claimed.iter().enumerate() {
                let conclusion = match (round + place) % 5 {
                    0 => Conclusion::Release { drained: false },
                    _ => Conclusion::Finish { output: "1".into() },
                };
                worker.end(one, conclusion).await.unwrap();
            }
        }
    };
    let done = tokio_util::sync::CancellationToken::new();
    let watch = async {
        // Shrinks and grows the limit: the held slots may exceed the smaller one, never the larger.
        let mut max = LIMIT;
        while !done.is_cancelled() {
            let now = usize::try_from(held(&world).await).unwrap();
            peak.fetch_max(now, Ordering::Relaxed);
            over.fetch_add(usize::from(now > LIMIT as usize), Ordering::Relaxed);
            max = if max == LIMIT { 4 } else { LIMIT };
            world.store.put_limit(Some(world.tenant), &limit, max).await.unwrap();
            tokio::task::yield_now().await;
        }
        world.store.put_limit(Some(world.tenant), &limit, LIMIT).await.unwrap();
    };
    let all = async {
        join_all((0..WORKERS).map(work)).await;
        done.cancel();
    };
    tokio::join!(all, watch);
    println!("{} claims, at most {} slots held", claims.load(Ordering::Relaxed), peak.load(Ordering::Relaxed));
    assert_eq!(over.load(Ordering::Relaxed), 0, "held more than {LIMIT}");
    assert!(peak.load(Ordering::Relaxed) > 1);
    // One last worker ends everything that is left.
    let last = world.worker().await;
    loop {
        world.store.clear_leaked_slots(None).await.unwrap();
        bury(&world.store, Duration::ZERO).await;
        while !world.store.reap(500).await.unwrap().is_empty() {}
        let claimed = last.claim(100).await;
        for one in &claimed {
            last.finish(one).await.unwrap();
        }
        if claimed.is_empty() && world.store.sweep_slots(None, 100).await.unwrap().0.is_empty() {
            break;
        }
    }
    assert_eq!(
        number(
            &world,
            "select count(*) from executions where status <> 'FINISHED' and failure_code is distinct from 'crash_loop'"
        )
        .await,
        0
    );
    assert_eq!(held(&world).await, 0);
    assert_eq!(number(&world, "select count(*) from slot_waiters").await, 0);
    world.check().await;
}

/// Sixty limits of the first tenant, each of ten thousand.
async fn sixty_large_limits(world: &World) {
    for number in 0..60 {
        world.store.put_limit(Some(world.tenant), &key(&format!("metadata.q{number}")), 10_000).await.unwrap();
    }
}

/// Metadata with an unused value for each of the sixty limits.
fn sixty_values(one: usize) -> Value {
    (0..60)
        .map(|number| (format!("q{number}"), Value::from(format!("{one}-{number}"))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[tokio::test]
async fn large_limits_create_only_taken_slots() {
    let world = World::create().await;
    sixty_large_limits(&world).await;
    let other = world.store.ensure_tenant("other", None).await.unwrap().id;
    let attack = submit(&world, 1, |one, new| NewExecution { metadata: sixty_values(one), ..new }).await;
    let theirs = of_tenant(&world, other, 1, 0).await;
    let worker = world.worker().await;
    assert_eq!(ids(&worker.claim(2).await).into_iter().collect::<BTreeSet<_>>(), [attack[0], theirs[0]].into());
    assert_eq!(number(&world, "select count(*) from slots").await, 60);
    assert_eq!(held(&world).await, 60);
    world.check().await;
}

#[tokio::test]
async fn claim_takes_bounded_slots_of_each_tenant() {
    let world = World::create().await;
    sixty_large_limits(&world).await;
    let other = world.store.ensure_tenant("other", None).await.unwrap().id;
    submit(&world, 100, |one, new| NewExecution { metadata: sixty_values(one), ..new }).await;
    let theirs = of_tenant(&world, other, 5, 0).await;
    let worker = world.worker().await;
    let first = worker.claim(100).await;
    let is_theirs = |one: &&Claimed| one.tenant_id == other;
    assert_eq!(first.iter().filter(is_theirs).count(), theirs.len(), "the other tenant's are claimed at once");
    assert_eq!(first.len() - theirs.len(), 120 / 60, "and as many of the first as one claim has slots for");
    // Executions beyond the bound were not parked, and later claims take them.
    assert_eq!(number(&world, "select count(*) from slot_waiters").await, 0);
    let mut rest = 100 - 120 / 60;
    while rest > 0 {
        let claimed = worker.claim(100).await.len();
        assert!(claimed > 0, "{rest} are left");
        rest -= claimed;
    }
    assert_eq!(number(&world, "select count(*) from slots").await, 6_000);
    world.check().await;
}

/// Another claim is creating a slot of the same key: this claim neither waits for it nor parks an execution behind
/// it.
#[tokio::test]
async fn claim_goes_on_while_another_makes_the_slot() {
    let world = World::create().await;
    world.store.put_limit(Some(world.tenant), &key("definition"), 10).await.unwrap();
    let other = world.store.ensure_tenant("other", None).await.unwrap().id;
    let ours = world.submit(2).await;
    let worker = world.worker().await;
    assert_eq!(ids(&worker.claim(1).await), ours[..1]);
    let theirs = of_tenant(&world, other, 1, 0).await;
    let mut maker = world.pool().begin().await.unwrap();
    sqlx::query("select from slot_keys for update").fetch_all(&mut *maker).await.unwrap();
    assert_eq!(ids(&worker.claim(2).await), theirs);
    assert_eq!(reason(&world, ours[1]).await.as_deref(), Some("worker"));
    maker.commit().await.unwrap();
    assert_eq!(ids(&worker.claim(2).await), ours[1..]);
    world.check().await;
}

#[tokio::test]
async fn grown_limit_refills_gaps_between_held_slots() {
    let world = World::create().await;
    let limit = key("definition");
    let put = async |max| world.store.put_limit(Some(world.tenant), &limit, max).await.unwrap();
    put(6).await;
    world.submit(20).await;
    let worker = world.worker().await;
    let mut claimed = worker.claim(6).await;
    assert_eq!(claimed.len(), 6);
    put(1).await;
    // Two of the six end, and their slots are removed.
    for _ in 0..2 {
        worker.finish(&claimed.remove(1)).await.unwrap();
    }
    put(6).await;
    let more = worker.claim(6).await.len() + worker.claim(6).await.len();
    assert_eq!((held(&world).await, more), (6, 2));
    assert_eq!(number(&world, "select count(*) from slots").await, 6);
    world.check().await;
}

#[tokio::test]
async fn unused_slot_key_is_deleted() {
    let world = World::create().await;
    world.store.put_limit(Some(world.tenant), &key("metadata.customer"), 3).await.unwrap();
    submit_for(&world, "acme", 1).await;
    submit_for(&world, &"long ".repeat(1_000), 1).await;
    let worker = world.worker().await;
    let claimed = worker.claim(2).await;
    assert_eq!(held(&world).await, 2);
    worker.finish(&claimed[0]).await.unwrap();
    world.shift_clock(4_000.0).await;
    world.store.tidy_slots().await.unwrap();
    assert_eq!(number(&world, "select count(*) from slot_keys").await, 1, "one is held");
    worker.finish(&claimed[1]).await.unwrap();
    // Found in use, it counts as used until then.
    world.shift_clock(4_000.0).await;
    world.store.tidy_slots().await.unwrap();
    assert_eq!(number(&world, "select count(*) from slot_keys").await, 0);
    assert_eq!(number(&world, "select count(*) from slots").await, 0);
}
