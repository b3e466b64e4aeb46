//! Events of executions: shown to observers, numbered per execution without gaps.

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use crate::{Store, StoreError, tenants::scope::TenantScope};
use longhaul_domain::ExecutionId;

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Number, counted from 1 per execution.
    pub seq: i32,
    pub at: DateTime<Utc>,
    pub kind: String,
    pub data: Option<Value>,
}

/// Position of a reader in one execution's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    pub execution: ExecutionId,
    /// Number of the last event that the reader has.
    pub after: i32,
}

/// Events after a cursor.
#[derive(Debug, Clone, PartialEq)]
pub struct News {
    pub events: Vec<Event>,
    /// Number of the execution's last event.
    pub last: i32,
    /// True if the execution is over, so that no event follows `last`.
    pub is_over: bool,
}

impl News {
    /// Returns true if events between the cursor and these are gone (or the cursor is not of this execution), so
    /// that the reader must look at the execution itself.
    #[must_use]
    pub fn breaks(&self, after: i32) -> bool {
        match self.events.first() {
            Some(first) => first.seq != after + 1,
            None => self.last != after,
        }
    }
}

impl Store {
    /// Events after each cursor, at most `limit` each, in one statement for all. `None` for an execution that
    /// does not exist.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn events_after(&self, cursors: &[Cursor], limit: i64) -> Result<Vec<Option<News>>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select
                asked.n as "n!", x.event_seq as "last!", x.finished_at is not null as "is_over!",
                v.seq as "seq?", v.at as "at?", v.kind as "kind?", v.data
            from unnest($1::uuid[], $2::int[]) with ordinality as asked (id, after, n)
            join executions x on x.id = asked.id
            left join lateral (
                select e.seq, e.at, e.kind, e.data
                from events e
                where x.event_seq > asked.after and e.execution_id = asked.id and e.seq > asked.after
                order by e.seq
                limit $3
            ) v on true
            order by asked.n, v.seq
            "#,
            &cursors.iter().map(|cursor| cursor.execution.0).collect::<Vec<Uuid>>(),
            &cursors.iter().map(|cursor| cursor.after).collect::<Vec<i32>>(),
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        let mut news: Vec<Option<News>> = vec![None; cursors.len()];
        for row in rows {
            let place = usize::try_from(row.n - 1).ok().and_then(|place| news.get_mut(place));
            let Some(place) = place else { continue };
            let news = place.get_or_insert(News { events: Vec::new(), last: row.last, is_over: row.is_over });
            if let (Some(seq), Some(at), Some(kind)) = (row.seq, row.at, row.kind) {
                news.events.push(Event { seq, at, kind, data: row.data });
            }
        }
        Ok(news)
    }

    /// The last event of a recorded turn before event `before`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn last_turn(&self, id: ExecutionId, before: i32) -> Result<Option<Event>, StoreError> {
        let event = sqlx::query_as!(
            Event,
            "select seq, at, kind, data from events where execution_id = $1 and seq < $2 and kind = 'turn' \
             order by seq desc limit 1",
            id.0,
            before,
        );
        Ok(event.fetch_optional(&self.pool).await?)
    }

    /// The turn whose text was the last that events told, unless that is void; `None` if there is none.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn told_turn(&self, id: ExecutionId) -> Result<Option<u32>, StoreError> {
        let event = sqlx::query_as!(
            Event,
            "select seq, at, kind, data from events where execution_id = $1 and kind in ('text', 'text_void') \
             order by seq desc limit 1",
            id.0,
        );
        let last = event.fetch_optional(&self.pool).await?.filter(|event| event.kind == "text");
        let turn = last.and_then(|event| event.data?.get("turn")?.as_u64());
        Ok(turn.and_then(|turn| u32::try_from(turn).ok()))
    }

    /// Steps of the results that were recorded before their turn, whose event is number `turn`: of calls that ended
    /// while the reply streamed.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn early_results(&self, id: ExecutionId, turn: i32) -> Result<Vec<i32>, StoreError> {
        let steps = sqlx::query_scalar!(
            r#"
            select (data ->> 'step')::int as "step!" from events
            where execution_id = $1 and seq < $2 and kind = 'call' and data ->> 'early' = 'true' and data ? 'step'
                and seq > coalesce(
                    (
                        select seq from events
                        where execution_id = $1 and seq < $2 and kind = 'turn'
                        order by seq desc limit 1
                    ),
                    0
                )
            order by seq
            "#,
            id.0,
            turn,
        );
        Ok(steps.fetch_all(&self.pool).await?)
    }

    /// Returns true if the execution exists within `reach`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn execution_exists(&self, reach: &TenantScope, id: ExecutionId) -> Result<bool, StoreError> {
        let tenants = reach.ids();
        let exists = sqlx::query_scalar!(
            r#"
            select exists (
                select from executions where id = $1 and ($2::uuid[] is null or tenant_id = any($2))
            ) as "exists!"
            "#,
            id.0,
            tenants.as_deref() as Option<&[Uuid]>,
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(exists)
    }
}
