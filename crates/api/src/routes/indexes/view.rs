//! An index and its documents as the API shows them.

use chrono::{DateTime, Utc};
use longhaul_store::catalogue::{documents::Document, indexes::Index};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A search index.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IndexView {
    /// Name of the index.
    #[schema(example = "handbook")]
    name: String,
    /// Store of its chunks: `pgvector`, `qdrant_http` or `weaviate_http`.
    store: String,
    /// Model of its embeddings; null if it is searched by keywords only.
    embeddings_model: Option<String>,
    /// Numbers per embedding.
    dimension: Option<i32>,
    /// Number of documents.
    documents: i32,
    /// Number of chunks.
    chunks: i32,
    created_at: DateTime<Utc>,
    /// Time at which a document was last put or removed.
    updated_at: DateTime<Utc>,
}

impl From<Index> for IndexView {
    fn from(of: Index) -> Self {
        Self {
            name: of.name,
            store: of.store,
            embeddings_model: of.model,
            dimension: of.dimension,
            documents: of.documents,
            chunks: of.chunks,
            created_at: of.created_at,
            updated_at: of.updated_at,
        }
    }
}

/// A page of indexes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IndexesPage {
    pub(crate) indexes: Vec<IndexView>,
    /// Value of `?after=` for the next page; null on the last one.
    pub(crate) next_after: Option<String>,
}

/// A document of an index.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DocumentView {
    /// The caller's id of the document.
    id: String,
    /// Metadata that filters compare with.
    #[schema(value_type = Object)]
    metadata: Map<String, Value>,
    /// Size of its text in bytes.
    bytes: i32,
    /// Number of its chunks.
    chunks: i32,
    /// Hash of everything its chunks are made from. Content with the same hash is not embedded again. Empty until
    /// all chunks are stored.
    content_hash: String,
    created_at: DateTime<Utc>,
    /// Time at which its content last changed.
    updated_at: DateTime<Utc>,
}

impl From<Document> for DocumentView {
    fn from(of: Document) -> Self {
        Self {
            id: of.id,
            metadata: of.metadata,
            bytes: of.bytes,
            chunks: of.chunks,
            content_hash: of.content_hash.iter().map(|byte| format!("{byte:02x}")).collect(),
            created_at: of.created_at,
            updated_at: of.updated_at,
        }
    }
}

/// A page of documents.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DocumentsPage {
    pub(crate) documents: Vec<DocumentView>,
    /// Value of `?after=` for the next page; null on the last one.
    pub(crate) next_after: Option<String>,
}
