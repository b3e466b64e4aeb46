//! Putting chunks into a vector store that is not the own database, and taking them out.
//!
//! What must hold: ids of chunks follow from the index, the document and who put them, so that no writer overwrites what another one has
//! put; the new chunks of a document are there before the old ones go, so that a search never finds none; a writer removes its own
//! chunks and those of writers before it, and never those of one after it.

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
use crate::{
    domain::retrieval::index::property,
    store::{document_generations::Generation, indexes::Index},
};

/// Chunks of one request.
const BATCH: usize = 64;
/// The property with the id of a chunk's document: that of `document_id`, by the contract, is the chunk's own.
pub(super) const DOCUMENT: &str = "longhaul_document";
/// The property with the number of the writer that put it.
const GENERATION: &str = "longhaul_generation";
/// What chunks had instead before there were generations: the hash of what they were made from.
const CONTENT: &str = "longhaul_content";
/// What chunks have of their own: metadata does not reach filters under these names.
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
    /// The chunks with their vectors, counted from 1.
    fn numbered(&self) -> Vec<(usize, (&'a String, &'a Vec<f64>))> {
        (1..).zip(self.chunks.iter().zip(self.vectors)).collect()
    }
}

/// Which chunks of a document are removed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Which {
    /// Those of writers before this one, and those that were put before there were generations.
    Before(Generation),
    /// Those of this writer.
    Of(Generation),
}

impl Filled<'_> {
    /// The id of a chunk, `ordinal` from 1.
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

    /// What filters may be about: the scalars of the metadata, by the names that filters are given.
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

/// Makes room for a document's chunks, which changes nothing that a search finds. Nothing to do for the own database.
pub(super) async fn prepare(client: &Client, store: &VectorBinding, filled: &Filled<'_>) -> Result<(), RetrievalError> {
    let target = store.target(client);
    match &store.store {
        VectorStore::Qdrant { endpoint_url, .. } => qdrant::prepare(&target, endpoint_url, filled).await,
        VectorStore::Weaviate { endpoint_url, .. } => weaviate::prepare(&target, endpoint_url, filled).await,
        VectorStore::Pgvector => Ok(()),
    }
}

/// Puts a document's chunks, and removes those it had before. Nothing to do for the own database.
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

/// Removes chunks of a document.
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

/// Removes an index.
pub(super) async fn remove_all(client: &Client, store: &VectorBinding, index: &Index) -> Result<(), RetrievalError> {
    let target = store.target(client);
    match &store.store {
        VectorStore::Qdrant { endpoint_url, .. } => qdrant::remove_all(&target, endpoint_url, index).await,
        VectorStore::Weaviate { endpoint_url, .. } => weaviate::remove_all(&target, endpoint_url, index).await,
        VectorStore::Pgvector => Ok(()),
    }
}
