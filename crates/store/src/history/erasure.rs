//! Erases the texts of ended executions (docs/design/files.md). It is the only update of recorded history.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    history::body,
    sessions::erasure::{erase_from_transcript, erase_summaries},
};
use longhaul_domain::{ExecutionId, TenantId};

/// Steps whose bodies are read and replaced at a time.
const STEPS_PER_STATEMENT: i64 = 100;
/// Body of an erased request, before it is encoded.
const TOMBSTONE: &[u8] = br#"{"erased":true}"#;
/// Members of a call's body that stay: the ledger of effects is kept.
const KEPT_OF_CALLS: [&str; 4] = ["is_error", "effect", "idempotency_key", "resolution"];
/// Members of a compression's body that stay: positions in the transcript, by which it can still be replayed.
const KEPT_OF_COMPRESSIONS: [&str; 2] = ["from", "to"];
/// Members of an event's data that hold names from closed sets, ids or times, and no text of callers or models.
const KEPT_OF_EVENTS: [&str; 23] = [
    "id",
    "kind",
    "state",
    "outcome",
    "tool",
    "provider",
    "model",
    "instead_of",
    "failure_class",
    "failure_code",
    "wait_reason",
    "waited_for",
    "until",
    "wait_until",
    "worker_id",
    "host",
    "retry_of",
    "forked_from",
    "parent_id",
    "child_id",
    "released",
    "definition",
    "agent",
];

/// An execution whose texts are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Erased {
    pub id: ExecutionId,
    /// Number of its last recorded turn; the text of that and of the next may be in Redis.
    pub turns: u32,
}

/// Result of an erasure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Erasure {
    /// The texts of these executions are gone: the one named and its descendants.
    Done(Vec<Erased>),
    /// This execution of the tree has not ended; nothing was erased.
    NotEnded(ExecutionId),
    /// The tenant has no such execution.
    NotFound,
}

impl Store {
    /// Erases the texts of an ended execution and of its descendants. Repeating it changes nothing more; after a
    /// failure in the middle a repeat erases the rest.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn erase_execution(&self, tenant: TenantId, id: ExecutionId) -> Result<Erasure, StoreError> {
        let tree = sqlx::query!(
            r#"
            with recursive tree as (
                select e.id, e.finished_at from executions e where e.id = $1 and e.tenant_id = $2
                union all
                select c.id, c.finished_at
                from tree t cross join lateral (
                    select c.id, c.finished_at from executions c where c.parent_id = t.id
                    union all
                    -- Model calls of a worker over HTTP.
                    select c.id, c.finished_at
                    from runs r join run_calls k on k.run_id = r.id join executions c on c.id = k.execution_id
                    where r.execution_id = t.id
                ) c
            )
            select tree.id as "id!", tree.finished_at is not null as "has_ended!", coalesce((
                select (v.data ->> 'turn')::int from events v
                where v.execution_id = tree.id and v.kind = 'turn' order by v.seq desc limit 1
            ), 0) as "turns!"
            from tree
            "#,
            id.0,
            tenant.0,
        )
        .fetch_all(&self.pool)
        .await?;
        if tree.is_empty() {
            return Ok(Erasure::NotFound);
        }
        if let Some(open) = tree.iter().find(|row| !row.has_ended) {
            return Ok(Erasure::NotEnded(ExecutionId(open.id)));
        }
        for row in &tree {
            self.erase_one(row.id).await?;
            self.release_session_files(row.id).await?;
            self.forget_execution(tenant, ExecutionId(row.id)).await?;
        }
        self.erase_held_summaries(Some(tenant)).await?;
        let erased = |id, turns: i32| Erased { id: ExecutionId(id), turns: turns.unsigned_abs() };
        Ok(Erasure::Done(tree.into_iter().map(|row| erased(row.id, row.turns)).collect()))
    }

    /// Erases copies of erased texts in the journals of executions that were under way then and have ended since:
    /// updates of memory, and summaries of sessions.
    ///
    /// # Errors
    /// The first failure; the others are erased nevertheless.
    pub async fn erase_void_copies(&self) -> Result<(), StoreError> {
        let updates = self.erase_void_updates(None).await;
        self.erase_held_summaries(None).await?;
        updates
    }

    pub(crate) async fn erase_one(&self, id: Uuid) -> Result<(), StoreError> {
        let kept = KEPT_OF_EVENTS.map(str::to_owned);
        let mut transaction = self.pool.begin().await?;
        sqlx::query_file_scalar!("src/sql/erase.sql", id, body::encode(TOMBSTONE), &kept)
            .fetch_one(&mut *transaction)
            .await?;
        let mut after = -1;
        loop {
            let steps = sqlx::query!(
                "select seq, kind, body from steps where execution_id = $1 and seq > $2 order by seq limit $3",
                id,
                after,
                STEPS_PER_STATEMENT,
            )
            .fetch_all(&mut *transaction)
            .await?;
            let Some(last) = steps.last() else { break };
            after = last.seq;
            let tombstones = steps.iter().map(|step| tombstone(&step.kind, &step.body));
            let (tombstones, seqs) = (tombstones.collect::<Vec<_>>(), steps.iter().map(|step| step.seq));
            sqlx::query!(
                r#"
                update steps s set body = erased.body, appends = '{}', preview = null
                from unnest($2::int[], $3::bytea[]) as erased (seq, body)
                where s.execution_id = $1 and s.seq = erased.seq
                "#,
                id,
                &seqs.collect::<Vec<_>>(),
                &tombstones,
            )
            .execute(&mut *transaction)
            .await?;
        }
        let summarised = erase_from_transcript(&mut transaction, id).await?;
        transaction.commit().await?;
        erase_summaries(&mut *self.pool.acquire().await?, &summarised).await
    }
}

/// The stored body that replaces a step's. Of one that cannot be read, nothing is kept.
fn tombstone(kind: &str, stored: &[u8]) -> Vec<u8> {
    let kept: &[&str] = match kind {
        "call" => &KEPT_OF_CALLS,
        "compression" => &KEPT_OF_COMPRESSIONS,
        _ => &[],
    };
    let read = body::decode(stored).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let mut members: Map<String, Value> = read.unwrap_or_default();
    members.retain(|member, _| kept.contains(&member.as_str()));
    members.insert("erased".into(), json!(true));
    body::encode_step(Value::Object(members).to_string().as_bytes())
}
