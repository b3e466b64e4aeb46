//! `[retrieval]`: stores and embeddings for requests that bring no bindings of their own.

use std::time::Duration;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{ConfigError, Rules, reveal, units};
use crate::{
    domain::TenantId,
    retrieval::{Bindings, ChunkSettings, EmbeddingsBinding, Provider, VectorBinding, VectorStore},
};

/// Deployment name in records made through the configured bindings.
const DEPLOYMENT: &str = "configuration";

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct RetrievalConfig {
    pub vector_store: VectorStoreKind,
    #[serde(with = "units::url_or_nothing")]
    pub vector_store_url: Option<String>,
    #[serde(with = "units::secret")]
    pub vector_store_api_key: Option<SecretString>,
    #[serde(rename = "vector_store_timeout_seconds", with = "units::seconds")]
    pub vector_store_timeout: Duration,
    pub chunk_chars: usize,
    pub chunk_overlap_chars: usize,
    pub max_chunks_per_index: i32,
    pub embeddings: EmbeddingsConfig,
}

/// Store of the chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VectorStoreKind {
    /// Longhaul's own database.
    Pgvector,
    /// A Qdrant server.
    Qdrant,
    /// A Weaviate server.
    Weaviate,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct EmbeddingsConfig {
    #[serde(serialize_with = "units::url::serialize")]
    pub url: String,
    pub path: String,
    #[serde(with = "units::text")]
    pub model: Option<String>,
    #[serde(with = "units::secret")]
    pub api_key: Option<SecretString>,
    #[serde(rename = "timeout_seconds", with = "units::seconds")]
    pub timeout: Duration,
}

impl RetrievalConfig {
    /// Returns the chunking settings.
    #[must_use]
    pub fn chunks(&self) -> ChunkSettings {
        ChunkSettings {
            chars: self.chunk_chars,
            overlap: self.chunk_overlap_chars,
            max_per_index: self.max_chunks_per_index,
        }
    }

    /// Returns the bindings of a tenant's own indexes.
    ///
    /// # Errors
    /// [`ConfigError::Reference`] if a key refers to a variable that is not set.
    pub fn bindings(&self, tenant: TenantId) -> Result<Bindings, ConfigError> {
        let key = |secret: &Option<SecretString>| secret.as_ref().map(reveal).transpose();
        let provider = |name: &str| Provider { slug: name.to_owned(), key: name.to_owned() };
        let endpoint_url = self.vector_store_url.clone().unwrap_or_default();
        let store = match self.vector_store {
            VectorStoreKind::Pgvector => VectorStore::Pgvector,
            VectorStoreKind::Qdrant => VectorStore::Qdrant { endpoint_url, api_key: key(&self.vector_store_api_key)? },
            VectorStoreKind::Weaviate => {
                VectorStore::Weaviate { endpoint_url, api_key: key(&self.vector_store_api_key)? }
            }
        };
        let embeddings = match &self.embeddings.model {
            None => None,
            Some(model) => Some(EmbeddingsBinding {
                provider: provider("embeddings"),
                endpoint_url: self.embeddings.url.clone(),
                path: self.embeddings.path.clone(),
                requested_model: model.clone(),
                provider_model: model.clone(),
                api_key: key(&self.embeddings.api_key)?,
                timeout: self.embeddings.timeout,
            }),
        };
        let name = store.adapter_kind();
        let vector_store =
            VectorBinding { provider: provider(name), store, timeout: self.vector_store_timeout, only_own: true };
        Ok(Bindings {
            tenant,
            deployment_profile_slug: DEPLOYMENT.into(),
            embeddings,
            vector_store: Some(vector_store),
        })
    }

    pub(super) fn check(&self, rules: &mut Rules) {
        let is_url = |text: &str| url::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        rules.require(
            self.vector_store == VectorStoreKind::Pgvector || self.vector_store_url.as_deref().is_some_and(is_url),
            "retrieval.vector_store_url must be an http or https URL when retrieval.vector_store is not pgvector",
        );
        rules.require(
            self.embeddings.model.is_none() || is_url(&self.embeddings.url),
            "retrieval.embeddings.url must be an http or https URL",
        );
        rules.require(
            (100..=20_000).contains(&self.chunk_chars),
            "retrieval.chunk_chars must be 100 to 20,000: a chunk is shown to a model whole",
        );
        rules.require(
            self.chunk_overlap_chars * 2 <= self.chunk_chars,
            "retrieval.chunk_overlap_chars must be at most half of retrieval.chunk_chars",
        );
        rules.require(
            (1..=10_000_000).contains(&self.max_chunks_per_index),
            "retrieval.max_chunks_per_index must be 1 to 10,000,000",
        );
        rules.positive("retrieval.vector_store_timeout_seconds", self.vector_store_timeout);
        rules.positive("retrieval.embeddings.timeout_seconds", self.embeddings.timeout);
    }
}
