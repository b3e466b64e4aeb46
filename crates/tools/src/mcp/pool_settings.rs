//! Settings of the connections to tool servers, and the identity of a connection.

use std::{collections::BTreeMap, time::Duration};

use longhaul_sdk::spec::McpServerSpec;

use super::secret::SecretResolver;

/// Settings of the pool.
#[derive(Debug, Clone)]
pub struct McpPoolSettings {
    /// Largest number of open connections. Each server started by command is also a child process.
    pub max_connections: usize,
    /// A connection unused for this long is closed.
    pub idle_timeout: Duration,
    /// Timeout for connecting, including the handshake.
    pub connect_timeout: Duration,
    /// Environment of this process. Children get [`INHERITED_ENV`](super::INHERITED_ENV) only.
    pub base_env: BTreeMap<String, String>,
    /// Resolves secret references in a server's environment and headers.
    pub secrets: SecretResolver,
}

impl Default for McpPoolSettings {
    fn default() -> Self {
        Self {
            max_connections: 64,
            idle_timeout: Duration::from_secs(300),
            connect_timeout: Duration::from_secs(30),
            base_env: BTreeMap::new(),
            secrets: SecretResolver::default(),
        }
    }
}

/// The networks in which an agent's servers may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AllowedNetworks {
    /// Allows private networks.
    pub may_be_private: bool,
}

/// Identifies interchangeable connections: everything that reaches the server, with references unresolved, and
/// its reach.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct SlotKey(String);

impl SlotKey {
    pub(super) fn of(spec: &McpServerSpec, reach: AllowedNetworks) -> Self {
        // Every field is named, so that a new field does not compile without a decision here.
        let McpServerSpec {
            command,
            env,
            url,
            headers,
            allow: _,
            trusted: _,
            effects: _,
            timeout_seconds: _,
            calls: _,
            idempotency_arguments: _,
        } = spec;
        Self(format!("{:?}", (command, env, url, headers, reach)))
    }
}
