//! `[retrieval]`: stores and embeddings for requests that bring no bindings of their own.

use std::time::Duration;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{Rules, units};

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
