//! Core-rules 27: what follows an end never decides over it. Every table that a reaction reads is locked, deleted from
//! or made invalid while executions end; the reactions come later, each once and each alone.

use std::{collections::BTreeSet, fs, time::Duration};

use chrono::TimeDelta;
use longhaul_domain::{ExecutionId, SessionId};
use longhaul_store::{
    StoreError,
    database::outage::ClaimGate,
    ends::{Line, Reaction, Subject},
    executions::{control::Cancelled, submit::NewExecution},
};
use sqlx::PgPool;
use uuid::Uuid;

use crate::support::leases::{TestWorker, World};
use crate::support::wait::{SOON, eventually, within};

/// Tables that reactions read or write.
const SIDE_TABLES: &str = "webhook_endpoints, webhook_deliveries, projects, project_tasks, project_phases, \
     project_signals, project_events, schedules, schedule_firings, schedule_months, memory_sources, memory_updates";

async fn run(pool: &PgPool, statement: &'static str) {
    sqlx::raw_sql(statement).execute(pool).await.unwrap();
}

async fn count(world: &World, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(world.pool()).await.unwrap()
}

/// An endpoint of the world's tenant that is told of every end.
async fn endpoint(world: &World) -> Uuid {
    sqlx::query_scalar(
        "insert into webhook_endpoints (id, tenant_id, url, types, created_at)
         values (gen_random_uuid(), $1, 'http://127.0.0.1/', '{execution.finished,execution.failed,question.asked}',
             now())
         returning id",
    )
    .bind(world.tenant.0)
    .fetch_one(world.pool())
    .await
    .unwrap()
}

/// Executions that every reaction follows.
async fn followed(world: &World, n: usize) -> Vec<ExecutionId> {
    let ids = world.submit(n).await;
    run(
        world.pool(),
        "update executions set project_id = gen_random_uuid(), schedule_id = gen_random_uuid(), has_memory = true",
    )
    .await;
    ids
}

async fn finish_all(world: &World, worker: &TestWorker) {
    let claimed = worker.claim(100).await;
    let ending = async {
        for ended in futures::future::join_all(claimed.iter().map(|claimed| worker.finish(claimed))).await {
            ended.unwrap();
        }
    };
    within("the executions end", SOON, ending).await;
    assert_eq!(count(world, "select count(*) from executions where status <> 'FINISHED'").await, 0);
}

async fn due(world: &World, reaction: Reaction) -> Vec<Subject> {
    world.store.due_ends(reaction, Line::First, 1_000).await.unwrap()
}

#[tokio::test]
async fn deleted_webhook_ends_no_execution_with_an_error() {
    let world = World::create().await;
    let id = endpoint(&world).await;
    let worker = world.worker().await;
    world.submit(5).await;
    let mut deleting = world.pool().begin().await.unwrap();
    sqlx::query("delete from webhook_endpoints where id = $1").bind(id).execute(&mut *deleting).await.unwrap();
    finish_all(&world, &worker).await;
    deleting.commit().await.unwrap();
    let told = due(&world, Reaction::Webhook).await;
    assert_eq!(told.iter().map(|tenant| tenant.rows.len()).sum::<usize>(), 5);
    world.store.tell_due_webhooks(100).await.unwrap();
    assert_eq!(count(&world, "select count(*) from ends").await, 0, "an endpoint that is gone is told nothing");
    world.check().await;
}

#[tokio::test]
async fn locked_side_tables_hold_up_no_end() {
    let world = World::create().await;
    endpoint(&world).await;
    let worker = world.worker().await;
    let ids = followed(&world, 20).await;
    let mut lock = world.pool().begin().await.unwrap();
    let text = format!("lock table {SIDE_TABLES} in access exclusive mode");
    sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&mut *lock).await.unwrap();
    finish_all(&world, &worker).await;
    lock.rollback().await.unwrap();
    assert_eq!(count(&world, "select count(*) from ends").await, ids.len() as i64, "one row for each end");
    for reaction in [Reaction::Project, Reaction::Schedule, Reaction::Webhook, Reaction::Memory] {
        let rows: usize = due(&world, reaction).await.iter().map(|subject| subject.rows.len()).sum();
        assert_eq!(rows, ids.len(), "{reaction:?}");
    }
    world.check().await;
}

#[tokio::test]
async fn invalid_outbox_fails_no_execution() {
    let world = World::create().await;
    let worker = world.worker().await;
    followed(&world, 1).await;
    run(world.pool(), "alter table ends add constraint refused check (false) not valid").await;
    let claimed = worker.claim_one().await;
    let ending = tokio::spawn({
        let (writer, end) = (worker.writer.clone(), claimed.lease().finish("7".into()));
        async move { writer.conclude(end).await }
    });
    eventually("the store is in trouble", SOON, async || {
        if matches!(world.store.trouble().gate(), ClaimGate::Open) { Err("no trouble") } else { Ok(()) }
    })
    .await;
    assert!(!ending.is_finished(), "an error below the trigger is the server's");
    run(world.pool(), "alter table ends drop constraint refused").await;
    within("the end is repeated", SOON, ending).await.unwrap().unwrap();
    assert_eq!(world.standing(claimed.id).await.0, "FINISHED");
    world.check().await;
}

#[tokio::test]
async fn end_without_reaction_leaves_no_row() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(3).await;
    finish_all(&world, &worker).await;
    assert_eq!(count(&world, "select count(*) from ends").await, 0);
    endpoint(&world).await;
    world.submit(1).await;
    finish_all(&world, &worker).await;
    assert_eq!(count(&world, "select count(*) from ends").await, 1);
    run(world.pool(), "update webhook_endpoints set disabled_at = now(), disabled_because = 'caller'").await;
    world.submit(1).await;
    finish_all(&world, &worker).await;
    assert_eq!(count(&world, "select count(*) from ends").await, 1, "nobody is told any more");
}

#[tokio::test]
async fn refused_delivery_holds_up_no_other() {
    let world = World::create().await;
    endpoint(&world).await;
    let worker = world.worker().await;
    world.submit(3).await;
    finish_all(&world, &worker).await;
    let poison: Uuid = sqlx::query_scalar("select execution_id from ends order by id offset 1 limit 1")
        .fetch_one(world.pool())
        .await
        .unwrap();
    let text =
        format!("alter table webhook_deliveries add constraint refused check (execution_id <> '{poison}') not valid");
    sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(world.pool()).await.unwrap();
    world.store.tell_due_webhooks(100).await.unwrap();
    assert_eq!(count(&world, "select count(*) from webhook_deliveries").await, 2);
    let backlogs = world.store.reaction_backlogs().await.unwrap();
    let webhooks = backlogs.iter().find(|of| of.reaction == "webhook").unwrap();
    assert!(webhooks.failing == 1 && webhooks.error.as_ref().is_some_and(|error| error.contains("refused")));
    assert_eq!(due(&world, Reaction::Webhook).await, [], "it is in the second line");
    run(world.pool(), "alter table webhook_deliveries drop constraint refused").await;
    for pause in [1.5, 2.5] {
        let again = world.store.due_ends(Reaction::Webhook, Line::Again, 10).await.unwrap();
        assert_eq!(again, [], "the pause is not over");
        world.shift_clock(pause).await;
        let again = world.store.due_ends(Reaction::Webhook, Line::Again, 10).await.unwrap();
        if pause < 2.0 {
            world.store.put_off_ends(Reaction::Webhook, &again[0].rows, Some("again")).await.unwrap();
        } else {
            world.store.tell_webhooks(&again[0]).await.unwrap();
        }
    }
    assert_eq!(count(&world, "select count(*) from webhook_deliveries").await, 3);
    assert_eq!(count(&world, "select count(*) from ends").await, 0);
}

#[tokio::test]
async fn two_reactors_tell_once() {
    let world = World::create().await;
    endpoint(&world).await;
    let worker = world.worker().await;
    world.submit(40).await;
    finish_all(&world, &worker).await;
    let (one, two, three) = tokio::join!(
        world.store.tell_due_webhooks(100),
        world.store.tell_due_webhooks(100),
        world.store.tell_due_webhooks(100)
    );
    for told in [one, two, three] {
        told.unwrap();
    }
    world.store.tell_due_webhooks(100).await.unwrap();
    assert_eq!(count(&world, "select count(*) from webhook_deliveries").await, 40);
    assert_eq!(count(&world, "select count(*) from ends").await, 0);
}

#[tokio::test]
async fn failing_reaction_leaves_the_others_of_its_row() {
    let world = World::create().await;
    endpoint(&world).await;
    let worker = world.worker().await;
    followed(&world, 1).await;
    finish_all(&world, &worker).await;
    let project = due(&world, Reaction::Project).await.remove(0);
    world.store.put_off_ends(Reaction::Project, &project.rows, Some("its plan is broken")).await.unwrap();
    assert_eq!(due(&world, Reaction::Project).await, []);
    world.store.tell_due_webhooks(100).await.unwrap();
    assert_eq!(count(&world, "select count(*) from webhook_deliveries").await, 1);
    for ended in due(&world, Reaction::Schedule).await {
        world.store.scheduled_run_ended(&ended).await.unwrap();
    }
    for ended in due(&world, Reaction::Memory).await {
        world.store.memory_source_ended(&ended).await.unwrap();
    }
    let left: Vec<Vec<String>> =
        sqlx::query_scalar("select reactions from ends").fetch_all(world.pool()).await.unwrap();
    assert_eq!(left, [["project"]]);
    world.shift_clock(2.0).await;
    let again = world.store.due_ends(Reaction::Project, Line::Again, 10).await.unwrap();
    assert!(world.store.forget_gone_project(&again[0]).await.unwrap(), "there is no such project");
    assert_eq!(count(&world, "select count(*) from ends").await, 0);
}

#[tokio::test]
async fn locked_session_passes_its_turn_later() {
    let world = World::create().await;
    let worker = world.worker().await;
    let session = SessionId(Uuid::now_v7());
    let first = world.submit(2).await;
    sqlx::query(
        "with s as (
             insert into sessions (id, tenant_id, agent_key, agent_version, on_busy, metadata, created_at, active_at,
                 running, turns)
             values ($1, $2, 'clerk', 1, 'enqueue', '{}', now(), now(), $3, 2)
         ),
         t as (
             insert into session_turns (session_id, number, execution_id, state, on_busy)
             values ($1, 1, $3, 'running', 'enqueue'), ($1, 2, $4, 'queued', 'enqueue')
         ),
         p as (
             insert into parked (execution_id, tenant_id, wait_reason, wait_until)
             values ($4, $2, 'concurrency_limit', now() + interval '1 day')
         )
         update executions
         set session_id = $1, wait_reason = case when id = $4 then 'concurrency_limit' else wait_reason end
         where id in ($3, $4)",
    )
    .bind(session.0)
    .bind(world.tenant.0)
    .bind(first[0].0)
    .bind(first[1].0)
    .execute(world.pool())
    .await
    .unwrap();
    let claimed = worker.claim_one().await;
    let mut lock = world.pool().begin().await.unwrap();
    sqlx::query("select id from sessions for update").execute(&mut *lock).await.unwrap();
    let ended = within("the execution ends beside the lock", SOON, worker.finish(&claimed)).await.unwrap();
    assert!(ended.is_followed);
    let subject = due(&world, Reaction::Session).await.remove(0);
    assert_eq!(world.store.pass_turn(&subject).await.unwrap(), None, "still locked");
    lock.rollback().await.unwrap();
    let next = world.store.pass_turn(&subject).await.unwrap().expect("the next message has the turn");
    assert_eq!(next.id, first[1]);
    assert_eq!(world.store.pass_turn(&subject).await.unwrap(), None, "it passes once");
    let next = worker.claim_one().await;
    // A session that is being deleted is skipped as well.
    let mut delete = world.pool().begin().await.unwrap();
    sqlx::query("delete from sessions").execute(&mut *delete).await.unwrap();
    within("the execution ends beside the deletion", SOON, worker.finish(&next)).await.unwrap();
    delete.commit().await.unwrap();
    let subject = due(&world, Reaction::Session).await.remove(0);
    assert_eq!(world.store.pass_turn(&subject).await.unwrap(), None);
    assert_eq!(count(&world, "select count(*) from ends").await, 0);
}

#[tokio::test]
async fn locked_requests_hold_up_no_end() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(1).await;
    let claimed = worker.claim_one().await;
    let now = world.store.now().await.unwrap();
    let one = async |run_at, deadline| {
        let (run_at, deadline) = (Some(now + TimeDelta::seconds(run_at)), Duration::from_secs(deadline));
        NewExecution { run_at, deadline, ..world.new_execution().await }
    };
    let parked = world.submit_all([one(3_600, 7_200).await, one(3_600, 20).await, one(30, 30).await]).await;
    sqlx::query(
        "insert into human_requests (id, execution_id, tenant_id, agent_key, kind, call_key, round, call_id, tool,
             arguments, shown, hash, allow_self, requested_at, expires_at)
         select gen_random_uuid(), id, tenant_id, 'clerk', 'question', decode(repeat('00', 32), 'hex'), 0, 'c', 't', '',
             '', decode(repeat('00', 32), 'hex'), true, now(), now() + interval '1 hour'
         from executions",
    )
    .execute(world.pool())
    .await
    .unwrap();
    let mut lock = world.pool().begin().await.unwrap();
    sqlx::query("select id from human_requests for update").execute(&mut *lock).await.unwrap();
    within("the execution ends beside the lock", SOON, worker.finish(&claimed)).await.unwrap();
    let cancel = world.store.cancel_execution(world.tenant, parked[0]);
    assert_eq!(within("one that waits is cancelled", SOON, cancel).await.unwrap(), Cancelled::Ended);
    world.shift_clock(25.0).await;
    let overdue = within("one that is overdue ends", SOON, world.store.end_overdue(10)).await.unwrap();
    assert_eq!(overdue, [parked[1]]);
    world.shift_clock(10.0).await;
    within("one that is due too late ends", SOON, world.store.wake_due(10)).await.unwrap();
    assert_eq!(count(&world, "select count(*) from executions where finished_at is null").await, 0);
    lock.rollback().await.unwrap();
}

#[tokio::test]
async fn signals_of_the_release_before_become_ends() {
    let world = World::create().await;
    run(world.pool(), "insert into project_signals (project_id) values (gen_random_uuid())").await;
    assert_eq!(count(&world, "select count(*) from project_signals").await, 0);
    assert_eq!(count(&world, "select count(*) from ends").await, 0, "of a project that is gone there is nothing");
}

/// Words in backquotes of the first cell of each row of a table of docs/design/end.md.
fn named(page: &str, heading: &str) -> BTreeSet<String> {
    let section = page.split(heading).nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.split('`').nth(1).unwrap().to_owned()).collect()
}

#[tokio::test]
async fn page_of_the_end_matches_triggers_and_reactions() {
    let world = World::create().await;
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/design/end.md")).unwrap();
    let reactions: BTreeSet<String> = Reaction::ALL.iter().map(|reaction| reaction.as_str().to_owned()).collect();
    assert_eq!(named(&page, "## After it: reactions"), reactions);
    let triggers: Vec<(String, String)> = sqlx::query_as(
        "select t.tgname::text, c.relname::text from pg_trigger t join pg_class c on c.oid = t.tgrelid
         where not t.tgisinternal and c.relname in
             ('executions', 'human_requests', 'quarantine', 'webhook_endpoints', 'ends', 'sessions', 'session_turns')",
    )
    .fetch_all(world.pool())
    .await
    .unwrap();
    for (trigger, table) in &triggers {
        assert!(page.contains(&format!("`{trigger}`")), "{trigger} on {table} is not on docs/design/end.md");
    }
    let of_executions: Vec<&str> =
        triggers.iter().filter(|(_, table)| table == "executions").map(|(name, _)| name.as_str()).collect();
    assert_eq!(of_executions, ["executions_over"]);
    let constraints = count(
        &world,
        "select count(*) from pg_constraint where contype = 'f' and conrelid in ('ends'::regclass,
             'executions'::regclass, 'webhook_deliveries'::regclass, 'end_subscriptions'::regclass)",
    )
    .await;
    assert_eq!(constraints, 0, "a foreign key would let another table decide over an end");
}

/// A refused value of the item itself still fails the item alone.
#[tokio::test]
async fn refused_value_of_an_end_is_the_items_own() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(2).await;
    let claimed = worker.claim(2).await;
    let bad = worker.writer.conclude(claimed[0].lease().finish("not json".into()));
    let good = worker.finish(&claimed[1]);
    let (bad, good) = tokio::join!(bad, good);
    assert!(matches!(bad, Err(StoreError::Rejected(_))), "{bad:?}");
    good.unwrap();
}
