//! Why a search or an ingestion failed: where, how, and with which status of the contract that is told.

use crate::{
    config::ConfigError,
    domain::retrieval::{EmbeddingCall, RetrievalCall, index::InvalidName},
    store::{StoreError, indexes::IndexError},
};

/// Who failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Nobody: the request cannot be carried out as it is, or nothing is bound to carry it out.
    Request,
    /// The embeddings endpoint.
    Embeddings,
    /// The vector store.
    VectorStore,
}

/// How.
#[derive(Debug, thiserror::Error)]
pub enum FailureKind {
    /// Normalisation left nothing of the query.
    #[error("nothing is left of the query after preprocessing")]
    QueryEmpty,
    /// A name that the store cannot have.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// There is no such binding.
    #[error("no {0} is bound")]
    NotBound(&'static str),
    /// An index of our own that cannot be searched or filled.
    #[error(transparent)]
    Index(Box<IndexError>),
    /// The configuration refers to a secret that is not there.
    #[error(transparent)]
    Configuration(Box<ConfigError>),
    /// There is no room for another ingestion in this process.
    #[error("as many documents are being ingested as may be; try again")]
    Busy,
    /// Another request puts or removes the same document, and is not done.
    #[error("another request changes the document; try again")]
    Overtaken,
    /// The metadata or the text cannot be cut.
    #[error("the chunks cannot be made: {0}")]
    Chunks(String),
    /// It cannot be sent: a URL or a key that HTTP does not allow.
    #[error("the endpoint's URL or key cannot be used")]
    Endpoint,
    /// No connection, or one that was cut.
    #[error("it cannot be reached")]
    Unreachable(#[source] Option<reqwest::Error>),
    /// No answer in time.
    #[error("it did not answer in time")]
    Timeout,
    /// A status other than 2xx.
    #[error("it answered with status {0}")]
    Status(u16),
    /// An answer of 2xx that is of no use.
    #[error("its answer is of no use: {0}")]
    Unusable(String),
    /// The own database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A search or an ingestion that failed.
#[derive(Debug, thiserror::Error)]
#[error("{}{kind}", self.who())]
pub struct RetrievalError {
    /// Who failed.
    pub stage: Stage,
    /// How.
    #[source]
    pub kind: FailureKind,
    /// Its slug, unless nobody was asked.
    pub provider_slug: Option<Box<str>>,
    /// The beginning of what it said, for logs; never for callers.
    pub upstream: Option<Box<str>>,
    /// What was done before.
    pub embedding_calls: Vec<EmbeddingCall>,
    /// What was done before.
    pub retrieval_calls: Vec<RetrievalCall>,
}

/// What the agent execution contract says of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContractFailure {
    /// `EXEC_…`.
    pub code: &'static str,
    /// HTTP's.
    pub status: u16,
    /// For people.
    pub message: &'static str,
    /// `details.reason`, where the contract or we give one.
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

    /// The caller's own mistake, or nobody's yet.
    pub(super) fn request(kind: impl Into<FailureKind>) -> Self {
        Self::new(Stage::Request, None, kind)
    }

    /// The status that the provider answered with, if it did.
    #[must_use]
    pub fn upstream_status(&self) -> Option<u16> {
        if let FailureKind::Status(status) = self.kind { Some(status) } else { None }
    }

    /// Whether asking again later may help.
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

    /// As the contract tells it.
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

    /// Every row of the reference's §9.1 for the two dependencies of retrieval, a timeout being one.
    #[test]
    fn failures_are_told_as_the_contract_does() {
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
