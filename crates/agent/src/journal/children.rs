//! Child executions that a call starts: once each, however often the call is repeated. What the call does with them
//! is in `sub_agents/`.

use std::collections::HashMap;

use longhaul_domain::ExecutionId;
use longhaul_sdk::{
    Step,
    spec::{AgentOverrides, SubAgentGrant},
};
use longhaul_store::{
    catalogue::definitions::{Version, agent_definition},
    database::retry::patiently,
    executions::{
        children::{Child, NewChild, SpawnLease, SpawnRefused, TreeLimits},
        sub_agents::{ChildEnd, ChildWait},
        submit::NewExecution,
    },
    history::journal::Hash,
};
use longhaul_telemetry::trace;
use serde_json::json;

use super::{Writer, corrupt, from_store};
use crate::{messages::hash_parts, ready_call::ReadyCall};

/// A task for a child execution.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// The agent's key; its newest version runs.
    pub agent: String,
    pub prompt: String,
}

/// Reason why no child was started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotStarted {
    /// A limit of the tree, or the parent's state.
    #[error(transparent)]
    Refused(#[from] SpawnRefused),
    /// The agent does not exist or was removed.
    #[error("there is no agent `{0}`")]
    NoSuchAgent(String),
    /// A rule denies it, or no rule allows it.
    #[error("policy does not let you start the agent `{0}`")]
    NotAllowed(String),
}

impl Writer {
    /// Returns the children that carry out a call's tasks, in task order. Starts them if they do not exist.
    pub(crate) async fn children_of_call(
        &mut self,
        call: &ReadyCall,
        tasks: &[Task],
        grant: SubAgentGrant,
        limits: TreeLimits,
    ) -> Step<Result<Vec<Child>, NotStarted>> {
        let keys: Vec<Hash> =
            (0..tasks.len()).map(|place| hash_parts(&[b"child", &call.key, &place.to_be_bytes()])).collect();
        let found = self.children_by_key(&keys).await?;
        if found.len() == keys.len() {
            return Ok(Ok(found));
        }
        // A resume must find the same call when its children end: commit its turn first.
        self.flush().await?;
        self.deps.sub_agents.put(&self.deps.store).await.map_err(from_store)?;
        let overrides = AgentOverrides { sub_agent: Some(grant), ..AgentOverrides::default() };
        let overrides = serde_json::to_string(&overrides).map_err(|error| corrupt(&error))?;
        let mut children = Vec::with_capacity(tasks.len());
        for (key, task) in keys.iter().zip(tasks) {
            let Some(execution) = self.new_child(task, &overrides).await? else {
                return Ok(Err(NotStarted::NoSuchAgent(task.agent.clone())));
            };
            let (store, version) = (&self.deps.store, execution.agent_version_id);
            let may = patiently(store.trouble(), || store.may_spawn(self.id, version, &self.deps.own_org))
                .await
                .map_err(from_store)?;
            if !may {
                return Ok(Err(NotStarted::NotAllowed(task.agent.clone())));
            }
            children.push(NewChild { key: *key, execution });
        }
        let lease = self.spawn_lease();
        let spawned = patiently(self.deps.store.trouble(), || self.deps.store.spawn_children(lease, &children, limits))
            .await
            .map_err(from_store)?;
        let ids = match spawned {
            Ok(ids) => ids,
            Err(refused) => return Ok(Err(refused.into())),
        };
        self.deps.publisher.look([self.id]);
        for id in ids {
            self.deps.publisher.wake_again(&self.scope.queue, id);
        }
        self.children_by_key(&keys).await.map(Ok)
    }

    /// All children, in the order in which they were started.
    pub(crate) async fn children(&self) -> Step<Vec<Child>> {
        patiently(self.deps.store.trouble(), || self.deps.store.children_of(self.id)).await.map_err(from_store)
    }

    /// Records that the call waits for these children, so that their ends wake the execution once it is parked.
    pub(crate) async fn wait_for_children(&self, call: &Hash, children: &[ExecutionId], until_first: bool) -> Step<()> {
        let (store, lease) = (&self.deps.store, self.spawn_lease());
        let wait = ChildWait { call, children, until_first };
        patiently(store.trouble(), || store.wait_for_children(lease, wait)).await.map_err(from_store)
    }

    /// Cancels children that are not needed any more, because another of the same call has finished.
    pub(crate) async fn cancel_outrun(&self, children: &[ExecutionId]) -> Step<()> {
        let (store, tenant) = (&self.deps.store, self.scope.tenant);
        patiently(store.trouble(), || store.cancel_outrun(tenant, children)).await.map_err(from_store)?;
        self.deps.publisher.look(children.iter().copied());
        Ok(())
    }

    /// What each of these ended children left, of outputs at most this many characters.
    pub(crate) async fn child_ends(
        &self,
        children: &[ExecutionId],
        max_characters: usize,
    ) -> Step<HashMap<ExecutionId, ChildEnd>> {
        let store = &self.deps.store;
        let max = i32::try_from(max_characters).unwrap_or(i32::MAX);
        patiently(store.trouble(), || store.child_ends(children, max)).await.map_err(from_store)
    }

    /// The last text that each of these children has recorded.
    pub(crate) async fn last_texts(&self, children: &[ExecutionId]) -> Step<HashMap<ExecutionId, String>> {
        if children.is_empty() {
            return Ok(HashMap::new());
        }
        let store = &self.deps.store;
        patiently(store.trouble(), || store.last_texts(children)).await.map_err(from_store)
    }

    fn spawn_lease(&self) -> SpawnLease {
        SpawnLease { worker: self.lease.worker(), parent: self.id, token: self.control.token }
    }

    async fn children_by_key(&self, keys: &[Hash]) -> Step<Vec<Child>> {
        let children = self.children().await?;
        let with_key = |key: &Hash| children.iter().find(|child| child.key == *key).cloned();
        Ok(keys.iter().filter_map(with_key).collect())
    }

    async fn new_child(&self, task: &Task, overrides: &str) -> Step<Option<NewExecution>> {
        let store = &self.deps.store;
        let tenant = Some(self.scope.tenant);
        let agent =
            patiently(store.trouble(), || store.resolve_agent(tenant, &task.agent, None)).await.map_err(from_store)?;
        let Some(agent) = agent.filter(|agent| agent.removed_at.is_none()) else { return Ok(None) };
        let put = patiently(store.trouble(), || store.put_agent_definition()).await.map_err(from_store)?;
        let definition = Version::built_in(&put, agent_definition());
        let pinned = patiently(store.trouble(), || store.pin(&definition, &agent)).await.map_err(from_store)?;
        let id = patiently(store.trouble(), || store.new_execution_id()).await.map_err(from_store)?;
        let input = json!({ "prompt": task.prompt }).to_string();
        Ok(Some(NewExecution {
            queue: self.scope.queue.clone(),
            // The child's trace hangs from the attempt that starts it.
            traceparent: trace::current_traceparent(),
            // A child spends the budget of its root.
            budget: None,
            overrides: Some(overrides.to_owned()),
            ..NewExecution::of(id, self.scope.tenant, pinned, input)
        }))
    }
}
