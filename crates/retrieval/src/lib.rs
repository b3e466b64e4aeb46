//! Retrieval with its IO: embeddings endpoints, vector stores and ingestion. The SQL is in `store::indexes`.
//!
//! Shared because the API fills indexes and the worker searches them. Invariants: every request has a timeout and
//! every response a size limit; nothing is sent twice; an error names the failed stage and keeps the calls made
//! before it.

mod bindings;
mod configured;
mod criterion;
mod embeddings;
mod error;
mod fill;
mod ingest;
mod memory;
mod own;
mod pgvector;
mod qdrant;
mod request;
mod retrieve;
mod weaviate;

pub use bindings::{Bindings, DEFAULT_TIMEOUT, EmbeddingsBinding, Provider, VectorBinding, VectorStore};
pub use embeddings::{Embedded, MAX_BATCH_TEXTS};
pub use error::{ContractFailure, FailureKind, RetrievalError, Stage};
pub use ingest::{ChunkSettings, DocumentFormat, IncomingDocument, IngestedDocument};
pub use memory::{MemoryQuery, Recalled, RecalledEpisode};
pub use own::OwnIndexes;
pub use retrieve::{MAX_PARALLEL_INGESTIONS, Retrieved, Retriever};
