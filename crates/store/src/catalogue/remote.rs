//! Definitions whose code runs in workers over HTTP (docs/reference/worker-protocol.md), and the agent that they name.

use longhaul_sdk::spec::{AgentSpec, DefinitionSpec, Runner};

use super::put::Put;
use crate::{Store, StoreError};
use longhaul_domain::TenantId;

/// Key of the agent of remote definitions, which has no part in their runs. Callers cannot write it: their keys have no
/// colon.
pub const REMOTE_AGENT: &str = "built-in:remote";

impl Store {
    /// Publishes the agent that remote definitions name.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn put_remote_agent(&self) -> Result<Put, StoreError> {
        let agent = AgentSpec { name: "Code of a worker".into(), ..AgentSpec::new(REMOTE_AGENT, "") };
        self.put_shared_agent(&agent).await
    }

    /// Puts a definition of a remote worker of `tenant`; the same content makes no new version.
    ///
    /// # Errors
    /// Postgres refused the spec or is unavailable.
    pub async fn put_remote_definition(&self, tenant: TenantId, spec: DefinitionSpec) -> Result<Put, StoreError> {
        let spec = DefinitionSpec { agent_key: REMOTE_AGENT.into(), runner: Runner::Remote, ..spec };
        self.put_definition(Some(tenant), &spec).await
    }
}
