//! Settings of the agent-execution contract.

use std::time::Duration;

use longhaul_domain::RuntimeProfile;
use longhaul_guards::sealing::Sealer;
use secrecy::SecretString;

/// See [`ApiOptions`](crate::ApiOptions).
#[derive(Debug, Clone)]
pub struct ContractOptions {
    /// Service tokens that open `/v1/internal`; if empty, it stays closed.
    pub tokens: Vec<SecretString>,
    /// True if `/v1/agent-executions` takes requests.
    pub is_enabled: bool,
    /// Engine that runs the executions of `/v1/agent-executions`; `None`: this installation.
    pub engine: Option<EngineOptions>,
    /// Organisation of `/v1/internal` executions that name none.
    pub org_id: String,
    /// Runtime profile that operators force.
    pub forced_profile: Option<RuntimeProfile>,
    /// Maximum size of a request, in bytes.
    pub body_max_bytes: usize,
    /// Seals literal secrets before they are stored.
    pub sealer: Sealer,
    /// Health probes of providers; `None`: this process does not probe.
    pub health: Option<HealthOptions>,
}

#[derive(Debug, Clone)]
pub struct EngineOptions {
    pub url: String,
    /// Value of the `X-Service-Token` header.
    pub token: SecretString,
    pub timeout: Duration,
    /// True if a failure to reach the engine is answered with the contract's fallback.
    pub fallback: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct HealthOptions {
    /// Interval between two probes of one provider, over all processes.
    pub every: Duration,
    pub timeout: Duration,
}

impl Default for ContractOptions {
    fn default() -> Self {
        Self {
            tokens: Vec::new(),
            is_enabled: true,
            engine: None,
            org_id: "agent-engine".to_owned(),
            forced_profile: None,
            body_max_bytes: 4 << 20,
            sealer: Sealer::default(),
            health: None,
        }
    }
}
