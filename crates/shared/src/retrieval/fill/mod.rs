//! Putting chunks into a vector store that is not the own database, and taking them out.
//!
//! What must hold: ids of chunks follow from the index, the document and its content, so that the same again changes nothing; the
//! new chunks of a document are there before the old ones go, so that a search never finds none.

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
use crate::{domain::retrieval::index::property, store::indexes::Index};

/// Chunks of one request.
const BATCH: usize = 64;
/// The property with the id of a chunk's document: that of `document_id`, by the contract, is the chunk's own.
const DOCUMENT: &str = "longhaul_document";
/// The property with the hash of what it was made from.
const CONTENT: &str = "longhaul_content";

/// A document's chunks with their embeddings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filled<'a> {
    pub(super) index: &'a Index,
    pub(super) document: &'a str,
    pub(super) metadata: &'a Map<String, Value>,
    pub(super) hash: &'a [u8],
    pub(super) chunks: &'a [String],
    pub(super) vectors: &'a [Vec<f64>],
}

impl Filled<'_> {
    fn content(&self) -> String {
        hex::encode(self.hash)
    }

    /// The id of a chunk, `ordinal` from 1.
    fn id(&self, ordinal: usize) -> Uuid {
        let mut digest = Sha256::new();
        for part in [self.index.id.as_bytes().as_slice(), self.document.as_bytes(), self.hash] {
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        }
        digest.update(ordinal.to_be_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest.finalize()[..16]);
        uuid::Builder::from_custom_bytes(bytes).into_uuid()
    }

    /// What filters may be about: the scalars of the metadata, by the names that filters are given.
    fn properties(&self) -> Map<String, Value> {
        let scalar = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
        let named = |(key, value): (&String, &Value)| Some((property(key).ok()?, value.clone()));
        let mut properties: Map<String, Value> =
            self.metadata.iter().filter(|(_, value)| scalar(value)).filter_map(named).collect();
        for own in ["text", "metadata", "metadata_json", "id", "vector"] {
            properties.remove(own);
        }
        properties
    }
}

/// Puts a document's chunks, and removes those it had before. Nothing to do for the own database.
pub(super) async fn put(client: &Client, store: &VectorBinding, filled: &Filled<'_>) -> Result<(), RetrievalError> {
    let target = store.target(client);
    match &store.store {
        VectorStore::Qdrant { endpoint_url, .. } => qdrant::put(&target, endpoint_url, filled).await,
        VectorStore::Weaviate { endpoint_url, .. } => weaviate::put(&target, endpoint_url, filled).await,
        VectorStore::Pgvector => Ok(()),
    }
}

/// Removes a document's chunks.
pub(super) async fn remove(
    client: &Client,
    store: &VectorBinding,
    index: &Index,
    document: &str,
) -> Result<(), RetrievalError> {
    let target = store.target(client);
    match &store.store {
        VectorStore::Qdrant { endpoint_url, .. } => qdrant::remove(&target, endpoint_url, index, document, None).await,
        VectorStore::Weaviate { endpoint_url, .. } => {
            weaviate::remove(&target, endpoint_url, index, document, None).await
        }
        VectorStore::Pgvector => Ok(()),
    }
}

/// Removes an index.
pub(super) async fn remove_all(client: &Client, store: &VectorBinding, index: &Index) -> Result<(), RetrievalError> {
    let target = store.target(client);
    match &store.store {
        VectorStore::Qdrant { endpoint_url, .. } => qdrant::remove_all(&target, endpoint_url, index).await,
        VectorStore::Weaviate { endpoint_url, .. } => weaviate::remove_all(&target, endpoint_url, index).await,
        VectorStore::Pgvector => Ok(()),
    }
}
