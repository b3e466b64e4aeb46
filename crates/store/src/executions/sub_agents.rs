//! What a parent does with the children it started: waits for some of them, reads what they have said so far, and
//! cancels those that it no longer needs. Also the limits of how many run at a time.

use std::collections::HashMap;

use longhaul_domain::{ExecutionId, TenantId, message::Message};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    executions::children::SpawnLease,
    history::{body, journal::Hash},
};

/// Failure summary of a child whose sibling was faster.
const OUTRUN: &str = "cancelled because another sub-agent of the same call finished first";
/// Most recorded turns of a child that are searched for a text.
const TURNS_READ: i64 = 8;

/// Children that run at a time; 0 is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubAgentLimits {
    /// For each tenant.
    pub tenant: u32,
    /// Over all tenants.
    pub fleet: u32,
}

/// A wait of a call for children.
#[derive(Debug, Clone, Copy)]
pub struct ChildWait<'a> {
    /// Key of the call's step.
    pub call: &'a Hash,
    pub children: &'a [ExecutionId],
    /// True if the first that finishes ends the wait.
    pub until_first: bool,
}

/// What an ended child left.
#[derive(Debug, Clone)]
pub struct ChildEnd {
    /// JSON text of a FINISHED child, or as much of its begin as was asked for.
    pub output: Option<String>,
    /// Failure text of a FAILED child, for people and models.
    pub failure_summary: Option<String>,
}

/// What an ended child left, if there was room for it.
#[derive(Debug, Clone)]
pub struct ChildOutput {
    /// JSON text of a FINISHED child.
    pub output: Option<String>,
    /// True if outputs of others left no room for its own.
    pub is_omitted: bool,
    /// Failure text of a FAILED child, for people.
    pub failure_summary: Option<String>,
}

impl Store {
    /// Stores the limits of children that run at a time. Claims take their slots from then on.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn put_sub_agent_limits(&self, limits: SubAgentLimits) -> Result<(), StoreError> {
        // The expression of the rule of the fleet is not evaluated (longhaul_limits_of.sql).
        for (subject, max) in [("", limits.tenant), ("fleet", limits.fleet)] {
            let max = i32::try_from(max).unwrap_or(i32::MAX);
            sqlx::query!(
                r#"
                with gone as (
                    delete from limit_rules where source = 'sub_agent' and subject = $1 and $2 = 0
                )
                insert into limit_rules as r (source, subject, expression, max, changed_at)
                select 'sub_agent', $1, 'tenant', $2, longhaul_now() where $2 > 0
                on conflict on constraint limit_rules_once do update
                    set max = excluded.max, changed_at = excluded.changed_at
                    where r.max <> excluded.max
                "#,
                subject,
                max,
            )
            .execute(&self.pool)
            .await?;
        }
        Ok(())
    }

    /// Records that a call waits for children. Their ends wake the parent as the wait says.
    ///
    /// # Errors
    /// The lease is lost or waits for its renewal, or Postgres is unavailable.
    pub async fn wait_for_children(&self, lease: SpawnLease, wait: ChildWait<'_>) -> Result<(), StoreError> {
        let children: Vec<Uuid> = wait.children.iter().map(|child| child.0).collect();
        let stored = sqlx::query_file!(
            "src/sql/wait_for_children.sql",
            lease.worker.0,
            lease.parent.0,
            lease.token.0,
            wait.call.as_slice(),
            &children,
            wait.until_first,
        )
        .fetch_optional(&self.pool)
        .await?;
        match stored {
            Some(_) => Ok(()),
            None => Err(self.why_refused(lease.worker, lease.parent, lease.token).await),
        }
    }

    /// Cancels children that a call no longer needs, because one of them has finished: whichever attempt of the
    /// parent asks.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn cancel_outrun(&self, tenant: TenantId, children: &[ExecutionId]) -> Result<(), StoreError> {
        let ids: Vec<Uuid> = children.iter().map(|child| child.0).collect();
        self.cancel_patiently(&ids, tenant, OUTRUN).await.map(drop)
    }

    /// Output or failure of each of these executions that has ended, of outputs at most this many characters.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn child_ends(
        &self,
        ids: &[ExecutionId],
        max_characters: i32,
    ) -> Result<HashMap<ExecutionId, ChildEnd>, StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let rows = sqlx::query!(
            r#"
            select execution_id, left(output::text, $2) as output, failure_summary
            from execution_payloads
            where execution_id = any ($1) and (output is not null or failure_summary is not null)
            "#,
            &ids,
            max_characters,
        )
        .fetch_all(&self.pool)
        .await?;
        let ends = rows.into_iter().map(|row| {
            let end = ChildEnd { output: row.output, failure_summary: row.failure_summary };
            (ExecutionId(row.execution_id), end)
        });
        Ok(ends.collect())
    }

    /// Output or failure of each of these different executions that has ended; of outputs, in their order, those that
    /// fit into so many bytes together, and the first.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn child_outputs(
        &self,
        ids: &[ExecutionId],
        max_bytes: i64,
    ) -> Result<HashMap<ExecutionId, ChildOutput>, StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let rows = sqlx::query!(
            r#"
            select execution_id as "execution_id!", failure_summary,
                case when upto <= $2 or upto = size then output::text end as output,
                output is not null and upto > $2 and upto > size as "is_omitted!"
            from (
                select p.*, octet_length(output::text) as size,
                    sum(octet_length(output::text)) over (order by place) as upto
                from unnest($1::uuid[]) with ordinality as asked (id, place)
                join execution_payloads p on p.execution_id = asked.id
                where output is not null or failure_summary is not null
            ) ended
            "#,
            &ids,
            max_bytes,
        )
        .fetch_all(&self.pool)
        .await?;
        let ends = rows.into_iter().map(|row| {
            let end =
                ChildOutput { output: row.output, is_omitted: row.is_omitted, failure_summary: row.failure_summary };
            (ExecutionId(row.execution_id), end)
        });
        Ok(ends.collect())
    }

    /// The last text that each of these executions has recorded, if there is one.
    ///
    /// # Errors
    /// Postgres is unavailable, or a message cannot be read.
    pub async fn last_texts(&self, ids: &[ExecutionId]) -> Result<HashMap<ExecutionId, String>, StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let turns = sqlx::query!(
            r#"
            select asked.id as "id!", turn.appends as "appends!"
            from unnest($1::uuid[]) as asked (id) cross join lateral (
                select s.seq, s.appends from steps s
                where s.execution_id = asked.id and s.kind = 'turn' and s.state = 'live'
                order by s.seq desc limit $2
            ) turn
            order by asked.id, turn.seq desc
            "#,
            &ids,
            TURNS_READ,
        )
        .fetch_all(&self.pool)
        .await?;
        let mut texts = HashMap::new();
        for turn in turns {
            let id = ExecutionId(turn.id);
            for stored in turn.appends.iter().filter(|_| !texts.contains_key(&id)) {
                let message = Message::from_bytes(&body::decode(stored)?)
                    .map_err(|error| StoreError::Corrupt(format!("a recorded message cannot be read: {error}")))?;
                if let Message::Assistant { text, .. } = message
                    && !text.is_empty()
                {
                    texts.insert(id, text);
                    break;
                }
            }
        }
        Ok(texts)
    }
}
