//! What executions want of people: approvals of their calls, and answers to their questions.
//!
//! What must hold:
//! - A call is put before people once: its key is unique, and asking again after a crash finds the same row.
//! - A request is decided once, over the hash of tool and arguments that its decider saw.
//! - Every decision, and every expiry, is a wake (core-rules 3): the fact, `wake_seq + 1` and the runnable row are one statement.
//! - What waits for people ends with its execution.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{
    Store, StoreError,
    batch::Flushed,
    body,
    journal::{Hash, hash, storable},
    maintenance::Runnable,
    outcomes::lease_state,
    tenants::Reach,
};
use crate::domain::{ApiKeyId, ExecutionId, HumanRequestId, LeaseToken, RequestKind, RequestState, TenantId, WorkerId};

/// A call that shall be put before people.
#[derive(Debug, Clone)]
pub struct NewHumanRequest {
    /// Whose call.
    pub execution_id: ExecutionId,
    /// The lease.
    pub token: LeaseToken,
    /// What is wanted.
    pub kind: RequestKind,
    /// The key of the call's step.
    pub call_key: Hash,
    /// How often the call was replaced before.
    pub round: i32,
    /// The tool.
    pub tool: String,
    /// Its resolved arguments, byte for byte.
    pub arguments: Vec<u8>,
    /// What people are shown first: the arguments, cut, or the question.
    pub shown: String,
    /// What edited arguments, or the answer, must satisfy.
    pub schema: Option<Value>,
    /// The rule that asks for an approval.
    pub policy: Option<String>,
    /// Whether the key that submitted the execution may decide.
    pub allow_self: bool,
    /// How long to wait; never past the execution's deadline.
    pub expires_in: Duration,
}

/// Something an execution wants, or wanted, of people.
#[derive(Debug, Clone, PartialEq)]
pub struct HumanRequest {
    /// Its id.
    pub id: HumanRequestId,
    /// Whose call.
    pub execution_id: ExecutionId,
    /// By which agent.
    pub agent_key: String,
    /// What is wanted.
    pub kind: RequestKind,
    /// The key of the call's step.
    pub call_key: Hash,
    /// How often the call was replaced before.
    pub round: i32,
    /// The tool.
    pub tool: String,
    /// Its resolved arguments, byte for byte.
    pub arguments: Vec<u8>,
    /// What people are shown first.
    pub shown: String,
    /// [`call_hash`] of tool and arguments.
    pub hash: Hash,
    /// What edited arguments, or the answer, must satisfy.
    pub schema: Option<Value>,
    /// The rule that asked.
    pub policy: Option<String>,
    /// Whether the key that submitted the execution may decide.
    pub allow_self: bool,
    /// Which key submitted the execution.
    pub submitted_by: Option<ApiKeyId>,
    /// Whether the execution ended.
    pub execution_is_over: bool,
    /// When it was first put before people.
    pub requested_at: DateTime<Utc>,
    /// Until when they may answer.
    pub expires_at: DateTime<Utc>,
    /// Whether that time is over, by the database's clock.
    pub is_overdue: bool,
    /// What came of it.
    pub state: RequestState,
    /// When that was.
    pub decided_at: Option<DateTime<Utc>>,
    /// Who said so.
    pub decided_by: Option<Decider>,
    /// Why, as its decider put it.
    pub reason: Option<String>,
    /// The tool that replaces the one asked for.
    pub decision_tool: Option<String>,
    /// The edited or replacing arguments, or the answer, byte for byte.
    pub decision_body: Option<Vec<u8>>,
}

impl HumanRequest {
    /// Whether it still waits although its time is over: the sweep was not there yet.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.state == RequestState::Waiting && self.is_overdue
    }
}

/// Who decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decider {
    /// By which key.
    pub key_id: ApiKeyId,
    /// What the key is called.
    pub key_name: String,
    /// In whose name, as far as the caller said so.
    pub person: Option<String>,
}

/// What a person says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The call may run as it is.
    Approve,
    /// It may run with these arguments.
    Edit {
        /// JSON, byte for byte.
        arguments: Vec<u8>,
    },
    /// This call shall run in its place.
    Replace {
        /// The other tool.
        tool: String,
        /// JSON, byte for byte.
        arguments: Vec<u8>,
    },
    /// It must not run.
    Reject,
    /// The answer to a question.
    Answer {
        /// JSON, byte for byte.
        answer: Vec<u8>,
    },
}

/// A decision on its way to the store.
#[derive(Debug, Clone)]
pub struct NewDecision {
    /// What is said.
    pub verdict: Verdict,
    /// The hash of what the decider saw.
    pub hash: Hash,
    /// Who says it.
    pub by: Decider,
    /// Why.
    pub reason: Option<String>,
}

/// What a decision did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// The execution it woke.
    pub execution_id: ExecutionId,
    /// Its queue, when it was parked and is runnable now.
    pub runnable_in: Option<String>,
}

/// Which requests to list, newest first.
#[derive(Debug, Clone)]
pub struct RequestFilter {
    /// Approvals or questions.
    pub kind: RequestKind,
    /// What came of them.
    pub state: Option<RequestState>,
    /// Of one execution.
    pub execution_id: Option<ExecutionId>,
    /// Of one agent.
    pub agent: Option<String>,
    /// Older than this one: the last one of the page before.
    pub before: Option<HumanRequestId>,
    /// The most rows.
    pub limit: i64,
}

/// What a decision is bound to: SHA-256 over the tool's name and the exact bytes of its resolved arguments.
#[must_use]
pub fn call_hash(tool: &str, arguments: &[u8]) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update((tool.len() as u64).to_be_bytes());
    hasher.update(tool);
    hasher.update(arguments);
    hasher.finalize().into()
}

impl Verdict {
    fn state(&self) -> RequestState {
        match self {
            Self::Approve => RequestState::Approved,
            Self::Edit { .. } => RequestState::Edited,
            Self::Replace { .. } => RequestState::Replaced,
            Self::Reject => RequestState::Rejected,
            Self::Answer { .. } => RequestState::Answered,
        }
    }

    fn kind(&self) -> RequestKind {
        match self {
            Self::Approve | Self::Edit { .. } | Self::Replace { .. } | Self::Reject => RequestKind::Approval,
            Self::Answer { .. } => RequestKind::Question,
        }
    }

    fn tool(&self) -> Option<&str> {
        match self {
            Self::Replace { tool, .. } => Some(tool),
            Self::Approve | Self::Edit { .. } | Self::Reject | Self::Answer { .. } => None,
        }
    }

    fn body(&self) -> Option<&[u8]> {
        match self {
            Self::Edit { arguments } | Self::Replace { arguments, .. } => Some(arguments),
            Self::Answer { answer } => Some(answer),
            Self::Approve | Self::Reject => None,
        }
    }
}

#[derive(Debug)]
struct Row {
    id: Uuid,
    execution_id: Uuid,
    agent_key: String,
    kind: String,
    call_key: Vec<u8>,
    round: i32,
    tool: String,
    arguments: Vec<u8>,
    shown: String,
    hash: Vec<u8>,
    schema: Option<Value>,
    policy: Option<String>,
    allow_self: bool,
    submitted_by: Option<Uuid>,
    execution_is_over: bool,
    requested_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    is_overdue: bool,
    state: String,
    decided_at: Option<DateTime<Utc>>,
    decided_key_id: Option<Uuid>,
    decided_key_name: Option<String>,
    decided_by: Option<String>,
    reason: Option<String>,
    decision_tool: Option<String>,
    decision_body: Option<Vec<u8>>,
}

impl TryFrom<Row> for HumanRequest {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let unknown = |what: &str, name: &str| StoreError::Corrupt(format!("{what} `{name}` is unknown"));
        Ok(Self {
            id: HumanRequestId(row.id),
            execution_id: ExecutionId(row.execution_id),
            agent_key: row.agent_key,
            kind: RequestKind::parse(&row.kind).ok_or_else(|| unknown("request kind", &row.kind))?,
            call_key: hash(&row.call_key)?,
            round: row.round,
            tool: row.tool,
            arguments: body::decode(&row.arguments)?,
            shown: row.shown,
            hash: hash(&row.hash)?,
            schema: row.schema,
            policy: row.policy,
            allow_self: row.allow_self,
            submitted_by: row.submitted_by.map(ApiKeyId),
            execution_is_over: row.execution_is_over,
            requested_at: row.requested_at,
            expires_at: row.expires_at,
            is_overdue: row.is_overdue,
            state: RequestState::parse(&row.state).ok_or_else(|| unknown("request state", &row.state))?,
            decided_at: row.decided_at,
            decided_by: row.decided_key_id.map(|id| Decider {
                key_id: ApiKeyId(id),
                key_name: row.decided_key_name.unwrap_or_default(),
                person: row.decided_by,
            }),
            reason: row.reason,
            decision_tool: row.decision_tool,
            decision_body: row.decision_body.map(|stored| body::decode(&stored)).transpose()?,
        })
    }
}

/// Reads requests `r` with their executions `e`.
macro_rules! requests {
    (($($from:tt)*), $($bind:expr),* $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"
            select
                r.id, r.execution_id, r.agent_key, r.kind, r.call_key, r.round, r.tool, r.arguments, r.shown, r.hash,
                r.schema as "schema: Value", r.policy, r.allow_self, e.submitted_by,
                e.finished_at is not null as "execution_is_over!", r.requested_at, r.expires_at,
                r.expires_at <= longhaul_now() as "is_overdue!", r.state, r.decided_at, r.decided_key_id, r.decided_key_name,
                r.decided_by, r.reason, r.decision_tool, r.decision_body
            "# + $($from)*,
            $($bind),*
        )
    };
}

impl Store {
    /// Puts a batch of calls before people; one result per item, in order.
    ///
    /// # Errors
    /// Postgres refused a value of some item, or is unavailable.
    pub(super) async fn request(
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
            "src/store/sql/request.sql",
            worker.0,
            column!(item => item.execution_id.0),
            column!(item => item.token.0),
            column!(item => item.kind.as_str().to_owned()),
            column!(item => item.call_key.to_vec()),
            column!(item => storable(&item.tool)),
            column!(item => body::encode(&item.arguments)),
            column!(item => storable(&item.shown)),
            column!(item => call_hash(&item.tool, &item.arguments).to_vec()),
            column!(item => item.schema.as_ref().map(ToString::to_string)) as _,
            column!(item => item.policy.as_deref().map(storable)) as _,
            column!(item => item.allow_self),
            column!(item => item.expires_in.as_secs_f64()),
            column!(item => item.round),
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
        for row in stored {
            let request = HumanRequest::try_from(row)?;
            found.insert((request.execution_id, request.call_key, request.kind, request.round), request);
        }
        let states = self.lease_states(column!(item => item.execution_id.0)).await?;
        let result = |item: &NewHumanRequest| {
            // A row alone proves nothing: an earlier attempt may have made it, and this one may have lost its lease.
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

    /// Everything an execution ever wanted of people, in the order it did.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn requests_of(&self, id: ExecutionId) -> Result<Vec<HumanRequest>, StoreError> {
        let rows = requests!(
            (r#"from human_requests r join executions e on e.id = r.execution_id where r.execution_id = $1 order by r.id"#),
            id.0,
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(HumanRequest::try_from).collect()
    }

    /// What was wanted for one call: its approvals, one per round, before its question.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn requests_of_call(&self, id: ExecutionId, call_key: &Hash) -> Result<Vec<HumanRequest>, StoreError> {
        let rows = requests!(
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
        rows.into_iter().map(HumanRequest::try_from).collect()
    }

    /// One request; `None` when there is none of that kind within `reach`.
    ///
    /// # Errors
    /// Postgres is unavailable, or the row cannot be read.
    pub async fn get_request(
        &self,
        reach: &Reach,
        kind: RequestKind,
        id: HumanRequestId,
    ) -> Result<Option<HumanRequest>, StoreError> {
        let tenants = reach.ids();
        let row = requests!(
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
        row.map(HumanRequest::try_from).transpose()
    }

    /// The requests that pass `filter`, newest first.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn list_requests(&self, reach: &Reach, filter: &RequestFilter) -> Result<Vec<HumanRequest>, StoreError> {
        let tenants = reach.ids();
        let tenants = tenants.as_deref() as Option<&[Uuid]>;
        // One backward scan of an index per tenant; which one is named by the condition.
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
                .fetch_all(&self.pool)
                .await?
            };
        }
        let rows = if filter.execution_id.is_some() {
            newest!("r.execution_id = $4")
        } else if filter.state == Some(RequestState::Waiting) {
            newest!("r.state = 'waiting'")
        } else {
            newest!("true")
        };
        rows.into_iter().map(HumanRequest::try_from).collect()
    }

    /// Stores a decision on a waiting request of `tenant` and wakes its execution; `None` when there is no such request that
    /// waits, was seen under that hash, is in time, and belongs to an execution that goes on.
    ///
    /// # Errors
    /// The values were refused, or Postgres is unavailable.
    pub async fn decide_request(
        &self,
        tenant: TenantId,
        id: HumanRequestId,
        decision: &NewDecision,
    ) -> Result<Option<Decided>, StoreError> {
        let row = sqlx::query_file!(
            "src/store/sql/decide.sql",
            id.0,
            tenant.0,
            decision.verdict.kind().as_str(),
            &decision.hash,
            decision.verdict.state().as_str(),
            decision.by.key_id.0,
            decision.by.key_name,
            decision.by.person,
            decision.reason,
            decision.verdict.tool(),
            decision.verdict.body().map(body::encode),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| Decided {
            execution_id: ExecutionId(row.execution_id),
            runnable_in: row.is_runnable.then_some(row.queue),
        }))
    }

    /// Ends the wait of up to `limit` requests whose time is over, of one execution or of all; gives the executions that this
    /// made runnable.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn expire_requests(&self, limit: i64, of: Option<ExecutionId>) -> Result<Vec<Runnable>, StoreError> {
        let rows =
            sqlx::query_file!("src/store/sql/expire.sql", limit, of.map(|id| id.0)).fetch_all(&self.pool).await?;
        let runnable = rows.into_iter().filter(|row| row.is_runnable);
        Ok(runnable.map(|row| Runnable { id: ExecutionId(row.id), queue: row.queue }).collect())
    }

    /// Makes runnable up to `limit` executions that are parked for a decision which came within `window`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn wake_decided(&self, limit: i64, window: Duration) -> Result<Vec<Runnable>, StoreError> {
        let rows = sqlx::query_file!("src/store/sql/wake_decided.sql", limit, window.as_secs_f64())
            .fetch_all(&self.pool)
            .await?;
        Ok(rows.into_iter().map(|row| Runnable { id: ExecutionId(row.id), queue: row.queue }).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_separates_tool_and_arguments() {
        assert_ne!(call_hash("pay", b"x{}"), call_hash("payx", b"{}"));
        assert_eq!(call_hash("pay", b"{}"), call_hash("pay", b"{}"));
    }
}
