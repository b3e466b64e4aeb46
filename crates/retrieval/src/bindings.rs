//! Endpoints that a search uses. Their creators (the contract's snapshot, the platform's tables, the configuration)
//! have already resolved model ids and secrets.

use std::time::Duration;

use secrecy::SecretString;

use longhaul_domain::TenantId;

/// Timeout of a binding that sets none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Provider of an endpoint, as named in records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Provider {
    pub slug: String,
    pub key: String,
}

/// An OpenAI-compatible embeddings endpoint.
#[derive(Debug, Clone)]
pub struct EmbeddingsBinding {
    pub provider: Provider,
    /// Base URL, with or without a trailing slash.
    pub endpoint_url: String,
    /// Path, from `config.embeddings_path`.
    pub path: String,
    /// Managed model id, shown in records.
    pub requested_model: String,
    /// Provider's model id, sent in requests.
    pub provider_model: String,
    /// Sent as `Authorization: Bearer`.
    pub api_key: Option<SecretString>,
    /// Timeout of one request, from `config.request_timeout_seconds`.
    pub timeout: Duration,
}

impl EmbeddingsBinding {
    /// Default of `config.embeddings_path`.
    pub const DEFAULT_PATH: &str = "/v1/embeddings";
}

#[derive(Debug, Clone)]
pub struct VectorBinding {
    pub provider: Provider,
    /// Protocol and address.
    pub store: VectorStore,
    /// Timeout of one request.
    pub timeout: Duration,
    /// If true, only indexes filled by Longhaul are searched. Otherwise a name that is no index of the tenant
    /// refers to the store's own index.
    pub only_own: bool,
}

/// Protocol and address of a vector store.
#[derive(Debug, Clone)]
pub enum VectorStore {
    /// `weaviate_http`
    Weaviate {
        /// Base URL.
        endpoint_url: String,
        /// Sent as `Authorization: Bearer`.
        api_key: Option<SecretString>,
    },
    /// `qdrant_http`
    Qdrant {
        /// Base URL.
        endpoint_url: String,
        /// Sent as `api-key`.
        api_key: Option<SecretString>,
    },
    /// `pgvector`: Longhaul's own tables, with separate indexes per tenant.
    Pgvector,
}

impl VectorStore {
    /// The contract's name of the kind: `adapter_kind` of a binding.
    #[must_use]
    pub fn adapter_kind(&self) -> &'static str {
        match self {
            Self::Weaviate { .. } => "weaviate_http",
            Self::Qdrant { .. } => "qdrant_http",
            Self::Pgvector => "pgvector",
        }
    }
}

/// Endpoints of one search, and the tenant it runs for.
#[derive(Debug, Clone)]
pub struct Bindings {
    /// Owner of the indexes in Longhaul's own tables.
    pub tenant: TenantId,
    /// Shown in records.
    pub deployment_profile_slug: String,
    /// `None` suffices for keyword search.
    pub embeddings: Option<EmbeddingsBinding>,
    pub vector_store: Option<VectorBinding>,
}
