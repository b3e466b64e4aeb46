//! Consistency checks of `longhaul verify`: an honest history passes, and each kind of tampering is found.

use longhaul_domain::ExecutionId;
use longhaul_sdk::DefinitionSpec;
use longhaul_store::proof::audit::Leftovers;
use longhaul_testkit::model::reply_text;
use serde_json::json;
use sqlx::AssertSqlSafe;

use crate::support::fleet::{Fleet, agent};

/// Runs one execution to its end on a fleet with one worker.
async fn finished() -> (Fleet, ExecutionId) {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &DefinitionSpec::new("d", "a")).await;
    fleet.llm.answer_with(|_| reply_text(r#"{"done": true}"#));
    let mut new = fleet.new_execution("d", json!({})).await;
    new.metadata = json!({ "verify": 41 });
    let worker = fleet.worker();
    let id = fleet.submit_new(new).await;
    fleet.ended(id).await;
    worker.drain().await;
    (fleet, id)
}

async fn broken(fleet: &Fleet) -> Vec<(ExecutionId, bool, String)> {
    let broken = fleet.store.broken_histories().await.unwrap();
    broken.into_iter().map(|one| (one.execution, one.is_stale_write, one.what)).collect()
}

/// Applies `tamper`, reads the broken histories, then undoes it with `back`.
async fn with(fleet: &Fleet, tamper: &str, back: &str) -> Vec<(ExecutionId, bool, String)> {
    sqlx::raw_sql(AssertSqlSafe(tamper.to_owned())).execute(&fleet.db.pool).await.unwrap();
    let found = broken(fleet).await;
    sqlx::raw_sql(AssertSqlSafe(back.to_owned())).execute(&fleet.db.pool).await.unwrap();
    found
}

#[tokio::test]
async fn tampered_history_is_found_and_honest_one_passes() {
    let (fleet, id) = finished().await;
    assert_eq!(broken(&fleet).await, []);

    let cases = [
        (
            "update executions set event_seq = event_seq + 1",
            "update executions set event_seq = event_seq - 1",
            false,
            "events",
        ),
        (
            "update events set kind = 'note' where kind = 'finished'",
            "update events set kind = 'finished' where kind = 'note'",
            false,
            "tell 0 ends",
        ),
        (
            "insert into events select id, event_seq + 1, finished_at, 'turn', null from executions;
             update executions set event_seq = event_seq + 1",
            "update executions set event_seq = event_seq - 1; delete from events e using executions x \
             where e.seq > x.event_seq",
            false,
            "after its end",
        ),
        ("update executions set attempt = 2", "update executions set attempt = 1", false, "attempts are on record"),
        (
            "insert into attempts select execution_id, 2, worker_id, lease_token, started_at - interval '1 hour', \
             ended_at, outcome from attempts;
             update executions set attempt = 2",
            "delete from attempts where number = 2; update executions set attempt = 1",
            true,
            "began before",
        ),
        (
            "update steps set finished_at = finished_at + interval '1 hour' where kind = 'turn'",
            "update steps set finished_at = finished_at - interval '1 hour' where kind = 'turn'",
            true,
            "when no attempt was under way",
        ),
    ];
    for (tamper, back, is_stale_write, words) in cases {
        let found = with(&fleet, tamper, back).await;
        let is_named =
            |one: &(ExecutionId, bool, String)| *one == (id, is_stale_write, one.2.clone()) && one.2.contains(words);
        assert!(found.iter().any(is_named), "{tamper}: {found:?}");
    }
    assert_eq!(broken(&fleet).await, []);
}

#[tokio::test]
async fn audit_reads_rows_of_a_finished_execution() {
    let (fleet, id) = finished().await;
    let executions = fleet.store.audited_executions(fleet.tenant, ("verify", ""), 0).await.unwrap();
    assert_eq!(
        executions.iter().map(|one| (one.id, one.number, one.status.as_str())).collect::<Vec<_>>(),
        [(id, 41, "FINISHED")]
    );
    assert_eq!(fleet.store.audited_executions(fleet.tenant, ("other", ""), 0).await.unwrap(), []);

    let attempts = fleet.store.audited_attempts().await.unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].number, attempts[0].outcome.as_str()), (1, "finished"));
    let workers = fleet.store.audited_workers().await.unwrap();
    let pid = i32::try_from(std::process::id()).unwrap();
    assert_eq!(workers.iter().map(|one| (one.id, one.pid)).collect::<Vec<_>>(), [(attempts[0].worker, pid)]);
    assert!(workers[0].dead_at >= attempts[0].ended_at, "it drained");

    // The step's key is the idempotency key that the model received.
    let steps = fleet.store.audited_steps().await.unwrap();
    let asked: Vec<String> = fleet.llm.calls().into_keys().collect();
    assert_eq!(steps.iter().map(|step| &step.idempotency_key).collect::<Vec<_>>(), asked.iter().collect::<Vec<_>>());
    assert_eq!(steps[0].preview.as_deref(), Some(r#"{"done": true}"#));
}

#[tokio::test]
async fn leftover_rows_of_executions_are_counted() {
    let (fleet, id) = finished().await;
    assert_eq!(fleet.store.leftovers().await.unwrap(), Leftovers::default());
    assert_eq!(fleet.store.open_and_all().await.unwrap(), (0, 1));
    sqlx::query("insert into parked select id, tenant_id, 'approval', now() from executions where id = $1")
        .bind(id.0)
        .execute(&fleet.db.pool)
        .await
        .unwrap();
    sqlx::query("insert into deadlines select id, now() from executions where id = $1")
        .bind(id.0)
        .execute(&fleet.db.pool)
        .await
        .unwrap();
    let slot = "with rule as (
            insert into limit_rules (source, expression, max, changed_at) values ('operator', 'definition', 1, now()) \
            returning id
        ),
        key as (insert into slot_keys (key, rule_id, value, used_at) select 'k', id, 'v', now() from rule \
        returning key),
        line as (
            insert into slot_waiters (execution_id, tenant_id, keys, key, is_new, rank, since)
            select e.id, e.tenant_id, array['k'], 'k', true, 0, now() from executions e where e.id = $1
        )
        insert into slots (key, number, execution_id) select key, 1, $1 from key";
    sqlx::query(slot).bind(id.0).execute(&fleet.db.pool).await.unwrap();
    let left = fleet.store.leftovers().await.unwrap();
    assert_eq!(left, Leftovers { parked: 1, deadlines: 1, slots: 1, slot_waiters: 1, ..Leftovers::default() });
}
