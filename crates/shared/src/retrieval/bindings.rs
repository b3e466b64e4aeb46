//! What a search is asked of. Whoever makes bindings (the contract's snapshot, the platform's tables, the configuration) has
//! resolved ids of models and secrets before.

use std::time::Duration;

use secrecy::SecretString;

use crate::domain::TenantId;

/// A binding without a time of its own.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Who answers, as records name it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Provider {
    /// Its slug.
    pub slug: String,
    /// Its key.
    pub key: String,
}

/// An OpenAI-compatible embeddings endpoint.
#[derive(Debug, Clone)]
pub struct EmbeddingsBinding {
    /// Who answers.
    pub provider: Provider,
    /// Its base; a slash at the end does not matter.
    pub endpoint_url: String,
    /// `config.embeddings_path`.
    pub path: String,
    /// The managed id, which records show.
    pub requested_model: String,
    /// The provider's id, which is sent.
    pub provider_model: String,
    /// Sent as `Authorization: Bearer`.
    pub api_key: Option<SecretString>,
    /// `config.request_timeout_seconds`.
    pub timeout: Duration,
}

impl EmbeddingsBinding {
    /// `config.embeddings_path` where it is not set.
    pub const DEFAULT_PATH: &str = "/v1/embeddings";
}

/// A vector store.
#[derive(Debug, Clone)]
pub struct VectorBinding {
    /// Who answers.
    pub provider: Provider,
    /// What it speaks, and where it is.
    pub store: VectorStore,
    /// Of one request.
    pub timeout: Duration,
    /// Indexes that Longhaul filled are the only ones. Otherwise a name that is none of the tenant's own is the store's.
    pub only_own: bool,
}

/// What a vector store speaks.
#[derive(Debug, Clone)]
pub enum VectorStore {
    /// `weaviate_http`
    Weaviate {
        /// Its base.
        endpoint_url: String,
        /// Sent as `Authorization: Bearer`.
        api_key: Option<SecretString>,
    },
    /// `qdrant_http`
    Qdrant {
        /// Its base.
        endpoint_url: String,
        /// Sent as `api-key`.
        api_key: Option<SecretString>,
    },
    /// `pgvector`: Longhaul's own tables, each tenant its own indexes.
    Pgvector,
}

impl VectorStore {
    /// The contract's name of each kind: `adapter_kind` of a binding.
    #[must_use]
    pub fn adapter_kind(&self) -> &'static str {
        match self {
            Self::Weaviate { .. } => "weaviate_http",
            Self::Qdrant { .. } => "qdrant_http",
            Self::Pgvector => "pgvector",
        }
    }
}

/// Everything one search may ask, and on whose behalf.
#[derive(Debug, Clone)]
pub struct Bindings {
    /// Whose indexes of `pgvector` are searched.
    pub tenant: TenantId,
    /// For records.
    pub deployment_profile_slug: String,
    /// None is enough for a keyword search.
    pub embeddings: Option<EmbeddingsBinding>,
    /// Where indexes are.
    pub vector_store: Option<VectorBinding>,
}
