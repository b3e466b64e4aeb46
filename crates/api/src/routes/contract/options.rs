//! How the contract's surface behaves.

use std::time::Duration;

use longhaul_shared::{domain::contract::RuntimeProfile, sealing::Sealer};
use secrecy::SecretString;

/// See [`ApiOptions`](crate::ApiOptions).
#[derive(Debug, Clone)]
pub struct ContractOptions {
    /// What opens `/v1/internal`; none: nothing does.
    pub tokens: Vec<SecretString>,
    /// Whether `/v1/agent-executions` takes requests.
    pub is_enabled: bool,
    /// Who runs what `/v1/agent-executions` takes; `None`: this installation.
    pub engine: Option<EngineOptions>,
    /// Whose the executions of `/v1/internal` are that name no organisation.
    pub org_id: String,
    /// The runtime profile that operators force.
    pub forced_profile: Option<RuntimeProfile>,
    /// The largest request.
    pub body_max_bytes: usize,
    /// Seals literal secrets.
    pub sealer: Sealer,
    /// How providers are asked whether they are well; `None`: this process does not ask.
    pub health: Option<HealthOptions>,
}

/// Another engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Its address.
    pub url: String,
    /// What it is sent as `X-Service-Token`.
    pub token: SecretString,
    /// The longest one request may take.
    pub timeout: Duration,
    /// Whether a failure to reach it is answered with the contract's fallback.
    pub fallback: bool,
}

/// Questions to providers.
#[derive(Debug, Clone, Copy)]
pub struct HealthOptions {
    /// How often each is asked, over all processes.
    pub every: Duration,
    /// The longest one may take.
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
