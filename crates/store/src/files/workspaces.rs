//! Workspaces: the files of the built-in tools (docs/design/workspace.md). Each change makes a version, under the
//! lease of its attempt and with the key of its call, so that a repeated call finds its result.

use longhaul_domain::{ExecutionId, LeaseToken, SessionId, WorkerId};
use uuid::Uuid;

use super::BodyHash;
use crate::{Store, StoreError, history::journal::Hash};

/// Most bytes, and most entries, of earlier versions that are kept for forks.
const OLD_BYTES: i64 = 256 << 20;
const OLD_ENTRIES: i64 = 10_000;

/// Id of a workspace: that of its session, or of its execution outside of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkspaceId(Uuid);

impl WorkspaceId {
    /// The workspace of an execution.
    #[must_use]
    pub fn of(execution: ExecutionId, session: Option<SessionId>) -> Self {
        Self(session.map_or(execution.0, |session| session.0))
    }
}

/// A workspace at one version; version 0 is one that nothing has changed yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredWorkspace {
    pub version: i32,
    /// In the order of their paths.
    pub entries: Vec<WorkspaceEntry>,
}

/// An entry at its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceEntry {
    pub path: String,
    pub node: WorkspaceNode,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceNode {
    File {
        hash: BodyHash,
        /// Length in bytes.
        bytes: u64,
        is_executable: bool,
    },
    /// A symbolic link. Nothing follows it but the command of a sandbox.
    Link { target: String },
    /// An empty directory; the others follow from the paths of files.
    Directory,
}

/// The result of a call that changed a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceResult {
    pub is_error: bool,
    /// Text for the model.
    pub text: String,
}

/// A change of a workspace by one call.
#[derive(Debug, Clone)]
pub struct WorkspaceChange<'a> {
    pub call_key: &'a Hash,
    /// The same for every repetition of the call.
    pub repeat_key: &'a str,
    /// Version that the change was made from.
    pub from: i32,
    /// Paths that are no more, or become other entries.
    pub ended: Vec<String>,
    pub added: Vec<WorkspaceEntry>,
    pub result: &'a WorkspaceResult,
}

impl Store {
    /// A workspace as it is.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn workspace(&self, id: WorkspaceId) -> Result<StoredWorkspace, StoreError> {
        let rows = sqlx::query!(
            r#"
            select w.version, e.path as "path?", e.kind as "kind?", e.hash as "hash?", e.bytes as "bytes?",
                e.is_executable as "is_executable?", e.target as "target?"
            from workspaces w left join workspace_entries e on e.workspace_id = w.id and e.until is null
            where w.id = $1
            order by e.path collate "C"
            "#,
            id.0,
        )
        .fetch_all(&self.pool)
        .await?;
        let version = rows.first().map_or(0, |row| row.version);
        let mut entries = Vec::with_capacity(rows.len());
        for row in rows {
            let Some(path) = row.path else { continue };
            let node = match (row.hash, row.target) {
                (Some(hash), _) => WorkspaceNode::File {
                    hash: hash.as_slice().try_into().map_err(|_| StoreError::Corrupt(format!("the hash of {path}")))?,
                    bytes: row.bytes.unwrap_or_default().unsigned_abs(),
                    is_executable: row.is_executable.unwrap_or_default(),
                },
                (None, Some(target)) => WorkspaceNode::Link { target },
                (None, None) => WorkspaceNode::Directory,
            };
            entries.push(WorkspaceEntry { path, node });
        }
        Ok(StoredWorkspace { version, entries })
    }

    /// The result of the call with this key, if it changed the workspace.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn workspace_result(
        &self,
        id: WorkspaceId,
        repeat_key: &str,
    ) -> Result<Option<WorkspaceResult>, StoreError> {
        let row = sqlx::query!(
            "select is_error, result from workspace_changes where workspace_id = $1 and repeat_key = $2",
            id.0,
            repeat_key,
        )
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let forgotten = || StoreError::Corrupt("the result of a repeated call of a workspace was forgotten".into());
        Ok(Some(WorkspaceResult { is_error: row.is_error, text: row.result.ok_or_else(forgotten)? }))
    }

    /// Makes the next version of a workspace and returns its number. The bodies of new files are stored.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]; [`StoreError::Conflict`] if the workspace has another version than the change was
    /// made from; a body is gone; Postgres is unavailable.
    pub async fn change_workspace(
        &self,
        (worker, execution, token): (WorkerId, ExecutionId, LeaseToken),
        change: &WorkspaceChange<'_>,
    ) -> Result<i32, StoreError> {
        let row = sqlx::query_file!(
            "src/sql/change_workspace.sql",
            worker.0,
            execution.0,
            token.0,
            ChangeRow::from(change) as _,
            change.added.iter().map(NodeRow::from).collect::<Vec<_>>() as _,
            OLD_BYTES,
            OLD_ENTRIES,
        )
        .fetch_one(&self.pool)
        .await?;
        match row.version {
            Some(version) => Ok(version),
            None if row.is_held => Err(StoreError::Conflict("the workspace has changed meanwhile".to_owned())),
            None => Err(StoreError::LeaseLost),
        }
    }
}

/// A row of the type `workspace_change`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "workspace_change")]
struct ChangeRow {
    call_key: Vec<u8>,
    repeat_key: String,
    from_version: i32,
    ended: Vec<String>,
    is_error: bool,
    result: String,
}

impl From<&WorkspaceChange<'_>> for ChangeRow {
    fn from(of: &WorkspaceChange<'_>) -> Self {
        Self {
            call_key: of.call_key.to_vec(),
            repeat_key: of.repeat_key.to_owned(),
            from_version: of.from,
            ended: of.ended.clone(),
            is_error: of.result.is_error,
            result: of.result.text.clone(),
        }
    }
}

/// A row of the type `workspace_node`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "workspace_node")]
struct NodeRow {
    path: String,
    kind: String,
    hash: Option<Vec<u8>>,
    bytes: i64,
    is_executable: bool,
    target: Option<String>,
}

impl From<&WorkspaceEntry> for NodeRow {
    fn from(of: &WorkspaceEntry) -> Self {
        let (kind, hash, bytes, is_executable, target) = match &of.node {
            WorkspaceNode::File { hash, bytes, is_executable } => {
                ("file", Some(hash.to_vec()), i64::try_from(*bytes).unwrap_or(i64::MAX), *is_executable, None)
            }
            WorkspaceNode::Link { target } => ("link", None, 0, false, Some(target.clone())),
            WorkspaceNode::Directory => ("directory", None, 0, false, None),
        };
        Self { path: of.path.clone(), kind: kind.to_owned(), hash, bytes, is_executable, target }
    }
}
