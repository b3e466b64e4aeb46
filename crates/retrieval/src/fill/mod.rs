//! Writes chunks to external vector stores, and removes them.
//!
//! Invariants: a chunk's id is derived from index, document and writer (generation), so that no writer overwrites
//! another's chunks; a document's new chunks are written before the old ones are removed, so that a search always
//! finds one version; a writer removes its own chunks and those of earlier writers, never those of a later one.

mod qdrant;
mod weaviate;

use reqwest::Client;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{
    bindings::{VectorBinding, VectorStore},
    error::RetrievalError,
};
use longhaul_domain::retrieval::index::property;
use longhaul_store::catalogue::{documents::Generation, indexes::Index};

/// Maximum chunks per request.
const BATCH: usize = 64;
/// Property with the id of a chunk's document. In the contract, `document_id` holds the chunk's own id.
pub(super) const DOCUMENT: &str = "longhaul_document";
/// Property with the generation of the writer.
const GENERATION: &str = "longhaul_generation";
/// Property of chunks older than generations: the hash of their inputs.
const CONTENT: &str = "longhaul_content";
/// Properties of every chunk. Metadata under these names cannot be filtered.
const RESERVED: [&str; 9] =
    ["text", "metadata", "metadata_json", "id", "vector", "document_id", DOCUMENT, GENERATION, CONTENT];

/// A document's chunks with their embeddings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filled<'a> {
    pub(super) index: &'a Index,
    pub(super) document: &'a str,
    pub(super) metadata: &'a Map<String, Value>,
    pub(super) chunks: &'a [String],
    pub(super) vectors: &'a [Vec<f64>],
}

impl<'a> Filled<'a> {
    /// Chunks with their vectors, numbered from 1.
    fn numbered(&self) -> Vec<(usize, (&'a String, &'a Vec<f64>))> {
        (1..).zip(self.chunks.iter().zip(self.vectors)).collect()
    }
}

/// Selects the chunks of a document to remove.
#[derive(Debug, Clone, Copy)]
pub(super) enum Which {
    /// Chunks of earlier writers, and chunks without a generation.
    Before(Generation),
    /// Chunks of this writer.
    Of(Generation),
}

impl Filled<'_> {
    /// Id of a chunk; `ordinal` counts from 1.
    fn id(&self, Generation(number): Generation, ordinal: usize) -> Uuid {
        let mut digest = Sha256::new();
        for part in [self.index.id.as_bytes().as_slice(), self.document.as_bytes(), &number.to_be_bytes()] {
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        }
        digest.update(ordinal.to_be_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest.finalize()[..16]);
        uuid::Builder::from_custom_bytes(bytes).into_uuid()
    }

    /// Filterable properties: scalars of the metadata, under the names that filters use.
    fn properties(&self) -> Map<String, Value> {
        let scalar = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
        let named = |(key, value): (&String, &Value)| Some((property(key).ok()?, value.clone()));
        let mut properties: Map<String, Value> =
            self.metadata.iter().filter(|(_, value)| scalar(value)).filter_map(named).collect();
        for own in RESERVED {
            properties.remove(own);
        }
        properties
    }
}

/// Prepares the store for a document's chunks, without effect on searches. No-op for Longhaul's own database.
pub(super) async fn prepare(client: &Client, store: &VectorBinding, filled: &Filled<'_>) -> Result<(), RetrievalError> {
    let target = store.target(client);
    match &store.store {
        VectorStore::Qdrant { endpoint_url, .. } => qdrant::prepare(&target, endpoint_url, filled).await,
        VectorStore::Weaviate { endpoint_url, .. } => weaviate::prepare(&target, endpoint_url, filled).await,
        VectorStore::Pgvector => Ok(()),
    }
}

/// Writes a document's chunks, then removes its previous ones. No-op for Longhaul's own database.
pub(super) async fn put(
    client: &Client,
    store: &VectorBinding,
    filled: &Filled<'_>,
    generation: Generation,
) -> Result<(), RetrievalError> {
    let target = store.target(client);
    match &store.store {
        VectorStore::Qdrant { endpoint_url, .. } => qdrant::put(&target, endpoint_url, filled, generation).await,
        VectorStore::Weaviate { endpoint_url, .. } => weaviate::put(&target, endpoint_url, filled, generation).await,
        VectorStore::Pgvector => Ok(()),
    }
}

/// Removes chunks of a document. No-op for Longhaul's own database.
pub(super) async fn remove(
    client: &Client,
    store: &VectorBinding,
    index: &Index,
    document: &str,
    which: Which,
) -> Result<(), RetrievalError> {
    let target = store.target(client);
    match &store.store {
        VectorStore::Qdrant { endpoint_url, .. } => qdrant::remove(&target, endpoint_url, index, document, which).await,
        VectorStore::Weaviate { endpoint_url, .. } => {
            weaviate::remove(&target, endpoint_url, index, document, which).await
        }
        VectorStore::Pgvector => Ok(()),
    }
}

/// Removes an index. No-op for Longhaul's own database.
pub(super) async fn remove_all(client: &Client, store: &VectorBinding, index: &Index) -> Result<(), RetrievalError> {
    let target = store.target(client);
    match &store.store {
        VectorStore::Qdrant { endpoint_url, .. } => qdrant::remove_all(&target, endpoint_url, index).await,
        VectorStore::Weaviate { endpoint_url, .. } => weaviate::remove_all(&target, endpoint_url, index).await,
        VectorStore::Pgvector => Ok(()),
    }
}
