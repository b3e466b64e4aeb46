//! Errors of searches and ingestions: failed stage, kind, and mapping to the contract.

use longhaul_config::ConfigError;
use longhaul_domain::retrieval::{EmbeddingCall, RetrievalCall, index::InvalidName};
use longhaul_store::{StoreError, catalogue::indexes::IndexError};

/// Stage that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// No endpoint was called: the request is invalid, or a binding is missing.
    Request,
    /// The embeddings endpoint.
    Embeddings,
    /// The vector store.
    VectorStore,
}

/// Kind of failure.
#[derive(Debug, thiserror::Error)]
pub enum FailureKind {
    /// The query is empty after normalisation.
    #[error("nothing is left of the query after preprocessing")]
    QueryEmpty,
    /// An index name or metadata key is not allowed.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The request needs a binding that is missing.
    #[error("no {0} is bound")]
    NotBound(&'static str),
    /// An index of Longhaul cannot be searched or filled.
    #[error(transparent)]
    Index(Box<IndexError>),
    /// The configuration refers to a secret that is not set.
    #[error(transparent)]
    Configuration(Box<ConfigError>),
    /// The process already runs its maximum of ingestions.
    #[error("as many documents are being ingested as may be; try again")]
    Busy,
    /// A concurrent request that puts or removes the same document has not finished.
    #[error("another request changes the document; try again")]
    Overtaken,
    /// The document cannot be split into chunks.
    #[error("the chunks cannot be made: {0}")]
    Chunks(String),
    /// The endpoint's URL or key is not valid in HTTP.
    #[error("the endpoint's URL or key cannot be used")]
    Endpoint,
    /// The connection failed or was cut.
    #[error("it cannot be reached")]
    Unreachable(#[source] Option<reqwest::Error>),
    /// No response within the timeout.
    #[error("it did not answer in time")]
    Timeout,
    /// The HTTP status is not 2xx.
    #[error("it answered with status {0}")]
    Status(u16),
    /// The body of a 2xx response is unusable.
    #[error("its answer is of no use: {0}")]
    Unusable(String),
    /// Longhaul's own database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A failed search or ingestion.
#[derive(Debug, thiserror::Error)]
#[error("{}{kind}", self.who())]
pub struct RetrievalError {
    pub stage: Stage,
    #[source]
    pub kind: FailureKind,
    /// Slug of the provider; `None` if no provider was called.
    pub provider_slug: Option<Box<str>>,
    /// Beginning of the provider's response, for logs only; never shown to callers.
    pub upstream: Option<Box<str>>,
    /// Calls made before the failure.
    pub embedding_calls: Vec<EmbeddingCall>,
    /// Calls made before the failure.
    pub retrieval_calls: Vec<RetrievalCall>,
}

/// A failure in the terms of the agent execution contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContractFailure {
    /// `EXEC_…` code.
    pub code: &'static str,
    /// HTTP status.
    pub status: u16,
    /// Message for people.
    pub message: &'static str,
    /// `details.reason`, if there is one.
    pub reason: Option<&'static str>,
    /// `details.provider_slug`.
    pub provider_slug: Option<String>,
    /// `details.status_code`.
    pub upstream_status: Option<u16>,
}

const TIMED_OUT: &str = "Execution timed out";
const UNAVAILABLE: &str = "Upstream LLM/tool dependency unavailable";
const INTERNAL: &str = "Execution failed internally";
const NO_KNOWLEDGE: &str = "Knowledge retrieval is currently unavailable.";
const NO_EMBEDDINGS: &str =
    "Knowledge retrieval is unavailable because the configured embeddings model does not support embeddings.";

impl RetrievalError {
    pub(super) fn new(stage: Stage, provider_slug: Option<&str>, kind: impl Into<FailureKind>) -> Self {
        Self {
            stage,
            kind: kind.into(),
            provider_slug: provider_slug.map(Box::from),
            upstream: None,
            embedding_calls: Vec::new(),
            retrieval_calls: Vec::new(),
        }
    }

    /// An error of the request itself, before any provider is called.
    pub(super) fn request(kind: impl Into<FailureKind>) -> Self {
        Self::new(Stage::Request, None, kind)
    }

    /// HTTP status of the provider's response, if the failure is one.
    #[must_use]
    pub fn upstream_status(&self) -> Option<u16> {
        if let FailureKind::Status(status) = self.kind { Some(status) } else { None }
    }

    /// Returns true if a later retry may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match &self.kind {
            FailureKind::Unreachable(_) | FailureKind::Timeout | FailureKind::Busy | FailureKind::Overtaken => true,
            FailureKind::Status(status) => matches!(status, 408 | 429 | 500..),
            FailureKind::Store(error) => error.is_retryable(),
            FailureKind::QueryEmpty
            | FailureKind::Name(_)
            | FailureKind::NotBound(_)
            | FailureKind::Index(_)
            | FailureKind::Configuration(_)
            | FailureKind::Chunks(_)
            | FailureKind::Endpoint
            | FailureKind::Unusable(_) => false,
        }
    }

    /// Maps the failure to the contract.
    #[must_use]
    pub fn contract(&self) -> ContractFailure {
        let (code, status, message) = match (&self.kind, self.stage) {
            (FailureKind::Timeout | FailureKind::Status(504), _) => ("EXEC_TIMEOUT", 504, TIMED_OUT),
            (FailureKind::Unreachable(_) | FailureKind::Status(502..), _) => {
                ("EXEC_UPSTREAM_UNAVAILABLE", 503, UNAVAILABLE)
            }
            (FailureKind::Store(error), _) if error.is_retryable() => ("EXEC_UPSTREAM_UNAVAILABLE", 503, UNAVAILABLE),
            (FailureKind::Status(_) | FailureKind::Unusable(_), Stage::Embeddings) => {
                let said = self.upstream.as_deref().unwrap_or_default().to_ascii_lowercase();
                let message = if said.contains("does not support embeddings") { NO_EMBEDDINGS } else { NO_KNOWLEDGE };
                ("EXEC_UPSTREAM_UNAVAILABLE", 503, message)
            }
            (_, _) => ("EXEC_INTERNAL_ERROR", 500, INTERNAL),
        };
        let provider_slug = self.provider_slug.as_deref().map(str::to_owned);
        ContractFailure {
            code,
            status,
            message,
            reason: self.reason(),
            provider_slug,
            upstream_status: self.upstream_status(),
        }
    }

    fn reason(&self) -> Option<&'static str> {
        match &self.kind {
            FailureKind::QueryEmpty => Some("retrieval_query_empty_after_preprocessing"),
            FailureKind::Name(InvalidName::Index) => Some("invalid_index_name"),
            FailureKind::Name(InvalidName::Key) => Some("invalid_metadata_key"),
            FailureKind::NotBound(_) => Some("retrieval_not_bound"),
            FailureKind::Index(error) => of_index(error),
            FailureKind::Endpoint => Some("invalid_endpoint"),
            FailureKind::Busy
            | FailureKind::Overtaken
            | FailureKind::Configuration(_)
            | FailureKind::Chunks(_)
            | FailureKind::Unreachable(_)
            | FailureKind::Timeout
            | FailureKind::Status(_)
            | FailureKind::Unusable(_)
            | FailureKind::Store(_) => None,
        }
    }

    fn who(&self) -> String {
        let what = match self.stage {
            Stage::Request => return String::new(),
            Stage::Embeddings => "the embeddings endpoint",
            Stage::VectorStore => "the vector store",
        };
        let slug = self.provider_slug.as_deref().filter(|slug| !slug.is_empty());
        slug.map_or_else(|| format!("{what}: "), |slug| format!("{what} `{slug}`: "))
    }
}

fn of_index(error: &IndexError) -> Option<&'static str> {
    match error {
        IndexError::NotFound(_) => Some("index_not_found"),
        IndexError::Model { .. } | IndexError::Dimension { .. } => Some("embeddings_mismatch"),
        IndexError::Elsewhere { .. } => Some("vector_store_mismatch"),
        IndexError::Property { .. } => Some("metadata_mismatch"),
        IndexError::Full(_) | IndexError::TooMany => Some("index_full"),
        IndexError::NoVectorExtension => Some("vector_extension_missing"),
        IndexError::Store(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(stage: Stage, kind: FailureKind, upstream: &str) -> (&'static str, u16, &'static str) {
        let error = RetrievalError { upstream: Some(upstream.into()), ..RetrievalError::new(stage, Some("p"), kind) };
        let told = error.contract();
        (told.code, told.status, told.message)
    }

    /// All rows of the reference's §9.1 for both dependencies of retrieval, including a timeout.
    #[test]
    fn failures_map_to_contract_codes() {
        use FailureKind::{QueryEmpty, Status, Timeout, Unreachable, Unusable};
        use Stage::{Embeddings, Request, VectorStore};
        for stage in [Embeddings, VectorStore] {
            assert_eq!(told(stage, Unreachable(None), ""), ("EXEC_UPSTREAM_UNAVAILABLE", 503, UNAVAILABLE));
            assert_eq!(told(stage, Timeout, ""), ("EXEC_TIMEOUT", 504, TIMED_OUT));
            assert_eq!(told(stage, Status(504), ""), ("EXEC_TIMEOUT", 504, TIMED_OUT));
            for status in [502, 503, 505, 599] {
                assert_eq!(told(stage, Status(status), ""), ("EXEC_UPSTREAM_UNAVAILABLE", 503, UNAVAILABLE));
            }
        }
        for status in [400, 401, 404, 429, 500, 501] {
            assert_eq!(told(Embeddings, Status(status), ""), ("EXEC_UPSTREAM_UNAVAILABLE", 503, NO_KNOWLEDGE));
            assert_eq!(told(VectorStore, Status(status), ""), ("EXEC_INTERNAL_ERROR", 500, INTERNAL));
        }
        let said = "The model x does not support Embeddings";
        assert_eq!(told(Embeddings, Status(400), said), ("EXEC_UPSTREAM_UNAVAILABLE", 503, NO_EMBEDDINGS));
        assert_eq!(
            told(Embeddings, Unusable("no vectors".into()), ""),
            ("EXEC_UPSTREAM_UNAVAILABLE", 503, NO_KNOWLEDGE)
        );
        assert_eq!(told(VectorStore, Unusable("errors".into()), ""), ("EXEC_INTERNAL_ERROR", 500, INTERNAL));
        assert_eq!(told(Request, QueryEmpty, ""), ("EXEC_INTERNAL_ERROR", 500, INTERNAL));
        let empty = RetrievalError::request(QueryEmpty).contract();
        assert_eq!(empty.reason, Some("retrieval_query_empty_after_preprocessing"));
    }
}
