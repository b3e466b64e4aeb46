//! Statements on human requests.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    Decided, Decider, HumanRequest, NewDecision, NewHumanRequest, RequestFilter, decision::DecisionRow,
    request::RequestedCall,
};
use crate::{
    Store, StoreError,
    columns::{Packed, Texts},
    database::{batch::Flushed, plans::begin_list},
    executions::lease_state::lease_state,
    fleet::maintenance::Runnable,
    history::journal::Hash,
    tenants::scope::TenantScope,
};
use longhaul_domain::{ExecutionId, HumanRequestId, RequestKind, RequestState, TenantId, WorkerId};

/// Most calls that [`Store::pending_calls`] reads.
const MAX_PENDING: i64 = 1_000;

/// Selects requests `r` with their executions `e`.
macro_rules! requests {
    (($($from:tt)*), $($bind:expr),* $(,)?) => {
        sqlx::query_as!(
            HumanRequest,
            r#"
            select
                r.id as "id: _", r.execution_id as "execution_id: _", r.agent_key, r.kind as "kind: _",
                r.call_key as "call_key: _", r.call_id, r.round, r.tool, r.arguments as "arguments: Packed", r.shown,
                r.redact as "redact: Texts", r.hash as "hash: _",
                r.schema as "schema: Value", r.policy, r.allow_self,
                e.finished_at is not null as "execution_is_over!", r.requested_at, r.expires_at,
                r.expires_at <= longhaul_now() as "is_overdue!", r.state as "state: _", r.decided_at,
                case when r.decided_key_id is not null then
                    (r.decided_key_id, coalesce(r.decided_key_name, ''), r.decided_by)
                end as "decided_by: Decider",
                r.reason, r.decision_tool, r.decision_body as "decision_body!: Packed<Option<Vec<u8>>>"
            "# + $($from)*,
            $($bind),*
        )
    };
}

/// The duty as requests that it sets aside name it.
const EXPIRE: &str = "expire requests";

impl Store {
    /// Stores a batch of calls as requests to people; one result per item, in order.
    ///
    /// # Errors
    /// Postgres refused a value of some item, or is unavailable.
    pub(crate) async fn request(
        &self,
        worker: WorkerId,
        items: &[Arc<NewHumanRequest>],
    ) -> Result<Vec<Flushed<HumanRequest>>, StoreError> {
        macro_rules! column {
            ($item:ident => $value:expr) => {
                &items.iter().map(|$item| $value).collect::<Vec<_>>()
            };
        }
        sqlx::query_file!(
            "src/sql/request.sql",
            worker.0,
            items.iter().map(|item| RequestedCall::from(&**item)).collect::<Vec<_>>() as _,
        )
        .execute(&self.pool)
        .await?;
        let stored = requests!(
            (r#"
            from unnest($1::uuid[], $2::bytea[], $3::text[], $4::int[]) as asked (execution_id, call_key, kind, round)
            join human_requests r on r.execution_id = asked.execution_id and r.call_key = asked.call_key
                and r.kind = asked.kind and r.round = asked.round
            join executions e on e.id = r.execution_id
            "#),
            column!(item => item.execution_id.0),
            column!(item => item.call_key.to_vec()),
            column!(item => item.kind.as_str().to_owned()),
            column!(item => item.round),
        )
        .fetch_all(&self.pool)
        .await?;
        let mut found = HashMap::new();
        for request in stored {
            found.insert((request.execution_id, request.call_key, request.kind, request.round), request);
        }
        let states = self.lease_states(column!(item => item.execution_id.0)).await?;
        let result = |item: &NewHumanRequest| {
            // A row alone proves nothing: an earlier attempt may have made it, and this one may have lost its
            // lease.
            let state = states.get(&item.execution_id.0);
            if state.and_then(|state| lease_state(worker, item.token, state)).is_none() {
                return Flushed::Done(Err(StoreError::LeaseLost));
            }
            match found.get(&(item.execution_id, item.call_key, item.kind, item.round)) {
                Some(request) => Flushed::Done(Ok(request.clone())),
                None => Flushed::Locked,
            }
        };
        Ok(items.iter().map(|item| result(item)).collect())
    }

    /// All requests of an execution, in the order in which they were made.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn requests_of(&self, id: ExecutionId) -> Result<Vec<HumanRequest>, StoreError> {
        let requests = requests!(
            (r#"
            from human_requests r join executions e on e.id = r.execution_id where r.execution_id = $1 order by r.id
            "#),
            id.0,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(requests)
    }

    /// Requests for one call: its approvals, one per round, before its question or its request to the caller.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn requests_of_call(&self, id: ExecutionId, call_key: &Hash) -> Result<Vec<HumanRequest>, StoreError> {
        let requests = requests!(
            (r#"
            from human_requests r join executions e on e.id = r.execution_id
            where r.execution_id = $1 and r.call_key = $2
            order by r.kind, r.round
            "#),
            id.0,
            &call_key[..],
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(requests)
    }

    /// One request; `None` if there is none of that kind within `reach`.
    ///
    /// # Errors
    /// Postgres is unavailable, or the row cannot be read.
    pub async fn get_request(
        &self,
        reach: &TenantScope,
        kind: RequestKind,
        id: HumanRequestId,
    ) -> Result<Option<HumanRequest>, StoreError> {
        let tenants = reach.ids();
        let request = requests!(
            (r#"
            from human_requests r join executions e on e.id = r.execution_id
            where r.id = $1 and r.kind = $2 and ($3::uuid[] is null or r.tenant_id = any($3))
            "#),
            id.0,
            kind.as_str(),
            tenants.as_deref() as Option<&[Uuid]>,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(request)
    }

    /// Those of these requests that `tenant` has, in the order in which they were made.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn requests_by_id(
        &self,
        tenant: TenantId,
        ids: &[HumanRequestId],
    ) -> Result<Vec<HumanRequest>, StoreError> {
        let rows = requests!(
            (r#"
            from human_requests r join executions e on e.id = r.execution_id
            where r.id = any($1) and r.tenant_id = $2
            order by r.id
            "#),
            &ids.iter().map(|id| id.0).collect::<Vec<_>>(),
            tenant.0,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    /// The requests that pass `filter`, newest first.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn list_requests(
        &self,
        reach: &TenantScope,
        filter: &RequestFilter,
    ) -> Result<Vec<HumanRequest>, StoreError> {
        let tenants = reach.ids();
        let tenants = tenants.as_deref() as Option<&[Uuid]>;
        // One backward scan of an index per tenant; the condition names the index.
        macro_rules! newest {
            ($condition:literal) => {
                requests!(
                    (r#"
                    from (select id as tenant_id from tenants where $1::uuid[] is null or id = any($1)) t
                    cross join lateral (
                        select * from human_requests r
                        where r.tenant_id = t.tenant_id and r.kind = $2 and r.id < $3
                            and ($4::uuid is null or r.execution_id = $4) and ($5::text is null or r.agent_key = $5)
                            and ($6::text is null or r.state = $6)
                            and "# + $condition + r#"
                        order by r.id desc
                        limit $7
                    ) r
                    join executions e on e.id = r.execution_id
                    order by r.id desc
                    limit $7
                    "#),
                    tenants,
                    filter.kind.as_str(),
                    filter.before.map_or(Uuid::max(), |before| before.0),
                    filter.execution_id.map(|id| id.0),
                    filter.agent,
                    filter.state.map(RequestState::as_str),
                    filter.limit,
                )
                .fetch_all(&mut *begin_list(&self.pool).await?)
                .await?
            };
        }
        let requests = if filter.execution_id.is_some() {
            newest!("r.execution_id = $4")
        } else if filter.state == Some(RequestState::Waiting) {
            newest!("r.state = 'waiting'")
        } else {
            newest!("true")
        };
        Ok(requests)
    }

    /// Calls of an execution that the caller answers, by their ids in the transcript: those of its tools, and
    /// questions. In the order in which they were made.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn calls_of_caller(&self, id: ExecutionId, call_ids: &[String]) -> Result<Vec<HumanRequest>, StoreError> {
        let requests = requests!(
            (r#"
            from human_requests r join executions e on e.id = r.execution_id
            where r.execution_id = $1 and r.kind in ('question', 'tool_call') and r.call_id = any($2)
            order by r.id
            "#),
            id.0,
            call_ids,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(requests)
    }

    /// Calls that wait for the caller's answer, of an execution and, if it is a root, of all in its tree. At most
    /// 1,000, in the order in which they were made.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn pending_calls(&self, id: ExecutionId) -> Result<Vec<HumanRequest>, StoreError> {
        let requests = requests!(
            (r#"
            from human_requests r join executions e on e.id = r.execution_id
            where r.execution_id = any(array(
                    select $1::uuid union all select x.id from executions x where x.root_id = $1
                        and x.finished_at is null
                ))
                and r.kind in ('question', 'tool_call') and r.state = 'waiting' and r.expires_at > longhaul_now()
                and e.finished_at is null
            order by r.id
            limit $2
            "#),
            id.0,
            MAX_PENDING,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(requests)
    }

    /// Stores a decision on a waiting request of `tenant` and wakes its execution. `None` unless the request
    /// waits, has that hash, is in time, and belongs to an execution that is not over.
    ///
    /// # Errors
    /// The values were refused, or Postgres is unavailable.
    pub async fn decide_request(
        &self,
        tenant: TenantId,
        id: HumanRequestId,
        decision: &NewDecision,
    ) -> Result<Option<Decided>, StoreError> {
        self.decide_requests(tenant, &[(id, decision)]).await
    }

    /// Stores decisions on requests of one execution, all or none, and wakes it once. `None`, and nothing is stored,
    /// unless [`decide_request`](Self::decide_request) would store each.
    ///
    /// # Errors
    /// The values were refused, or Postgres is unavailable.
    pub async fn decide_requests(
        &self,
        tenant: TenantId,
        decisions: &[(HumanRequestId, &NewDecision)],
    ) -> Result<Option<Decided>, StoreError> {
        decide(&mut *self.pool.acquire().await?, tenant, decisions).await
    }

    /// Expires up to `limit` requests whose time is over, of one execution or of all. Returns the executions that
    /// now wait for a worker.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn expire_requests(&self, limit: i64, of: Option<ExecutionId>) -> Result<Vec<Runnable>, StoreError> {
        let due = sqlx::query_scalar!(
            r#"
            select id from human_requests r
            where state = 'waiting' and expires_at <= longhaul_now() and ($2::uuid is null or execution_id = $2)
                and not exists (
                    select from set_aside s
                    where s.what = $3 and s.subject = r.id::text and s.next_at > longhaul_now()
                )
            order by expires_at limit $1
            "#,
            limit,
            of.map(|id| id.0),
            EXPIRE,
        )
        .fetch_all(&self.pool)
        .await?;
        self.each_id_apart(EXPIRE, &due, |ids| self.expire_those(ids)).await
    }

    async fn expire_those(&self, ids: Vec<Uuid>) -> Result<Vec<Runnable>, StoreError> {
        let rows = sqlx::query_file!("src/sql/expire.sql", &ids).fetch_all(&self.pool).await?;
        let runnable = rows.into_iter().filter(|row| row.is_runnable);
        Ok(runnable.map(|row| Runnable { id: ExecutionId(row.id), queue: row.queue }).collect())
    }

    /// Makes runnable the executions that are parked for one of the first `limit` decisions after `after`, and within
    /// `window`. Returns them, and the time from which the next look goes on: two seconds ago at the latest, because a
    /// decision is visible a little later than its time.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn wake_decided(
        &self,
        after: Option<DateTime<Utc>>,
        limit: i64,
        window: Duration,
    ) -> Result<(Vec<Runnable>, DateTime<Utc>), StoreError> {
        let next = sqlx::query_scalar!(
            r#"
            select case when count(*) = $2 then least(max(decided_at), longhaul_now() - interval '2 seconds')
                else longhaul_now() - interval '2 seconds' end as "next!"
            from (
                select decided_at from human_requests
                where decided_at > greatest($1::timestamptz, longhaul_now() - $3 * interval '1 second')
                order by decided_at limit $2
            ) looked_at
            "#,
            after,
            limit,
            window.as_secs_f64(),
        )
        .fetch_one(&self.pool)
        .await?;
        let woken = sqlx::query_file_as!(Runnable, "src/sql/wake_decided.sql", limit, after, window.as_secs_f64());
        Ok((woken.fetch_all(&self.pool).await?, next))
    }
}

/// [`Store::decide_requests`], in a transaction of its caller.
pub(crate) async fn decide(
    connection: &mut PgConnection,
    tenant: TenantId,
    decisions: &[(HumanRequestId, &NewDecision)],
) -> Result<Option<Decided>, StoreError> {
    let row = sqlx::query_file!(
        "src/sql/decide.sql",
        tenant.0,
        decisions.iter().map(DecisionRow::from).collect::<Vec<_>>() as _,
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| Decided {
        execution_id: ExecutionId(row.execution_id),
        runnable_in: row.is_runnable.then_some(row.queue),
    }))
}
