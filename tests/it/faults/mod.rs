//! Fault tests: one file for each way to die.

mod claim_reply_lost;
mod drain;
mod executor_wedged;
mod idle_and_load;
mod not_migrated;
mod poison_execution;
mod postgres_restarted;
mod quarantine;
mod queue_backlog;
mod read_only_server;
mod redis_flushed;
mod reservation_late;
mod server_refuses;
mod standby_promoted;
mod sweep_duty_fails;
mod worker_killed;
mod worker_paused;
mod worker_stopped;

use std::{collections::BTreeSet, time::Duration};

use longhaul_domain::ExecutionId;
use longhaul_sdk::{DefinitionSpec, spec::ToolRef};
use longhaul_testkit::model::{reply_calls, reply_text};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use sqlx::Row as _;

use crate::support::{
    fleet::{Fleet, FleetWorker, agent},
    tools::{Die, Echo},
    wait::eventually,
};

/// Time limit for a whole load of executions on a busy two-core machine.
const LOAD_PATIENCE: Duration = Duration::from_secs(60);

/// Applies the definition `d`, whose model calls `echo` in all turns but the last and takes `pause` for each.
pub(crate) async fn several_turns(fleet: &Fleet, turns: usize, pause: Duration) {
    let mut agent = agent("a");
    agent.tools = vec![ToolRef::Name("echo".into()), ToolRef::Name("die".into())];
    fleet.apply(&agent, &DefinitionSpec::new("d", "a")).await;
    fleet.llm.answer_with(move |request| {
        let reply = if request.replies() + 1 < turns {
            reply_calls([("echo", json!({"text": format!("turn {}", request.replies())}))])
        } else {
            reply_text(r#"{"done": true}"#)
        };
        reply.delay(pause)
    });
    // The serve key must be known before the workers ask which ones they satisfy.
    fleet.new_execution("d", json!({})).await;
}

/// A worker of this process that serves `d`.
pub(crate) fn worker(fleet: &Fleet) -> FleetWorker {
    fleet.worker_with(|builder| builder.tool(Echo).unwrap().tool(Die).unwrap())
}

/// Submits `count` executions of `definition` at once.
pub(crate) async fn submit_many(fleet: &Fleet, definition: &str, count: usize) -> Vec<ExecutionId> {
    let template = fleet.new_execution(definition, json!({"text": "x"})).await;
    let submits = (0..count).map(|_| {
        let mut new = template.clone();
        async {
            new.id = fleet.store.new_execution_id().await.unwrap();
            fleet.submit_new(new).await
        }
    });
    futures::future::join_all(submits).await
}

/// Waits until `count` executions are FINISHED; fails if one has FAILED.
pub(crate) async fn all_finish(fleet: &Fleet, count: usize) {
    let count = i64::try_from(count).unwrap();
    eventually("all executions finish", LOAD_PATIENCE, || async {
        let row = sqlx::query(
            "select count(*) filter (where status = 'FINISHED') as finished, \
             count(*) filter (where status = 'FAILED') as failed,
                coalesce(jsonb_object_agg(e.id, to_jsonb(e)) filter (where status = 'FAILED'), '{}')::text as failures
             from executions e",
        )
        .fetch_one(&fleet.db.pool)
        .await;
        // The database itself may be down.
        let Ok(row) = row else { return Err("no answer".to_owned()) };
        assert_eq!(row.get::<i64, _>("failed"), 0, "{}", row.get::<String, _>("failures"));
        let finished: i64 = row.get("finished");
        if finished == count { Ok(()) } else { Err(format!("{finished} of {count}")) }
    })
    .await;
}

/// Fails if an execution ended twice, did work in more than one attempt, or repeated a model call. A claim whose
/// reply comes late, as on a busy machine, is released unstarted and does not count.
async fn nothing_ran_twice(fleet: &Fleet, count: usize) {
    assert_eq!(count_of(fleet, "select count(*) from events where kind = 'finished'").await, count, "finished events");
    let again: Vec<String> = sqlx::query_scalar(
        "select string_agg(kind || coalesce(data::text, ''), ' ' order by seq) from events
         where execution_id in (
             select a.execution_id from attempts a
             where a.outcome <> 'finished' and (
                 a.outcome <> 'released'
                 or exists (select from steps s where s.execution_id = a.execution_id and s.attempt = a.number)
             )
         )
         group by execution_id",
    )
    .fetch_all(&fleet.db.pool)
    .await
    .unwrap();
    assert_eq!(again, Vec::<String>::new(), "executions that were worked on in more than one attempt");
    no_call_is_repeated(fleet);
}

/// Fails if the model server counted a repeated call.
fn no_call_is_repeated(fleet: &Fleet) {
    let repeated = fleet.llm.calls().values().filter(|asked| **asked > 1).count();
    assert_eq!(repeated, 0, "model calls were repeated");
}

async fn count_of(fleet: &Fleet, sql: &'static str) -> usize {
    let count: i64 = sqlx::query_scalar(sql).fetch_one(&fleet.db.pool).await.unwrap();
    usize::try_from(count).unwrap()
}

/// Waits until the model was asked this many times.
async fn asked(fleet: &Fleet, times: usize) {
    eventually("the model is asked", LOAD_PATIENCE, async || {
        let asked: usize = fleet.llm.calls().values().sum();
        if asked >= times { Ok(()) } else { Err(format!("{asked} of {times} times")) }
    })
    .await;
}

/// `Idempotency-Key` of every recorded turn: the hash of the execution's id, the step's key and its occurrence.
async fn recorded_turns(fleet: &Fleet) -> BTreeSet<String> {
    let rows = sqlx::query("select execution_id, key, occurrence from steps where kind = 'turn' and state = 'live'")
        .fetch_all(&fleet.db.pool)
        .await
        .unwrap();
    let key = |row: &sqlx::postgres::PgRow| {
        let (id, key, occurrence): (uuid::Uuid, Vec<u8>, i32) = (row.get(0), row.get(1), row.get(2));
        let mut hasher = Sha256::new();
        for part in [id.as_bytes().as_slice(), &key, &occurrence.to_be_bytes()] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        hex::encode(hasher.finalize())
    };
    rows.iter().map(key).collect()
}
