//! State shared by all contract runs of a worker: clients of bound endpoints, and the secret resolver.

use std::sync::Arc;

use longhaul_contract::{Binding, ExecCode, ExecFailure, platform::SecretRef};
use longhaul_llm::{
    EndpointError,
    platform::{PlatformConfig, PlatformModel},
};
use longhaul_retrieval::Retriever;
use longhaul_sdk::Failure;
use longhaul_store::Store;
use longhaul_tools::{SecretResolver, platform_client};
use quick_cache::sync::Cache;
use reqwest::Client;
use secrecy::SecretString;

/// Clients cached in memory. Bounded because snapshots may name any endpoint.
const MAX_CLIENTS: usize = 1_000;
/// Name of the secret in a binding that requests carry.
const API_KEY: &str = "api_key";

/// State of all contract runs; one per worker.
#[derive(Debug)]
pub(crate) struct Platform {
    models: Cache<String, Arc<PlatformModel>>,
    /// Client for tools. It sends each request once, on a connection of its own.
    pub(super) http: Client,
    secrets: SecretResolver,
    pub(super) retriever: Retriever,
}

impl Platform {
    /// `secrets` resolves `env://…` and `sealed:…` references.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub(crate) fn new(store: Store, secrets: SecretResolver) -> Result<Self, String> {
        let retriever =
            Retriever::new(store).map_err(|error| format!("the HTTP client could not be built: {error}"))?;
        Ok(Self { models: Cache::new(MAX_CLIENTS), http: platform_client()?, secrets, retriever })
    }

    /// Returns the cached client of a bound model endpoint, or builds it.
    pub(super) fn model(&self, config: &PlatformConfig) -> Result<Arc<PlatformModel>, EndpointError> {
        let key = config.fingerprint();
        if let Some(model) = self.models.get(&key) {
            return Ok(model);
        }
        let model = PlatformModel::new(config)?;
        self.models.insert(key, model.clone());
        Ok(model)
    }

    /// The key for requests to a binding; `None` if it has no key.
    ///
    /// # Errors
    /// `EXEC_INTERNAL_ERROR` for an unresolvable reference. The failure names the reference, never a value.
    pub(crate) fn api_key(&self, binding: &Binding) -> Result<Option<SecretString>, Failure> {
        let Some(text) = binding.secret_ref(API_KEY) else { return Ok(None) };
        let unresolved = |shown: &str| {
            let failure = ExecFailure::new(ExecCode::InternalError)
                .detail("provider_slug", binding.slug.clone().unwrap_or_default())
                .detail("reason", "secret_unresolved")
                .detail("secret_ref", shown);
            Err(failure.into())
        };
        match SecretRef::read(text) {
            None => Ok(None),
            Some(SecretRef::Literal) => Ok(Some(text.trim().into())),
            Some(SecretRef::Foreign) => unresolved(text.trim()),
            Some(SecretRef::Variable(_)) => match self.secrets.resolve(text.trim()) {
                Some(secret) => Ok(Some(secret)),
                None => unresolved(text.trim()),
            },
            // Do not show ciphertext.
            Some(SecretRef::Sealed(sealed)) => match self.secrets.resolve(&sealed) {
                Some(secret) => Ok(Some(secret)),
                None => unresolved("sealed"),
            },
        }
    }
}
