//! Retrieval with its IO: embeddings endpoints, vector stores, and the ingestion that fills them. SQL is in `store::indexes`.
//!
//! It is here and not in the worker because the API fills indexes and the worker searches them. What must hold: every request has
//! a timeout and every answer a size limit; nothing is sent twice; a failure says who failed and keeps what was done before it.

mod bindings;
mod embeddings;
mod error;
mod fill;
mod ingest;
mod own;
mod pgvector;
mod qdrant;
mod request;
mod retrieve;
mod weaviate;

pub use bindings::{Bindings, DEFAULT_TIMEOUT, EmbeddingsBinding, Provider, VectorBinding, VectorStore};
pub use embeddings::{Embedded, MAX_BATCH_TEXTS};
pub use error::{ContractFailure, FailureKind, RetrievalError, Stage};
pub use ingest::{ChunkSettings, DocumentFormat, IncomingDocument, IngestedDocument, MAX_PARALLEL_INGESTIONS};
pub use own::OwnIndexes;
pub use retrieve::{Retrieved, Retriever};
