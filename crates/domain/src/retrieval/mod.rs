//! Retrieval without IO: request validation, query normalisation, scoring, fusion, and the message shown to a
//! model.
//!
//! Invariants: any input is either a request within the bounds or [`InvalidRetrieval`]; no returned score is NaN or
//! infinite; the message shown to a model has a size limit.

pub mod index;
mod normalize;
mod prompt;
mod request;
mod result;
mod score;
pub mod text;

pub use normalize::normalize;
pub use prompt::{MAX_REFERENCES_BYTES, reference_message};
pub use request::{
    FilterValue, Filters, INVALID_RETRIEVAL_INPUT, INVALID_RETRIEVAL_MESSAGE, InvalidRetrieval, MAX_FILTER_KEY_CHARS,
    MAX_FILTER_TEXT_CHARS, MAX_FILTERS, MAX_INDEX_CHARS, MAX_QUERY_BYTES, MAX_TOP_K, Preprocessing, RetrievalRequest,
    SearchMethod, derived_query, leaves_method_open,
};
pub use result::{EmbeddingCall, RelevanceComponents, RelevanceKind, RetrievalCall, RetrievedItem, ScoreKind};
pub use score::{Hit, branch_top_k, fuse, rank};
