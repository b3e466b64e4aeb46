//! Retrieval: exact requests to stub servers over real HTTP, and everything else against a real pgvector.

mod elsewhere;
mod ingestion;
mod pgvector;
mod search_dataset;
pub(crate) mod stub;
mod wire;
