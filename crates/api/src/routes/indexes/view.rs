//! An index and its documents as the API shows them.

use chrono::{DateTime, Utc};
use longhaul_shared::store::indexes::{Document, Index};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// An index.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IndexView {
    /// Its name.
    #[schema(example = "handbook")]
    name: String,
    /// Where its chunks are: `pgvector`, `qdrant_http` or `weaviate_http`.
    store: String,
    /// What made its embeddings; null when it is searched by words alone.
    embeddings_model: Option<String>,
    /// Numbers of one embedding.
    dimension: Option<i32>,
    /// Documents in it.
    documents: i32,
    /// Chunks in it.
    chunks: i32,
    created_at: DateTime<Utc>,
    /// When a document was last put or removed.
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

/// Indexes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IndexesPage {
    pub(crate) indexes: Vec<IndexView>,
    /// For the next page, as `?after=`; null on the last one.
    pub(crate) next_after: Option<String>,
}

/// A document of an index.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DocumentView {
    /// The caller's id of it.
    id: String,
    /// What filters compare with.
    #[schema(value_type = Object)]
    metadata: Map<String, Value>,
    /// Bytes of its text.
    bytes: i32,
    /// Chunks it was cut into.
    chunks: i32,
    /// Of everything its chunks were made from: the same again is not embedded again. Empty until all of them are stored.
    content_hash: String,
    created_at: DateTime<Utc>,
    /// When its content last changed.
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

/// Documents.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DocumentsPage {
    pub(crate) documents: Vec<DocumentView>,
    /// For the next page, as `?after=`; null on the last one.
    pub(crate) next_after: Option<String>,
}
