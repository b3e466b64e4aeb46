//! The tools of workspaces: files that the calls of an execution, or of all messages of a session, share
//! (docs/design/workspace.md).
//!
//! Invariants:
//! - A call's change is saved under the attempt's lease, together with the key and the result of the call, before its
//!   step is recorded. A call that an attempt repeats finds its result.
//! - A call that was not saved had no effect: the sandbox has no network and keeps no files.
//! - The calls of an attempt run one after the other, in the order in which they start.

pub(super) mod sandbox;
mod tree;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use longhaul_domain::{CallError, CallErrorKind, ExecutionId, LeaseToken, TenantId, WorkerId, cut};
use longhaul_files::FilesError;
use longhaul_sdk::{Failure, FailureCode, StepError};
use longhaul_store::{
    StoreError,
    database::retry::patiently,
    files::{WorkspaceChange, WorkspaceId, WorkspaceNode, WorkspaceResult},
};
use longhaul_tools::{CallOutcome, Toolbox, WorkspaceTool};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};

use self::{
    sandbox::{Ran, store},
    tree::{Listed, MAX_FILE_BYTES, Tree},
};
use crate::{deps::AgentDeps, journal::from_store, ready_call::ReadyCall};

/// The workspace of an attempt.
#[derive(Debug)]
pub(crate) struct Workspace {
    deps: Arc<AgentDeps>,
    tenant: TenantId,
    lease: (WorkerId, ExecutionId, LeaseToken),
    id: WorkspaceId,
    /// The current version, once it was read. Held by the call that runs.
    head: Mutex<Option<Tree>>,
}

/// The right of one call to use the workspace.
#[derive(Debug)]
pub(crate) struct WorkspaceTurn<'a>(MutexGuard<'a, Option<Tree>>);

/// Reason why a call has no result of its tool.
#[derive(Debug)]
enum Fault {
    /// The model is told.
    Told(String),
    /// The run cannot continue here.
    Ends(Failure),
}

impl Fault {
    fn of_store(error: StoreError) -> Self {
        match from_store(error) {
            StepError::Failed(failure) => Self::Ends(failure),
            // If the lease is lost or the store closed, nothing of this call is recorded. If only this statement
            // failed, the run is retried.
            StepError::Interrupt(_) => {
                Self::Ends(Failure::of(FailureCode::TOOL_FAILED, "the workspace could not be read or saved"))
            }
        }
    }

    fn of_files(error: &FilesError) -> Self {
        tracing::warn!(
            error = %error, cause = ?std::error::Error::source(error), "a file of a workspace could not be used"
        );
        let is_down = error.is_transient();
        let code = if is_down { FailureCode::FILE_STORE_UNAVAILABLE } else { FailureCode::TOOL_FAILED };
        Self::Ends(Failure::of(code, "the file store failed"))
    }
}

/// Result of a tool.
struct Done {
    /// The workspace afterwards, if it may have changed.
    tree: Option<Tree>,
    /// The text, or the error, for the model.
    told: Result<String, CallError>,
}

impl Done {
    fn unchanged(text: String) -> Self {
        Self { tree: None, told: Ok(text) }
    }
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(default)]
    path: String,
    #[serde(default)]
    content: String,
    #[serde(default)]
    old: String,
    #[serde(default)]
    new: String,
    #[serde(default)]
    command: String,
}

impl Workspace {
    pub(crate) fn new(
        deps: Arc<AgentDeps>,
        tenant: TenantId,
        lease: (WorkerId, ExecutionId, LeaseToken),
        id: WorkspaceId,
    ) -> Self {
        Self { deps, tenant, lease, id, head: Mutex::default() }
    }

    /// Waits for the calls that were started before.
    pub(crate) async fn turn(&self) -> WorkspaceTurn<'_> {
        WorkspaceTurn(self.head.lock().await)
    }

    /// Runs one call in its turn; `repeat_key` is the same for every repetition of it.
    pub(crate) async fn call(
        &self,
        WorkspaceTurn(mut head): WorkspaceTurn<'_>,
        (toolbox, tool): (&Toolbox, WorkspaceTool),
        ready: &ReadyCall,
        repeat_key: &str,
    ) -> CallOutcome {
        let started = Instant::now();
        let answered = self.answer(&mut head, toolbox, tool, (ready, repeat_key)).await;
        let error = |message: String| CallError::new(CallErrorKind::Runtime, message);
        let written = &ready.written.arguments;
        let outcome = match answered {
            Ok(outcome) => outcome,
            Err(Fault::Told(message)) => toolbox.fail(&error(message), tool.name(), written),
            Err(Fault::Ends(failure)) => {
                let told = toolbox.refuse(&error(failure.summary.clone()), tool.name(), written);
                CallOutcome { ends_run: Some(failure), ..told }
            }
        };
        CallOutcome { duration: started.elapsed(), ..outcome }
    }

    async fn answer(
        &self,
        head: &mut Option<Tree>,
        toolbox: &Toolbox,
        tool: WorkspaceTool,
        (ready, repeat_key): (&ReadyCall, &str),
    ) -> Result<CallOutcome, Fault> {
        if tool.changes()
            && let Some(result) = self.saved(repeat_key).await?
        {
            return Ok(outcome_of(toolbox, tool, result));
        }
        // Taken out: a call that is dropped while it saves leaves no version that may be old.
        let before = match head.take() {
            Some(tree) => tree,
            None => self.load().await?,
        };
        let done = self.run(&before, tool, &ready.arguments, toolbox.timeout(tool.name())).await;
        let Done { tree, told } = match done {
            Ok(done) => done,
            Err(fault) => {
                *head = Some(before);
                return Err(fault);
            }
        };
        let outcome = match &told {
            Ok(text) => toolbox.answer(tool.name(), text.clone()),
            Err(error) => toolbox.fail(error, tool.name(), &ready.written.arguments),
        };
        let next = match tree {
            // A call that ends the run is made again, from the same files.
            Some(tree) if outcome.ends_run.is_none() => self.save(&before, tree, &outcome, (ready, repeat_key)).await?,
            Some(_) | None => before,
        };
        *head = Some(next);
        Ok(outcome)
    }

    async fn run(&self, tree: &Tree, tool: WorkspaceTool, arguments: &Value, time: Duration) -> Result<Done, Fault> {
        let told = |error: serde_json::Error| Fault::Told(error.to_string());
        let Arguments { path, content, old, new, command } = Arguments::deserialize(arguments).map_err(told)?;
        match tool {
            WorkspaceTool::Bash => self.bash(tree, &command, time).await,
            WorkspaceTool::ReadFile => self.text(tree, &path).await.map(Done::unchanged),
            WorkspaceTool::ListFiles => {
                tree.list(&path).map(|names| Done::unchanged(listing(&names))).map_err(Fault::Told)
            }
            WorkspaceTool::WriteFile => self.write(tree, &path, content).await,
            WorkspaceTool::EditFile => {
                let text = self.text(tree, &path).await?;
                match text.matches(&old).count() {
                    1 => self.write(tree, &path, text.replacen(&old, &new, 1)).await,
                    0 => Err(Fault::Told(format!("`old` does not occur in `{}`", cut(&path, 256)))),
                    count => Err(Fault::Told(format!("`old` occurs {count} times in `{}`, not once", cut(&path, 256)))),
                }
            }
        }
    }

    async fn text(&self, tree: &Tree, path: &str) -> Result<String, Fault> {
        let (hash, bytes, _) = tree.file(path).map_err(Fault::Told)?;
        let content = match self.deps.files.get_held(self.tenant, &hash, bytes).await {
            Ok(Some(content)) => content,
            Ok(None) => {
                return Err(Fault::of_store(StoreError::Corrupt("the bytes of a workspace's file are gone".into())));
            }
            Err(error) => return Err(Fault::of_files(&error)),
        };
        String::from_utf8(content.into())
            .map_err(|_| Fault::Told(format!("`{}` is not UTF-8 text; it has {bytes} bytes", cut(path, 256))))
    }

    async fn write(&self, tree: &Tree, path: &str, content: String) -> Result<Done, Fault> {
        tree.writable(path).map_err(Fault::Told)?;
        let content = Bytes::from(content);
        let length = content.len() as u64;
        if length > MAX_FILE_BYTES {
            return Err(Fault::Told(format!("a file may have at most {MAX_FILE_BYTES} bytes, not {length}")));
        }
        let _held = self.deps.files.memory().hold(self.tenant, length).await;
        let hash = store(&self.deps.files, self.tenant, &content).await?;
        let (tree, path) = tree.with_file(path, hash, length).map_err(Fault::Told)?;
        Ok(Done { tree: Some(tree), told: Ok(format!("wrote {length} bytes to {path}")) })
    }

    async fn bash(&self, tree: &Tree, command: &str, time: Duration) -> Result<Done, Fault> {
        let Some(sandbox) = &self.deps.workspaces else {
            return Err(Fault::Told("this worker has no sandbox".to_owned()));
        };
        let Ran { stdout, stderr, exit_code, tree } =
            sandbox.run(&self.deps.files, self.tenant, tree, (command, time)).await?;
        let (tree, unsaved) = match tree {
            Ok(tree) => (Some(tree), None),
            Err(reason) => (None, Some(format!("{reason}; the workspace stays as it was"))),
        };
        let message = match (unsaved, exit_code) {
            (None, Some(0)) => return Ok(Done { tree, told: Ok(printed(stdout, &stderr)) }),
            (Some(unsaved), _) => unsaved,
            (None, Some(code)) => format!("the command ended with status {code}"),
            (None, None) => "the command exceeded its time and was stopped".to_owned(),
        };
        let error = CallError::new(CallErrorKind::Runtime, message);
        let details = json!({ "exit_code": exit_code, "stdout": stdout, "stderr": stderr });
        Ok(Done { tree, told: Err(error.with_details(details)) })
    }

    async fn load(&self) -> Result<Tree, Fault> {
        let loaded = patiently(self.deps.store.trouble(), || self.deps.store.workspace(self.id)).await;
        loaded.map(Tree::from).map_err(Fault::of_store)
    }

    /// The result of this call, if an earlier attempt saved it.
    async fn saved(&self, repeat_key: &str) -> Result<Option<WorkspaceResult>, Fault> {
        let store = &self.deps.store;
        patiently(store.trouble(), || store.workspace_result(self.id, repeat_key)).await.map_err(Fault::of_store)
    }

    /// Saves the change from `before` to `tree` with the result of its call.
    async fn save(
        &self,
        before: &Tree,
        mut tree: Tree,
        outcome: &CallOutcome,
        (ready, repeat_key): (&ReadyCall, &str),
    ) -> Result<Tree, Fault> {
        let (ended, added) = before.change_to(&tree);
        if ended.is_empty() && added.is_empty() {
            return Ok(tree);
        }
        let result = WorkspaceResult { is_error: outcome.is_error(), text: outcome.whole().to_owned() };
        let change =
            WorkspaceChange { call_key: &ready.key, repeat_key, from: before.version, ended, added, result: &result };
        let store = &self.deps.store;
        match patiently(store.trouble(), || store.change_workspace(self.lease, &change)).await {
            Ok(version) => {
                tree.version = version;
                Ok(tree)
            }
            // The first of several attempts to save it was heard, and its answer lost.
            Err(StoreError::Conflict(_)) if self.saved(repeat_key).await?.is_some() => self.load().await,
            Err(error) => Err(Fault::of_store(error)),
        }
    }
}

/// The outcome of a call that an earlier attempt saved.
fn outcome_of(toolbox: &Toolbox, tool: WorkspaceTool, result: WorkspaceResult) -> CallOutcome {
    let error = result.is_error.then_some(CallErrorKind::Runtime);
    CallOutcome { error, ..toolbox.answer(tool.name(), result.text) }
}

fn printed(stdout: String, stderr: &str) -> String {
    match (stdout.is_empty(), stderr.is_empty()) {
        (true, true) => "(the command printed nothing)".to_owned(),
        (_, true) => stdout,
        (true, false) => format!("stderr:\n{stderr}"),
        (false, false) => format!("{stdout}\nstderr:\n{stderr}"),
    }
}

/// One line for each name: a directory ends with `/`, a file has its bytes, a link its target.
fn listing(names: &std::collections::BTreeMap<&str, Listed<'_>>) -> String {
    if names.is_empty() {
        return "(the directory is empty)".to_owned();
    }
    let lines = names.iter().map(|(name, listed)| match listed {
        Listed::Directory | Listed::Node(WorkspaceNode::Directory) => format!("{name}/"),
        Listed::Node(WorkspaceNode::File { bytes, is_executable, .. }) => {
            format!("{name}{} {bytes} bytes", if *is_executable { "*" } else { "" })
        }
        Listed::Node(WorkspaceNode::Link { target }) => format!("{name} -> {}", cut(target, 256)),
    });
    lines.collect::<Vec<_>>().join("\n")
}
