//! `pg_dump` of a live database, a restore into another cluster beside an empty Redis, and the end of what was open.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use longhaul_agent::probe::Probe;
use longhaul_domain::ExecutionId;
use longhaul_store::executions::budgets::Caps;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::{
    commands::{OPERATIONS, SQL, block, run},
    world::{DONE, World, script},
};
use crate::support::{
    db::TestDb,
    fleet::PATIENCE,
    servers::dedicated_postgres,
    wait::{SOON, eventually},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul-program");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_dump_finishes_every_open_execution() {
    let out = tempfile::tempdir().unwrap();
    let mut before = World::new().await;
    sqlx::raw_sql(AssertSqlSafe(block(SQL, "A role that sees no inputs and outputs", "sql")))
        .execute(&before.fleet.db.pool)
        .await
        .unwrap();
    let worker = before.open_work().await;
    let reviewer = before.reviewer().await.key;
    let submitter = before.api.acme.key.clone();
    run(block(OPERATIONS, "Backup", "sh"), &before.postgres, out.path()).await;
    let open = before.open().await;
    let catalogue = catalogue(&before).await;
    let answered: BTreeSet<String> = before.fleet.llm.answered().into_keys().collect();
    let sent: BTreeSet<String> = before.send.keys().into_keys().collect();
    worker.kill().await;
    before.drop_everything().await;

    let after = restore(out.path()).await;
    assert_eq!(self::catalogue(&after).await, catalogue);
    assert_eq!(after.open().await, open);
    after.fleet.llm.answer_with(|request| script(request, false));
    let again = after.with_key(submitter);
    let body = json!({ "definition": "d", "input": { "text": "case:due-1" } });
    let repeated = again.post_as("/v1/executions", &body, &[("idempotency-key", "due-1")]).await;
    assert_eq!(repeated.body["id"], open["due-1"].0.to_string(), "{}", repeated.text);
    give_what_is_waited_for(&after, &open, reviewer).await;
    let worker = after.worker(Probe::default());
    for (case, (id, state)) in &open {
        let row = after.fleet.ended(*id).await;
        assert_eq!(row["status"], "FINISHED", "{case}, {state} before: {row}");
    }
    what_was_bound_goes_on(&after).await;
    nothing_is_left(&after).await;
    worker.drain().await;

    let asked: BTreeSet<String> = after.fleet.llm.calls().into_keys().collect();
    assert_eq!(asked.intersection(&answered).collect::<Vec<_>>(), Vec::<&String>::new(), "answers that were recorded");
    assert!(answered.len() >= 7, "{answered:?}");
    assert_eq!((sent.len(), after.send.count(), after.pay.count()), (1, 0, 1), "side effects");
    let told = after.fleet.llm.requests().into_iter().filter(|request| request.last_text().contains("outcome_unknown"));
    assert_eq!(told.count(), 1, "the call that the dead worker had begun");
    after.drop_everything().await;
}

/// Restores the dump in `dir` into a new cluster, as the guide says.
async fn restore(dir: &std::path::Path) -> World {
    let postgres = dedicated_postgres().await;
    let server = postgres.url().strip_suffix("/longhaul").unwrap();
    let mut admin = PgConnection::connect(&format!("{server}/postgres")).await.unwrap();
    sqlx::query("drop database longhaul").execute(&mut admin).await.unwrap();
    admin.close().await.unwrap();
    run(block(OPERATIONS, "Restore", "sh"), &postgres, dir).await;
    run(format!("{PROGRAM} migrate"), &postgres, dir).await;
    let db = TestDb::existing(postgres.url()).await;
    World::over(postgres, db).await
}

/// Numbers of all that a dump could lose.
async fn catalogue(world: &World) -> Value {
    let sql = "select jsonb_build_object(
        'relations', (
            select jsonb_object_agg(relkind, n) from (
                select relkind::text, count(*) as n from pg_class where relnamespace = 'public'::regnamespace group by 1
            ) r
        ),
        'triggers', (select count(*) from pg_trigger where not tgisinternal),
        'functions', (select count(*) from pg_proc where pronamespace = 'public'::regnamespace),
        'constraints', (select count(*) from pg_constraint where connamespace = 'public'::regnamespace),
        'comments', (
            select count(*) from pg_description d join pg_class c on c.oid = d.objoid \
                and d.classoid = 'pg_class'::regclass
            where c.relnamespace = 'public'::regnamespace
        ),
        'sequences', (select jsonb_object_agg(sequencename, coalesce(last_value, 0)) from pg_sequences),
        'events', (select count(*) from events), 'steps', (select count(*) from steps),
        'migrations', (select count(*) from _sqlx_migrations)
    )";
    world.fleet.json(sql).await
}

/// Gives the decision, the answer, the budget and the time that executions wait for. Before any worker runs: the time
/// would count as active time of its attempts.
async fn give_what_is_waited_for(
    world: &World,
    open: &BTreeMap<String, (ExecutionId, String)>,
    reviewer: Option<String>,
) {
    let reviewer = world.with_key(reviewer);
    let request = world.fleet.store.requests_of(open["approval"].0).await.unwrap().remove(0);
    let body = json!({ "decision": "approve", "hash": hex::encode(request.hash) });
    let decided = reviewer.post(&format!("/v1/approvals/{}/decision", request.id), &body).await;
    assert_eq!(decided.status, 200, "{}", decided.text);
    let question = world.fleet.store.requests_of(open["question"].0).await.unwrap().remove(0);
    let answered = reviewer.post(&format!("/v1/questions/{}/answer", question.id), &json!({ "answer": "blue" })).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    let caps = Caps { max_calls: Some(9), ..Caps::default() };
    world.fleet.store.raise_budget(open["budget"].0, caps).await.unwrap();
    // The restore comes an hour later, by each of the two clocks.
    world.fleet.advance(Duration::from_secs(3_700)).await;
    sqlx::query("update worker_heartbeats set expires_at = expires_at - interval '3700 seconds'")
        .execute(&world.fleet.db.pool)
        .await
        .unwrap();
}

/// The project completes, the session answers, and the schedule ticks.
async fn what_was_bound_goes_on(world: &World) {
    eventually("the project completes", PATIENCE, || async {
        let status = world.fleet.json("select to_jsonb(min(status)) from projects").await;
        if status == "completed" { Ok(()) } else { Err(status) }
    })
    .await;
    let runs = "select to_jsonb(count(*)) from executions where schedule_id is not null and status = 'FINISHED'";
    assert_eq!(world.fleet.json(runs).await, 1);
    world.fleet.advance(Duration::from_secs(7_200)).await;
    eventually("the schedule ticks", PATIENCE, || async {
        let count = world.fleet.json(runs).await;
        if count == 2 { Ok(()) } else { Err(count) }
    })
    .await;
    let session = world.fleet.json("select to_jsonb('sess_' || replace(min(id::text), '-', '')) from sessions").await;
    let sent = world
        .api
        .acme
        .post(&format!("/v1/sessions/{}/messages", session.as_str().unwrap()), &json!({ "message": "case:message-3" }))
        .await;
    assert_eq!(sent.status, 202, "{}", sent.text);
    let id = sent.body["execution_id"].as_str().unwrap().parse().unwrap();
    assert_eq!(world.fleet.ended(id).await["status"], "FINISHED");
    let last = world.fleet.llm.requests().into_iter().rfind(|one| one.last_text() == "case:message-3").unwrap();
    let said: Vec<String> = last.messages().iter().skip(1).map(|one| one["content"].to_string()).collect();
    let texts = ["case:message-1", DONE, "case:message-2", DONE, "case:message-3"];
    assert_eq!(said, texts.map(|text| json!(text).to_string()));
}

async fn nothing_is_left(world: &World) {
    eventually("nothing is left", SOON, || async {
        let left = world.fleet.store.leftovers().await.unwrap();
        if left == Default::default() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}
