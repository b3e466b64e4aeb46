//! Legs of an answer: each ends where the run waits for its caller, and the caller's next request begins the next.

use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionId, HumanRequestId, TenantId};
use serde_json::Value;
use sqlx::{PgConnection, types::Json};

use crate::{
    Store, StoreError,
    human_requests::{Decided, NewDecision, decide},
};

/// A request that continued an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Leg {
    /// Number of the leg, from 1; the request that began the execution is leg 0.
    pub leg: i32,
    /// The request, as its wire keeps it.
    pub request: Value,
    /// Number of the execution's last event when the leg began.
    pub after_seq: i32,
    pub created_at: DateTime<Utc>,
}

impl Store {
    /// Stores decisions as [`Store::decide_requests`] does, and in the same transaction the request that brought them,
    /// as the next leg of the execution's answer. The leg begins after the events of the decisions. `None`, and nothing
    /// is stored, unless each decision would be.
    ///
    /// # Errors
    /// The values were refused, or Postgres is unavailable.
    pub async fn decide_requests_in_leg(
        &self,
        tenant: TenantId,
        decisions: &[(HumanRequestId, &NewDecision)],
        request: Value,
    ) -> Result<Option<(Decided, Leg)>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let Some(decided) = decide(&mut transaction, tenant, decisions).await? else {
            // Now, and not once the connection is back in its pool: a claim skips what is still locked.
            transaction.rollback().await?;
            return Ok(None);
        };
        let leg = add_leg(&mut transaction, decided.execution_id, request).await?;
        transaction.commit().await?;
        Ok(Some((decided, leg)))
    }

    /// The legs of an execution's answer, in order.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn legs(&self, id: ExecutionId) -> Result<Vec<Leg>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select leg, request as "request: Json<Value>", after_seq, created_at from wire_legs
            where execution_id = $1 order by leg
            "#,
            id.0,
        )
        .fetch_all(&self.pool)
        .await?;
        let legs = rows.into_iter().map(|row| Leg {
            leg: row.leg,
            request: row.request.0,
            after_seq: row.after_seq,
            created_at: row.created_at,
        });
        Ok(legs.collect())
    }
}

/// Adds the next leg of an execution whose row this transaction has locked.
async fn add_leg(connection: &mut PgConnection, id: ExecutionId, request: Value) -> Result<Leg, StoreError> {
    let row = sqlx::query!(
        r#"
        insert into wire_legs (execution_id, leg, request, after_seq, created_at)
        select e.id, 1 + coalesce((select max(l.leg) from wire_legs l where l.execution_id = e.id), 0), $2::text::json,
            e.event_seq, longhaul_now()
        from executions e where e.id = $1
        returning leg, after_seq, created_at
        "#,
        id.0,
        request.to_string(),
    )
    .fetch_one(connection)
    .await?;
    Ok(Leg { leg: row.leg, request, after_seq: row.after_seq, created_at: row.created_at })
}
