//! The recorded calls of an execution, page by page: the journal as a worker over HTTP reads it.

use longhaul_domain::ExecutionId;

use super::{
    body,
    hash::hash,
    journal::{Hash, StepState, parse_state},
};
use crate::{Store, StoreError};

/// Steps of one page of calls.
const PAGE_STEPS: i64 = 500;

/// A recorded call, as its worker looks it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCall {
    /// Number of its step.
    pub seq: i32,
    pub state: StepState,
    /// Content key.
    pub key: Hash,
    pub name: String,
    /// Exact bytes.
    pub body: Vec<u8>,
}

impl Store {
    /// The calls of an execution after the step of that number, in order: as many as fit into so many bytes, and one.
    /// The second value is the number after which to go on, if there are more. Remote workers write nothing but calls,
    /// in the first format.
    ///
    /// # Errors
    /// Postgres is unavailable, or the stored journal is corrupt.
    pub async fn calls_after(
        &self,
        id: ExecutionId,
        after: i32,
        max_bytes: usize,
    ) -> Result<(Vec<RecordedCall>, Option<i32>), StoreError> {
        let rows = sqlx::query!(
            r#"
            select seq as "seq!", kind = 'call' as "is_call!", state as "state!", key as "key!", name, body as "body!",
                is_last as "is_last!"
            from (
                select *, sum(octet_length(body)) over (order by seq) - octet_length(body) as before,
                    lead(seq) over (order by seq) is null as is_last
                from (select * from steps where execution_id = $1 and seq > $2 order by seq limit $3) part
            ) bounded
            where before < $4 order by seq
            "#,
            id.0,
            after,
            PAGE_STEPS + 1,
            i64::try_from(max_bytes).unwrap_or(i64::MAX),
        )
        .fetch_all(&self.pool)
        .await?;
        let (mut calls, mut bytes, mut next) = (Vec::new(), 0, None);
        for row in rows.into_iter().take(PAGE_STEPS as usize) {
            // A stored body may be far smaller than what it stands for.
            if bytes >= max_bytes {
                break;
            }
            next = (!row.is_last).then_some(row.seq);
            let body = body::decode(&row.body)?;
            bytes += body.len();
            if row.is_call {
                let (state, key) = (parse_state(&row.state)?, hash(&row.key)?);
                calls.push(RecordedCall { seq: row.seq, state, key, name: row.name.unwrap_or_default(), body });
            }
        }
        Ok((calls, next))
    }
}
