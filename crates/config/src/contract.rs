//! `[contract]`: the agent-execution contract, its tokens, and an optional external engine.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::{ConfigError, Rules, reveal, units};
use longhaul_domain::RuntimeProfile;

/// Minimum length in characters. Shorter tokens can be guessed.
const TOKEN_MIN: usize = 16;
/// Minimum length in characters. Shorter keys could be guessed from a stolen table.
const SECRET_KEY_MIN: usize = 32;

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ContractConfig {
    /// Comma-separated; see [`Self::tokens`].
    #[serde(with = "units::secret")]
    pub service_tokens: Option<SecretString>,
    pub enabled: bool,
    #[serde(with = "units::url_or_nothing")]
    pub engine_url: Option<String>,
    #[serde(rename = "engine_timeout_seconds", with = "units::seconds")]
    pub engine_timeout: Duration,
    pub fallback: bool,
    pub org_id: String,
    #[serde(with = "units::text")]
    pub runtime_profile_force: Option<String>,
    pub body_max_bytes: usize,
    /// Comma-separated; see [`Self::secret_keys`].
    #[serde(with = "units::secret")]
    pub secret_keys: Option<SecretString>,
    /// Names of variables that `env://` may read; a trailing `*` matches any ending.
    #[serde(deserialize_with = "units::list::deserialize")]
    pub secret_variables: Vec<String>,
    #[serde(rename = "health_seconds", with = "units::seconds")]
    pub health: Duration,
    #[serde(rename = "health_timeout_seconds", with = "units::seconds")]
    pub health_timeout: Duration,
}

impl ContractConfig {
    /// The default of `org_id`.
    pub const DEFAULT_ORG: &str = "agent-engine";

    /// Returns the tokens accepted by the internal endpoints. An empty list refuses every request.
    ///
    /// # Errors
    /// [`ConfigError::Reference`].
    pub fn tokens(&self) -> Result<Vec<SecretString>, ConfigError> {
        split(self.service_tokens.as_ref())
    }

    /// Returns the keys that seal literal secrets, the first for new ones.
    ///
    /// # Errors
    /// [`ConfigError::Reference`].
    pub fn secret_keys(&self) -> Result<Vec<SecretString>, ConfigError> {
        split(self.secret_keys.as_ref())
    }

    /// Runtime profile forced by the operator.
    #[must_use]
    pub fn forced_profile(&self) -> Option<RuntimeProfile> {
        RuntimeProfile::read(self.runtime_profile_force.as_deref()?)
    }

    /// Returns true if a binding's secret may refer to the variable `name`.
    #[must_use]
    pub fn may_read(&self, name: &str) -> bool {
        self.secret_variables.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == allowed,
        })
    }

    pub(super) fn check(&self, rules: &mut Rules) {
        let long_enough = |secret: &Option<SecretString>, min: usize| {
            let texts = secret.iter().flat_map(|text| text.expose_secret().split(',')).map(str::trim);
            texts.filter(|text| !text.is_empty()).all(|text| text.starts_with("env://") || text.len() >= min)
        };
        rules.require(
            long_enough(&self.service_tokens, TOKEN_MIN),
            "contract.service_tokens must have at least 16 characters each",
        );
        rules.require(
            long_enough(&self.secret_keys, SECRET_KEY_MIN),
            "contract.secret_keys must have at least 32 characters each",
        );
        rules.require(
            self.runtime_profile_force.is_none() || self.forced_profile().is_some(),
            "contract.runtime_profile_force must be online, offline or empty",
        );
        rules.require(
            !self.fallback || self.engine_url.is_some(),
            "contract.fallback has no meaning without contract.engine_url: nothing is sent anywhere that could fail",
        );
        rules.require(
            self.engine_url.is_none() || self.service_tokens.is_some(),
            "contract.engine_url needs contract.service_tokens: the first one is sent to the engine",
        );
        rules.require(!self.org_id.trim().is_empty(), "contract.org_id must not be empty");
        rules.require(
            (1_024..=64 << 20).contains(&self.body_max_bytes),
            "contract.body_max_bytes must be 1 KiB to 64 MiB: a body is held in memory while it is checked",
        );
        rules.positive("contract.engine_timeout_seconds", self.engine_timeout);
        rules.positive("contract.health_seconds", self.health);
        rules.positive("contract.health_timeout_seconds", self.health_timeout);
    }
}

fn split(secret: Option<&SecretString>) -> Result<Vec<SecretString>, ConfigError> {
    let texts = secret.into_iter().flat_map(|text| text.expose_secret().split(',')).map(str::trim);
    texts.filter(|text| !text.is_empty()).map(|text| reveal(&SecretString::from(text))).collect()
}
