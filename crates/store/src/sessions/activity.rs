//! The execution that has a session's turn as it stands now: its open calls, its children, and its place in the stream
//! of the session.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionId, ExecutionStatus, SessionId, WaitReason, message::Message};
use uuid::Uuid;

use crate::{Store, StoreError, history::body};

/// Most children that are shown.
const MAX_CHILDREN: i64 = 100;

/// Open calls and children of an execution.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Activity {
    /// Calls of its last recorded turn without a result, in the order of the reply.
    pub calls: Vec<ActiveCall>,
    /// The children started last, oldest first.
    pub children: Vec<SubAgent>,
}

/// A call without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveCall {
    pub call_id: String,
    pub tool: String,
    /// True if a person must decide about a call of this tool.
    pub is_waiting: bool,
}

/// A child of an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubAgent {
    pub id: ExecutionId,
    pub agent_key: String,
    pub status: ExecutionStatus,
    pub wait_reason: Option<WaitReason>,
    pub failure_code: Option<String>,
    pub created_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
}

/// A message of a caller in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberedTurn {
    /// Number in the session, from 1.
    pub number: i32,
    pub execution: ExecutionId,
}

/// The turns of an execution that observers have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnUnderWay {
    /// Number of the last recorded turn; 0 before the first.
    pub recorded: u32,
    /// True if the execution has not ended.
    pub is_open: bool,
}

impl Store {
    /// Open calls and children of an execution.
    ///
    /// # Errors
    /// Postgres is unavailable, or a message cannot be read.
    pub async fn execution_activity(&self, id: ExecutionId) -> Result<Activity, StoreError> {
        let steps = sqlx::query!(
            r#"
            select s.kind, s.appends from steps s
            where s.execution_id = $1 and s.state = 'live' and s.kind in ('turn', 'call') and s.seq >= (
                select max(t.seq) from steps t where t.execution_id = $1 and t.kind = 'turn' and t.state = 'live'
            )
            order by s.seq
            "#,
            id.0,
        )
        .fetch_all(&self.pool)
        .await?;
        let waiting: Vec<String> =
            sqlx::query_scalar!("select tool from human_requests where execution_id = $1 and state = 'waiting'", id.0)
                .fetch_all(&self.pool)
                .await?;
        let (mut calls, mut answered) = (Vec::new(), HashSet::new());
        for stored in steps.iter().flat_map(|step| &step.appends) {
            let bytes = body::decode(stored)?;
            let message = Message::from_bytes(&bytes)
                .map_err(|error| StoreError::Corrupt(format!("a recorded message cannot be read: {error}")))?;
            calls.extend(message.calls().iter().map(|call| (call.id.clone(), call.name.clone())));
            if let Message::Tool { call_id, .. } = message {
                answered.insert(call_id);
            }
        }
        let open = calls.into_iter().filter(|(call_id, _)| !answered.contains(call_id));
        let calls = open.map(|(call_id, tool)| ActiveCall { call_id, is_waiting: waiting.contains(&tool), tool });
        Ok(Activity { calls: calls.collect(), children: self.sub_agents(id).await? })
    }

    async fn sub_agents(&self, parent: ExecutionId) -> Result<Vec<SubAgent>, StoreError> {
        let mut children = sqlx::query_as!(
            SubAgent,
            r#"
            select id, agent_key, status::text as "status!: _", wait_reason as "wait_reason: _", failure_code,
                created_at, finished_at
            from executions where parent_id = $1 order by id desc limit $2
            "#,
            parent.0,
            MAX_CHILDREN,
        )
        .fetch_all(&self.pool)
        .await?;
        children.reverse();
        Ok(children)
    }

    /// The first message after number `after` whose execution still exists.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn next_turn(&self, session: SessionId, after: i32) -> Result<Option<NumberedTurn>, StoreError> {
        let turn = sqlx::query_as!(
            NumberedTurn,
            r#"
            select t.number, t.execution_id as "execution: _"
            from session_turns t join executions e on e.id = t.execution_id
            where t.session_id = $1 and t.number > $2
            order by t.number limit 1
            "#,
            session.0,
            after,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(turn)
    }

    /// Number of the message that an execution answers; `None` if it is in another session or in none.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn turn_number(&self, session: SessionId, execution: ExecutionId) -> Result<Option<i32>, StoreError> {
        let number = sqlx::query_scalar!(
            "select number from session_turns where session_id = $1 and execution_id = $2",
            session.0,
            execution.0,
        );
        Ok(number.fetch_optional(&self.pool).await?)
    }

    /// Numbers of messages accepted so far, of those sessions that exist.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn turns_of_sessions(&self, sessions: &[SessionId]) -> Result<Vec<(SessionId, i32)>, StoreError> {
        let ids: Vec<Uuid> = sessions.iter().map(|session| session.0).collect();
        let rows =
            sqlx::query!("select id, turns from sessions where id = any ($1)", &ids).fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(|row| (SessionId(row.id), row.turns)).collect())
    }

    /// The turns of an execution that observers have; `None` if there is no such execution.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn turn_under_way(&self, id: ExecutionId) -> Result<Option<TurnUnderWay>, StoreError> {
        let row = sqlx::query!(
            r#"
            select e.finished_at is null as "is_open!", (
                select (v.data ->> 'turn')::int from events v
                where v.execution_id = e.id and v.kind = 'turn' order by v.seq desc limit 1
            ) as turn
            from executions e where e.id = $1
            "#,
            id.0,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| TurnUnderWay {
            recorded: row.turn.and_then(|turn| u32::try_from(turn).ok()).unwrap_or_default(),
            is_open: row.is_open,
        }))
    }
}
