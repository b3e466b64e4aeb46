//! Quarantine of executions that kill their workers: its records, and how it releases them
//! (docs/design/quarantine.md).
//!
//! The file is long because all its tests begin with the same convicted executions.

use std::time::Duration;

use futures::future::join_all;
use longhaul_domain::ExecutionId;
use longhaul_store::executions::claims::Lane;
use longhaul_store::executions::control::{Cancelled, Continue};
use longhaul_store::executions::submit::NewExecution;
use longhaul_store::fleet::workers::{HeartbeatConnection, Renewal};
use longhaul_store::history::journal::StepKind::{Prompt, Turn};
use longhaul_store::quarantine::{QuarantineRules, Quarantined, Refused, Released, Tended};
use longhaul_store::tenants::scope::TenantScope;
use serde_json::json;

use crate::support::leases::{LONG_LEASE, TestWorker, World, step, write};

const RULES: QuarantineRules = QuarantineRules {
    auto_release: true,
    hold_after: 3,
    hold_window: Duration::from_secs(3_600),
    release_per_minute: 60,
};

/// Runs one pass. Moves the clock first, so that a canary's verdict is not too fresh and portions are due.
async fn tend(world: &World) -> Tended {
    tend_by(world, &RULES).await
}

async fn tend_by(world: &World, rules: &QuarantineRules) -> Tended {
    world.shift_clock(11.0).await;
    world.store.tend_quarantine(rules).await.unwrap()
}

/// A new worker of `build` claims all it may and dies. Returns the number of executions it held.
async fn death(world: &World, build: &str) -> usize {
    let worker = world.worker_of(build).await;
    let held = worker.claim(1_000).await.len();
    worker.die().await;
    world.store.reap(1_000).await.unwrap();
    held
}

/// Quarantines `count` executions, each after killing three workers of `build`.
async fn quarantine(world: &World, count: usize, build: &str) -> Vec<ExecutionId> {
    let mut all = Vec::new();
    for _ in 0..count {
        let id = world.submit(1).await[0];
        for _ in 0..3 {
            assert_eq!(death(world, build).await, 1);
        }
        assert_eq!(world.standing(id).await.2.as_deref(), Some("crash_loop"));
        all.push(id);
    }
    all
}

async fn record(world: &World, id: ExecutionId) -> Quarantined {
    world.store.find_quarantined(&world.tenant.into(), id).await.unwrap().expect("is or was in quarantine")
}

async fn only_retry(world: &World, of: ExecutionId) -> Option<ExecutionId> {
    let ids: Vec<uuid::Uuid> = sqlx::query_scalar("select id from executions where retry_of = $1 order by id")
        .bind(of.0)
        .fetch_all(world.pool())
        .await
        .unwrap();
    assert!(ids.len() <= 1, "{of} was released {} times", ids.len());
    ids.first().map(|id| ExecutionId(*id))
}

/// Claims the only runnable execution, records a step and finishes it.
async fn live_through(worker: &TestWorker, id: ExecutionId) {
    let claimed = worker.claim_one().await;
    assert_eq!(claimed.id, id);
    worker.record(write(&claimed, 1, vec![step(100, Turn, "past it")])).await.unwrap();
    worker.finish(&claimed).await.unwrap();
}

#[tokio::test]
async fn quarantine_record_holds_deaths_step_and_memory() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let first = world.worker_of("one").await;
    let claimed = first.claim_one().await;
    let steps = vec![step(1, Prompt, "the prompt"), step(2, Turn, "the turn")];
    first.record(write(&claimed, 1, steps)).await.unwrap();
    first.die().await;
    world.store.reap(10).await.unwrap();
    assert_eq!(death(&world, "two").await, 1);

    // A suspect: its worker notes each phase, and the heartbeat the memory of the process.
    let last = world.worker_of("three").await;
    let claimed = last.claim_one().await;
    let mut heartbeat = HeartbeatConnection::new(&world.store);
    assert_eq!(heartbeat.renew(last.id, LONG_LEASE, Some(777), true).await.unwrap(), Renewal::Renewed);
    for phase in ["restoring its journal", "calling render_pdf"] {
        world.store.note_suspect(last.id, (id, claimed.token), phase, Some(700)).await.unwrap();
    }
    last.die().await;
    // A note of a dead worker is ignored.
    world.store.note_suspect(last.id, (id, claimed.token), "afterwards", None).await.unwrap();
    world.store.reap(10).await.unwrap();

    let kept = record(&world, id).await;
    assert_eq!((kept.phase.as_str(), kept.memory_bytes), ("calling render_pdf", Some(777)));
    assert_eq!(kept.last_step, Some(json!({"seq": 2, "kind": "turn", "state": "live", "name": "scripted"})));
    assert_eq!(
        (kept.queue.as_str(), kept.definition_key.as_str(), kept.state.as_str()),
        ("default", "invoice", "quarantined")
    );
    let deaths = kept.deaths.as_array().unwrap();
    let builds: Vec<_> = deaths.iter().map(|death| (&death["attempt"], death["build"].as_str().unwrap())).collect();
    assert_eq!(builds, [(&json!(1), "one"), (&json!(2), "two"), (&json!(3), "three")]);
    assert_eq!((&deaths[2]["worker_id"], &deaths[2]["host"]), (&json!(last.id.to_string()), &json!("test")));
    assert_eq!((&deaths[2]["memory_bytes"], &deaths[0]["memory_bytes"]), (&json!(777), &json!(null)));
    // The execution's own failure holds the same, for readers of that alone.
    let (summary, detail): (String, serde_json::Value) =
        sqlx::query_as("select failure_summary, failure_detail::jsonb from execution_payloads where execution_id = $1")
            .bind(id.0)
            .fetch_one(world.pool())
            .await
            .unwrap();
    assert!(summary.contains("3 workers died") && summary.contains("calling render_pdf"), "{summary}");
    assert_eq!((&detail["phase"], &detail["deaths"]), (&json!("calling render_pdf"), &kept.deaths));
    world.check().await;
}

#[tokio::test]
async fn new_build_releases_a_canary_before_the_rest() {
    let world = World::create().await;
    let ids = quarantine(&world, 2, "broken").await;
    let old = world.worker_of("broken").await;
    assert_eq!(tend(&world).await, Tended::default(), "the same build lives");

    let new = world.worker_of("mended").await;
    let canary = tend(&world).await.runnable;
    assert_eq!(canary.len(), 1);
    assert_eq!(only_retry(&world, ids[0]).await, Some(canary[0].id));
    assert_eq!(record(&world, ids[0]).await.released_as, Some(canary[0].id));
    assert_eq!(tend(&world).await, Tended::default(), "it has not ended");
    assert!(old.claim(10).await.is_empty(), "a worker of the old build must not have it");
    let claimed = new.claim_one().await;
    assert_eq!((claimed.id, claimed.lane), (canary[0].id, Lane::Alone), "alone");
    assert!(claimed.has_history, "it goes on from the journal");
    new.record(write(&claimed, 1, vec![step(100, Turn, "past it")])).await.unwrap();
    assert_eq!(tend(&world).await, Tended::default(), "it still runs");
    new.finish(&claimed).await.unwrap();

    let passed = tend(&world).await;
    assert_eq!(passed.passed, [canary[0].id]);
    assert_eq!(passed.runnable.len(), 1);
    assert_eq!(only_retry(&world, ids[1]).await, Some(passed.runnable[0].id));
    assert!(old.claim(10).await.is_empty(), "nor the rest");
    live_through(&new, passed.runnable[0].id).await;
    for id in ids {
        assert_eq!(world.standing(id).await.2.as_deref(), Some("crash_loop"), "terminal is terminal");
    }
    world.shift_clock(120.0).await;
    tend(&world).await;
    let groups: i64 =
        sqlx::query_scalar("select count(*) from quarantine_groups").fetch_one(world.pool()).await.unwrap();
    assert_eq!(groups, 0, "nobody waits in it");
    world.check().await;
}

#[tokio::test]
async fn killing_canary_shuts_group_until_another_build() {
    let world = World::create().await;
    let ids = quarantine(&world, 3, "broken").await;
    let second = world.worker_of("broken-too").await;
    let canary = tend(&world).await.runnable[0].id;
    assert_eq!(second.claim_one().await.id, canary);
    second.die().await;
    // One death convicts a canary.
    assert_eq!(world.store.reap(10).await.unwrap()[0].failure_code.as_deref(), Some("crash_loop"));
    let _same = world.worker_of("broken-too").await;
    assert!(tend(&world).await.runnable.is_empty());
    for &id in &ids[1..] {
        assert_eq!(only_retry(&world, id).await, None);
        let group = record(&world, id).await.group().unwrap();
        assert_eq!(group.died_builds, ["broken", "broken-too"]);
        assert_eq!((group.state.as_str(), group.canary), ("shut", None));
    }
    assert_eq!(record(&world, canary).await.deaths[0]["build"], "broken-too");

    let third = world.worker_of("mended").await;
    let next = tend(&world).await.runnable[0].id;
    assert_eq!(only_retry(&world, ids[1]).await, Some(next), "the oldest that is left");
    live_through(&third, next).await;
    let rest = tend(&world).await.runnable;
    assert_eq!(rest.len(), 2, "the third, and the canary that killed");
    assert!(only_retry(&world, canary).await.is_some());
    // A later release that kills its worker under this build shuts the group again.
    let claimed = third.claim(1).await;
    third.die().await;
    world.store.reap(10).await.unwrap();
    assert_eq!(record(&world, claimed[0].id).await.group().unwrap().state, "shut");
    world.check().await;
}

#[tokio::test]
async fn cancelled_canary_is_followed_by_another() {
    let world = World::create().await;
    let ids = quarantine(&world, 2, "broken").await;
    let _new = world.worker_of("mended").await;
    let canary = tend(&world).await.runnable[0].id;
    assert_eq!(world.store.cancel_execution(world.tenant, canary).await.unwrap(), Cancelled::Ended);
    let next = tend(&world).await;
    assert!(next.passed.is_empty());
    assert_eq!(only_retry(&world, ids[1]).await, Some(next.runnable[0].id));
}

#[tokio::test]
async fn concurrent_passes_release_each_execution_once() {
    let world = World::create().await;
    let ids = quarantine(&world, 4, "broken").await;
    let new = world.worker_of("mended").await;
    world.shift_clock(11.0).await;
    let passes = join_all((0..8).map(|_| world.store.tend_quarantine(&RULES))).await;
    let canaries: Vec<_> = passes.into_iter().flat_map(|tended| tended.unwrap().runnable).collect();
    assert_eq!(canaries.len(), 1, "{canaries:?}");
    live_through(&new, canaries[0].id).await;
    world.shift_clock(11.0).await;
    let passes = join_all((0..8).map(|_| world.store.tend_quarantine(&RULES))).await;
    let rest: usize = passes.into_iter().map(|tended| tended.unwrap().runnable.len()).sum();
    assert_eq!(rest, 3);
    for id in ids {
        assert!(only_retry(&world, id).await.is_some());
    }
    world.check().await;
}

#[tokio::test]
async fn rest_of_a_group_follows_in_portions() {
    let world = World::create().await;
    quarantine(&world, 4, "broken").await;
    let new = world.worker_of("mended").await;
    // Six a minute are one in ten seconds.
    let slowly = QuarantineRules { release_per_minute: 6, ..RULES };
    let canary = tend_by(&world, &slowly).await.runnable[0].id;
    live_through(&new, canary).await;
    for _ in 0..3 {
        assert_eq!(tend_by(&world, &slowly).await.runnable.len(), 1);
        let early = world.store.tend_quarantine(&slowly).await.unwrap();
        assert!(early.runnable.is_empty(), "the next is not due");
    }
    assert!(tend_by(&world, &slowly).await.runnable.is_empty());
}

#[tokio::test]
async fn cancelled_overdue_or_retried_execution_is_not_released() {
    let world = World::create().await;
    let mut soon = world.new_execution().await;
    soon.deadline = Duration::from_secs(120);
    let overdue = soon.id;
    world.store.submit_executions(&[soon.into()]).await.unwrap();
    for _ in 0..3 {
        death(&world, "broken").await;
    }
    let ids = quarantine(&world, 2, "broken").await;
    assert!(matches!(world.store.cancel_execution(world.tenant, ids[0]).await.unwrap(), Cancelled::AlreadyOver(_)));
    let retry = retry_by_hand(&world, ids[1]).await;
    assert_eq!(record(&world, ids[1]).await.released_as, Some(retry.id));
    world.shift_clock(200.0).await;
    let _new = world.worker_of("mended").await;
    assert_eq!(tend(&world).await.runnable, []);
    for (id, state) in [(overdue, "expired"), (ids[0], "withdrawn"), (ids[1], "released")] {
        assert_eq!(record(&world, id).await.state, state);
    }
    assert_eq!(world.store.list_quarantined(&world.tenant.into(), false, None, 10).await.unwrap(), []);
    assert_eq!(world.store.list_quarantined(&world.tenant.into(), true, None, 10).await.unwrap().len(), 3);
    // It killed three workers, so its retry is a suspect from the start and one more death convicts it.
    assert_eq!(death(&world, "broken").await, 1);
    assert_eq!(world.standing(retry.id).await.2.as_deref(), Some("crash_loop"));
}

async fn retry_by_hand(world: &World, id: ExecutionId) -> NewExecution {
    let retry = world.store.read_origin(world.tenant, id).await.unwrap().unwrap().execution;
    world.store.submit_retry(id, &retry, "crash_loop", Continue::FromJournal).await.unwrap();
    retry
}

#[tokio::test]
async fn person_releases_one_or_all_of_own_tenant() {
    let world = World::create().await;
    let ids = quarantine(&world, 3, "broken").await;
    let old = world.worker_of("broken").await;
    let other: TenantScope = world.store.ensure_tenant("beta", None).await.unwrap().id.into();
    assert_eq!(world.store.find_quarantined(&other, ids[0]).await.unwrap(), None);
    assert_eq!(world.store.release_quarantined(&other, ids[0], false).await.unwrap(), Released::NotFound);
    assert_eq!(world.store.list_quarantined(&other, true, None, 10).await.unwrap(), []);
    assert_eq!(world.store.list_quarantined(&TenantScope::Everybody, false, None, 10).await.unwrap().len(), 3);

    let mine: TenantScope = world.tenant.into();
    let Released::Canary(canary) = world.store.release_quarantined(&mine, ids[1], false).await.unwrap() else {
        panic!()
    };
    assert_eq!(only_retry(&world, ids[1]).await, Some(canary.id));
    let again = world.store.release_quarantined(&mine, ids[1], false).await.unwrap();
    assert_eq!(again, Released::Refused(Refused::Before(canary.id)));
    let beside = world.store.release_quarantined(&mine, ids[0], false).await.unwrap();
    assert_eq!(beside, Released::Refused(Refused::CanaryRuns(canary.id)));
    assert_eq!(old.claim_one().await.id, canary.id, "whatever the build");
    old.die().await;
    world.store.reap(10).await.unwrap();

    let by_hand = QuarantineRules { auto_release: false, ..RULES };
    let _mended = world.worker_of("mended").await;
    assert_eq!(tend_by(&world, &by_hand).await.runnable, [], "nobody releases by themselves");
    assert_eq!(world.store.release_quarantined(&mine, ids[0], true).await.unwrap(), Released::All);
    assert_eq!(tend_by(&world, &by_hand).await.runnable.len(), 3);
    for id in [ids[0], ids[2], canary.id] {
        assert!(only_retry(&world, id).await.is_some());
    }
}

#[tokio::test]
async fn new_executions_are_held_while_broken_build_lives() {
    let world = World::create().await;
    let ids = quarantine(&world, 2, "broken").await;
    let began = world.submit(1).await[0];
    let old = world.worker_of("broken").await;
    let claimed = old.claim_one().await;
    assert_eq!(claimed.id, began);
    let queued = world.submit(2).await;
    assert!(tend(&world).await.held.is_empty(), "two are no pattern");
    let third = world.worker_of("broken").await;
    sqlx::query("update executions set lane = 1, crash_count = 2 where id = $1")
        .bind(queued[0].0)
        .execute(world.pool())
        .await
        .unwrap();
    let suspect = third.claim(10).await;
    third
        .record(write(suspect.iter().find(|one| one.id == queued[1]).unwrap(), 1, vec![step(1, Turn, "fine")]))
        .await
        .unwrap();
    third.die().await;
    world.store.reap(10).await.unwrap();
    let more = world.submit(2).await;

    assert_eq!(tend(&world).await.held, ["invoice"]);
    let world = &world;
    let standing = |id: ExecutionId| world.standing(id);
    let paused = ("PENDING".to_owned(), Some("queue_paused".to_owned()), None);
    for &id in &more {
        assert_eq!(standing(id).await, paused, "queued before");
    }
    let late = world.submit(1).await[0];
    assert_eq!(standing(late).await, paused, "submitted since");
    assert_eq!(standing(queued[1]).await.1.as_deref(), Some("worker"), "it began");
    let holding = world.store.explain_waiting(&world.tenant.into(), late).await.unwrap().unwrap().holding.unwrap();
    assert_eq!((holding.quarantined, holding.group.died_builds.as_slice()), (3, ["broken".to_owned()].as_slice()));
    // The hold does not apply to another agent version.
    let mut other = world.new_execution().await;
    other.agent_version_id = uuid::Uuid::new_v4().into();
    let other_id = other.id;
    world.store.submit_executions(&[other.into()]).await.unwrap();
    assert_eq!(standing(other_id).await.1.as_deref(), Some("worker"));
    world.check().await;

    // A child is held back as well.
    let children = old.spawn(&claimed, 0..1).await;
    assert_eq!(standing(children[0]).await, paused);
    world.check().await;

    // A canary passes while workers of the old build still live.
    let new = world.worker_of("mended").await;
    let canary = tend(world).await.runnable[0].id;
    assert_eq!(only_retry(world, ids[0]).await, Some(canary));
    let taken = new.claim(10).await;
    let own = taken.iter().find(|one| one.id == canary).unwrap();
    new.record(write(own, 1, vec![step(100, Turn, "past it")])).await.unwrap();
    new.finish(own).await.unwrap();
    assert_eq!(tend(world).await.passed, [canary]);
    world.store.wake_unheld(100).await.unwrap();
    assert_eq!(standing(late).await, paused, "the old build would die of it");
    old.die().await;
    tend(world).await;
    let woken = world.store.wake_unheld(100).await.unwrap();
    assert_eq!(woken.len(), 4, "two that were queued, a late one, a child");
    assert_eq!(standing(late).await.1.as_deref(), Some("worker"));
    assert_eq!(standing(world.submit(1).await[0]).await.1.as_deref(), Some("worker"));
    world.check().await;
}

#[tokio::test]
async fn held_execution_is_canary_when_quarantine_has_none() {
    let world = World::create().await;
    quarantine(&world, 3, "broken").await;
    // Children are never released, because their parents were told of the end and went on.
    sqlx::query("update quarantine set is_child = true").execute(world.pool()).await.unwrap();
    assert_eq!(tend(&world).await.held, ["invoice"]);
    let held = world.submit(2).await;
    assert!(tend(&world).await.runnable.is_empty(), "no other build lives");
    let new = world.worker_of("mended").await;
    assert!(new.claim(10).await.is_empty());
    let canary = tend(&world).await.runnable;
    assert_eq!(canary.iter().map(|one| one.id).collect::<Vec<_>>(), [held[0]]);
    live_through(&new, held[0]).await;
    assert_eq!(tend(&world).await.passed, [held[0]]);
    assert_eq!(world.store.wake_unheld(10).await.unwrap()[0].id, held[1]);
    world.check().await;
}

async fn waits_for(world: &World, id: ExecutionId) -> Option<String> {
    world.store.wake_unheld(100).await.unwrap();
    world.standing(id).await.1
}

/// No canary is left to try and no other build lives, so the hold would outlast its cause.
#[tokio::test]
async fn hold_ends_when_its_causes_are_withdrawn() {
    let world = World::create().await;
    let ids = quarantine(&world, 3, "broken").await;
    let same = world.worker_of("broken").await;
    assert_eq!(tend(&world).await.held, ["invoice"]);
    let queued = world.submit(1).await[0];
    for (withdrawn, id) in (1..).zip(&ids) {
        assert_eq!(waits_for(&world, queued).await.as_deref(), Some("queue_paused"), "{withdrawn} are left");
        let _ = world.store.cancel_execution(world.tenant, *id).await.unwrap();
        assert_eq!(tend(&world).await, Tended::default());
    }
    assert_eq!(waits_for(&world, queued).await.as_deref(), Some("worker"));
    let new = world.submit(1).await[0];
    assert_eq!(waits_for(&world, new).await.as_deref(), Some("worker"));
    assert_eq!(same.claim(10).await.len(), 2);
    world.check().await;
}

#[tokio::test]
async fn hold_outlasts_expired_causes_by_its_window() {
    let world = World::create().await;
    let ids = quarantine(&world, 3, "broken").await;
    sqlx::query("update quarantine set deadline_at = longhaul_now() + interval '1 minute'")
        .execute(world.pool())
        .await
        .unwrap();
    assert_eq!(tend(&world).await.held, ["invoice"]);
    let queued = world.submit(1).await[0];
    world.shift_clock(120.0).await;
    assert_eq!(record(&world, ids[0]).await.state, "expired");
    assert_eq!(tend(&world).await, Tended::default());
    assert_eq!(waits_for(&world, queued).await.as_deref(), Some("queue_paused"), "it killed within the hour");
    world.shift_clock(3_600.0).await;
    assert_eq!(tend(&world).await, Tended::default());
    assert_eq!(waits_for(&world, queued).await.as_deref(), Some("worker"));
}

/// A person's release, even if the execution that names the group was withdrawn or has expired.
#[tokio::test]
async fn withdrawn_or_overdue_execution_releases_its_group() {
    for change in ["withdrawn_at = longhaul_now()", "deadline_at = longhaul_now() - interval '1 second'"] {
        let world = World::create().await;
        let ids = quarantine(&world, 3, "broken").await;
        let _same = world.worker_of("broken").await;
        assert_eq!(tend(&world).await.held, ["invoice"]);
        let queued = world.submit(1).await[0];
        sqlx::query(sqlx::AssertSqlSafe(format!("update quarantine set {change} where execution_id = $1")))
            .bind(ids[0].0)
            .execute(world.pool())
            .await
            .unwrap();
        let mine: TenantScope = world.tenant.into();
        let alone = world.store.release_quarantined(&mine, ids[0], false).await.unwrap();
        assert!(matches!(alone, Released::Refused(Refused::Withdrawn | Refused::Expired)), "{alone:?}");
        assert_eq!(world.store.release_quarantined(&mine, ids[0], true).await.unwrap(), Released::All);
        assert_eq!(tend(&world).await.runnable.len(), 2, "the others");
        assert_eq!(waits_for(&world, queued).await.as_deref(), Some("worker"));
        world.check().await;
    }
}

#[tokio::test]
async fn release_inherits_remaining_budget_and_deadline() {
    let world = World::create().await;
    let id = quarantine(&world, 1, "broken").await[0];
    sqlx::query(
        "insert into budgets (root_id, tenant_id, max_cost, max_tokens, on_exhausted, spent_cost, spent_tokens, \
         reserved_tokens)
         values ($1, $2, 1000, 500, 'park', 300, 450, 100)",
    )
    .bind(id.0)
    .bind(world.tenant.0)
    .execute(world.pool())
    .await
    .unwrap();
    let _new = world.worker_of("mended").await;
    let retry = tend(&world).await.runnable[0].id;
    let left: (Option<i64>, Option<i64>, Option<i64>) =
        sqlx::query_as("select max_cost, max_tokens, max_calls from budgets where root_id = $1")
            .bind(retry.0)
            .fetch_one(world.pool())
            .await
            .unwrap();
    assert_eq!(left, (Some(700), Some(0), None));
    let drift: f64 = sqlx::query_scalar(
        "select abs(extract(epoch from r.deadline_at - o.deadline_at))::float8 from executions r join executions o \
         on o.id = r.retry_of
         where r.id = $1",
    )
    .bind(retry.0)
    .fetch_one(world.pool())
    .await
    .unwrap();
    assert!(drift < 60.0, "its deadline moved by {drift} s");
}
