//! Child executions that a call starts: once each, however often the call is repeated.

use std::time::Duration;

use longhaul_sdk::Step;
use longhaul_shared::domain::{ServeKey, WaitReason, requirements::requirements};
use longhaul_store::{
    children::{Child, NewChild, SpawnLease, SpawnRefused, TreeLimits},
    definitions::agent_definition,
    journal::Hash,
    retry::patiently,
    submit::NewExecution,
};
use serde_json::{Value, json};

use super::{Journal, from_store};
use crate::{admission::ReadyCall, transcript::hash_parts};

/// A task for a child execution.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// The agent's key; its newest version runs.
    pub agent: String,
    pub input: Value,
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

impl Journal {
    /// Returns the children that carry out a call's tasks, in task order. Starts them if they do not exist.
    ///
    /// # Errors
    /// An interrupt, or a failure of the store.
    pub(crate) async fn children_of_call(
        &mut self,
        call: &ReadyCall,
        tasks: &[Task],
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
        let mut children = Vec::with_capacity(tasks.len());
        for (key, task) in keys.iter().zip(tasks) {
            let Some(execution) = self.new_child(task).await? else {
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
        let lease = SpawnLease { worker: self.writer.worker(), parent: self.id, token: self.control.token };
        let spawned = patiently(self.deps.store.trouble(), || self.deps.store.spawn_children(lease, &children, limits))
            .await
            .map_err(from_store)?;
        let ids = match spawned {
            Ok(ids) => ids,
            Err(refused) => return Ok(Err(refused.into())),
        };
        self.deps.publisher.look([self.id.0]);
        for id in ids {
            self.deps.publisher.wake(&self.scope.queue, id, Some(WaitReason::Worker));
        }
        self.children_by_key(&keys).await.map(Ok)
    }

    async fn children_by_key(&self, keys: &[Hash]) -> Step<Vec<Child>> {
        let children =
            patiently(self.deps.store.trouble(), || self.deps.store.children_of(self.id)).await.map_err(from_store)?;
        let with_key = |key: &Hash| children.iter().find(|child| child.key == *key).cloned();
        Ok(keys.iter().filter_map(with_key).collect())
    }

    async fn new_child(&self, task: &Task) -> Step<Option<NewExecution>> {
        let store = &self.deps.store;
        let tenant = Some(self.scope.tenant);
        let agent =
            patiently(store.trouble(), || store.resolve_agent(tenant, &task.agent, None)).await.map_err(from_store)?;
        let Some(agent) = agent.filter(|agent| agent.removed_at.is_none()) else { return Ok(None) };
        let definition = agent_definition();
        let put = patiently(store.trouble(), || store.put_agent_definition()).await.map_err(from_store)?;
        let needs = requirements(&definition, put.version, &agent.spec);
        let serve_key = ServeKey::of(&needs);
        let needs: Vec<String> = needs.into_iter().collect();
        patiently(store.trouble(), || store.put_serve_key(&serve_key, &needs)).await.map_err(from_store)?;
        Ok(Some(NewExecution {
            id: patiently(store.trouble(), || store.new_execution_id()).await.map_err(from_store)?,
            tenant_id: self.scope.tenant,
            definition_key: definition.key,
            definition_version_id: put.id.into(),
            agent_key: agent.spec.key,
            agent_version_id: agent.id.into(),
            queue: self.scope.queue.clone(),
            serve_key,
            priority: 0,
            metadata: json!({}),
            input: task.input.to_string(),
            run_at: None,
            deadline: Duration::from_secs(definition.deadline_seconds.into()),
            deadline_is_near: false,
            active_timeout: Duration::from_secs(definition.active_timeout_seconds.into()),
            retry_of: None,
            submitted_by: None,
            traceparent: None,
            idempotency: None,
            budget: None,
            overrides: None,
        }))
    }
}
