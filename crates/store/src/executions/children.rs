//! Children: executions that a running execution starts, waits for, and has cancelled when it ends.
//!
//! Invariants (core-rules 3, 17):
//! - One call of the parent is one child: a repeated spawn, after a crash or by another attempt, finds it.
//! - A child is inserted under its parent's lock, and only while the parent is neither over nor to be cancelled.
//! - The transaction that ends a child tells its parent; a trigger does so (`longhaul_execution_ends`), so that
//!   no statement can omit it.
//! - The open descendants of an ended execution are cancelled level by level until none is left.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    executions::submit::{NewExecution, SubmissionRow},
    fleet::maintenance::Runnable,
    history::journal::Hash,
};
use longhaul_domain::{ExecutionId, ExecutionStatus, LeaseToken, WorkerId};
use longhaul_telemetry::metrics;

/// Failure summary of a cancelled descendant.
const PARENT_ENDED: &str = "cancelled because the execution that started it ended";

/// Waiting parents that one look of the net examines.
const PARENTS: i64 = 15;

/// Lease of the attempt that asks for children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpawnLease {
    pub worker: WorkerId,
    pub parent: ExecutionId,
    pub token: LeaseToken,
}

/// A child to start.
#[derive(Debug, Clone)]
pub struct NewChild {
    /// Identifies the call of the parent that it carries out; the same key is the same child.
    pub key: Hash,
    /// Execution to run. Tenant, queue, priority and submitter are its parent's, and its deadline is at most its
    /// parent's.
    pub execution: NewExecution,
}

/// Limits on the size of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeLimits {
    /// Levels below the root.
    pub depth: i16,
    /// Children of one execution, ended ones included.
    pub children: i32,
    /// Executions of one tree, the root included. Exact even if many parents spawn at the same moment.
    pub executions: i32,
}

/// Reason for which children were not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpawnRefused {
    /// The parent is to be cancelled.
    #[error("the execution is being cancelled")]
    Cancelled,
    /// The parent is on the lowest level allowed.
    #[error("executions may be nested {0} deep, and this one is on the last level")]
    TooDeep(i16),
    /// The parent would have too many children.
    #[error("one execution may start {0} children over its whole life")]
    TooManyChildren(i32),
    /// The tree would be too large.
    #[error("a tree may hold {0} executions")]
    TreeFull(i32),
}

/// A child as its parent sees it.
#[derive(Debug, Clone)]
pub struct Child {
    pub id: ExecutionId,
    /// Identifies the call of the parent that it carries out.
    pub key: Hash,
    pub status: ExecutionStatus,
    pub agent_key: String,
    /// Failure code, once FAILED.
    pub failure_code: Option<String>,
    /// Time of its end.
    pub finished_at: Option<DateTime<Utc>>,
}

impl Store {
    /// Starts children of the execution that `lease` holds, all or none, and returns their ids in order. Those
    /// started before under the same keys are found again.
    ///
    /// # Errors
    /// The lease is lost or waits for its renewal, a value was refused, or Postgres is unavailable.
    pub async fn spawn_children(
        &self,
        lease: SpawnLease,
        children: &[NewChild],
        limits: TreeLimits,
    ) -> Result<Result<Vec<ExecutionId>, SpawnRefused>, StoreError> {
        let keys: Vec<Vec<u8>> = children.iter().map(|child| child.key.to_vec()).collect();
        let rows: Vec<SubmissionRow> = children.iter().map(|child| SubmissionRow::from(&child.execution)).collect();
        let row = sqlx::query_file!(
            "src/sql/spawn.sql",
            lease.worker.0,
            lease.parent.0,
            lease.token.0,
            &keys,
            &rows as _,
            limits.depth,
            limits.children,
            limits.executions,
        )
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Err(self.why_refused(lease.worker, lease.parent, lease.token).await) };
        match row.refusal.as_deref() {
            None => {}
            Some("cancelled") => return Ok(Err(SpawnRefused::Cancelled)),
            Some("too_deep") => return Ok(Err(SpawnRefused::TooDeep(limits.depth))),
            Some("too_many_children") => return Ok(Err(SpawnRefused::TooManyChildren(limits.children))),
            Some("tree_full") => return Ok(Err(SpawnRefused::TreeFull(limits.executions))),
            Some(other) => return Err(StoreError::Corrupt(format!("refusal `{other}` is unknown"))),
        }
        // A second statement: the first one's snapshot may be older than children it met.
        let found: HashMap<Hash, ExecutionId> =
            self.children_of(lease.parent).await?.into_iter().map(|child| (child.key, child.id)).collect();
        let ids = children.iter().map(|child| found.get(&child.key).copied());
        let ids: Vec<ExecutionId> = ids.map(|id| id.ok_or(StoreError::NotFound("child"))).collect::<Result<_, _>>()?;
        // A child that existed before has an earlier id.
        let started = ids.iter().zip(children).filter(|(id, child)| **id == child.execution.id);
        metrics::executions_submitted(started.count() as u64);
        Ok(Ok(ids))
    }

    /// Children of an execution, in the order in which they were started.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn children_of(&self, parent: ExecutionId) -> Result<Vec<Child>, StoreError> {
        let children = sqlx::query_as!(
            Child,
            r#"
            select id, spawn_key as "key!: _", status::text as "status!: _", agent_key, failure_code, finished_at
            from executions
            where parent_id = $1
            order by id
            "#,
            parent.0,
        );
        Ok(children.fetch_all(&self.pool).await?)
    }

    /// Cancels up to `limit` open children of executions that ended or are to end: one level of their trees.
    /// Repeat it until it returns none.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn cancel_descendants(&self, limit: i64) -> Result<Vec<ExecutionId>, StoreError> {
        let rows = sqlx::query_file!("src/sql/open_descendants.sql", limit).fetch_all(&self.pool).await?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<Uuid> = rows.into_iter().map(|row| row.id).collect();
        let cancelled = self.cancel_rows(&ids, None, PARENT_ENDED).await?;
        Ok(cancelled.into_iter().map(|(id, _)| id).collect())
    }

    /// Makes runnable executions that wait for children and have none open, of the next after `after`. Returns them,
    /// and the last looked at; none after the last of all.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn wake_childless(&self, after: Option<Uuid>) -> Result<(Vec<Runnable>, Option<Uuid>), StoreError> {
        let rows = sqlx::query_file!("src/sql/wake_childless.sql", PARENTS, after.unwrap_or_default())
            .fetch_all(&self.pool)
            .await?;
        let last = rows.last().filter(|_| rows.len() as i64 == PARENTS).map(|row| row.id);
        let woken = rows.into_iter().filter_map(|row| Some(Runnable { id: ExecutionId(row.id), queue: row.queue? }));
        Ok((woken.collect(), last))
    }
}
