//! Bindings and chunking by the configuration, for requests that bring no bindings of their own.

use longhaul_config::{ConfigError, RetrievalConfig, VectorStoreKind, reveal};
use longhaul_domain::TenantId;
use secrecy::SecretString;

use super::{Bindings, ChunkSettings, EmbeddingsBinding, Provider, VectorBinding, VectorStore};

/// Deployment name in records made through the configured bindings.
const DEPLOYMENT: &str = "configuration";

impl From<&RetrievalConfig> for ChunkSettings {
    fn from(config: &RetrievalConfig) -> Self {
        Self {
            chars: config.chunk_chars,
            overlap: config.chunk_overlap_chars,
            max_per_index: config.max_chunks_per_index,
        }
    }
}

impl Bindings {
    /// Returns the bindings of a tenant's own indexes.
    ///
    /// # Errors
    /// [`ConfigError::Reference`] if a key refers to a variable that is not set.
    pub fn configured(config: &RetrievalConfig, tenant: TenantId) -> Result<Self, ConfigError> {
        let key = |secret: &Option<SecretString>| secret.as_ref().map(reveal).transpose();
        let provider = |name: &str| Provider { slug: name.to_owned(), key: name.to_owned() };
        let endpoint_url = config.vector_store_url.clone().unwrap_or_default();
        let store = match config.vector_store {
            VectorStoreKind::Pgvector => VectorStore::Pgvector,
            VectorStoreKind::Qdrant => {
                VectorStore::Qdrant { endpoint_url, api_key: key(&config.vector_store_api_key)? }
            }
            VectorStoreKind::Weaviate => {
                VectorStore::Weaviate { endpoint_url, api_key: key(&config.vector_store_api_key)? }
            }
        };
        let embeddings = match &config.embeddings.model {
            None => None,
            Some(model) => Some(EmbeddingsBinding {
                provider: provider("embeddings"),
                endpoint_url: config.embeddings.url.clone(),
                path: config.embeddings.path.clone(),
                requested_model: model.clone(),
                provider_model: model.clone(),
                api_key: key(&config.embeddings.api_key)?,
                timeout: config.embeddings.timeout,
            }),
        };
        let name = store.adapter_kind();
        let vector_store =
            VectorBinding { provider: provider(name), store, timeout: config.vector_store_timeout, only_own: true };
        Ok(Self { tenant, deployment_profile_slug: DEPLOYMENT.into(), embeddings, vector_store: Some(vector_store) })
    }
}
