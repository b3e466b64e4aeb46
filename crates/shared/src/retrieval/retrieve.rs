//! One search: the query preprocessed and embedded, the vector store asked, the results in order.

use std::sync::Arc;

use reqwest::Client;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{
    bindings::{Bindings, EmbeddingsBinding, VectorBinding, VectorStore},
    embeddings::{self, Embedded},
    error::{FailureKind, RetrievalError, Stage},
    ingest::MAX_PARALLEL_INGESTIONS,
    pgvector, qdrant,
    request::Target,
    weaviate,
};
use crate::{
    domain::retrieval::{
        EmbeddingCall, Hit, RelevanceKind, RetrievalCall, RetrievalRequest, RetrievedItem, ScoreKind, SearchMethod,
        branch_top_k, fuse, rank,
    },
    http::{self, HttpOptions},
    store::{
        Store,
        indexes::{Index, IndexError},
    },
};

/// Searches and fills indexes. One per process: it holds the connections.
#[derive(Debug, Clone)]
pub struct Retriever {
    pub(super) client: Client,
    pub(super) store: Store,
    pub(super) ingesting: Arc<Semaphore>,
}

/// What a search did and found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Retrieved {
    /// None for keyword searches.
    pub embedding_calls: Vec<EmbeddingCall>,
    /// The one search.
    pub retrieval_calls: Vec<RetrievalCall>,
}

impl Retrieved {
    /// The results, best first.
    pub fn results(&self) -> impl Iterator<Item = &RetrievedItem> {
        self.retrieval_calls.iter().flat_map(|call| &call.results)
    }
}

/// What is searched for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Looked<'a> {
    Near(&'a [f64]),
    Words(&'a str),
}

impl Looked<'_> {
    pub(super) fn score_kind(self, of_distances: ScoreKind, of_words: ScoreKind) -> ScoreKind {
        match self {
            Self::Near(_) => of_distances,
            Self::Words(_) => of_words,
        }
    }
}

impl Retriever {
    /// Opens no connection yet. `store` is where the indexes of `pgvector` are.
    ///
    /// # Errors
    /// The HTTP client cannot be made.
    pub fn new(store: Store) -> Result<Self, reqwest::Error> {
        let ingesting = Arc::new(Semaphore::new(MAX_PARALLEL_INGESTIONS));
        Ok(Self { client: http::client(&HttpOptions::default())?, store, ingesting })
    }

    /// What the vector store calls an index: one that Longhaul filled by its id, so that no other tenant has that name.
    async fn index_in_store(
        &self,
        bindings: &Bindings,
        vector_store: &VectorBinding,
        name: &str,
    ) -> Result<String, RetrievalError> {
        let given = || format!("{}{name}", vector_store.namespace.as_deref().unwrap_or_default());
        if matches!(vector_store.store, VectorStore::Pgvector) {
            return Ok(given());
        }
        let own = self.store.find_index(bindings.tenant, name).await.map_err(RetrievalError::request)?;
        match own.filter(|index| index.store == vector_store.store.adapter_kind()) {
            Some(index) => Ok(own_name(&index)),
            None if vector_store.only_own => {
                Err(RetrievalError::request(FailureKind::from(IndexError::NotFound(name.to_owned()))))
            }
            None => Ok(given()),
        }
    }

    /// Carries out one search.
    ///
    /// # Errors
    /// See [`RetrievalError`]; what was done before the failure is in it.
    pub async fn retrieve(&self, bindings: &Bindings, request: &RetrievalRequest) -> Result<Retrieved, RetrievalError> {
        let query = request.processed_query();
        if query.trim().is_empty() {
            return Err(RetrievalError::request(FailureKind::QueryEmpty));
        }
        let vector_store = bindings.vector_store.as_ref();
        let vector_store =
            vector_store.ok_or_else(|| RetrievalError::request(FailureKind::NotBound("vector_store")))?;
        let mut embedding_calls = Vec::new();
        let vector = match request.search_method {
            SearchMethod::Keyword => None,
            SearchMethod::Semantic | SearchMethod::Hybrid => {
                let binding = bindings.embeddings.as_ref();
                let binding = binding.ok_or_else(|| RetrievalError::request(FailureKind::NotBound("embeddings")))?;
                let embedded = embeddings::embed(&self.client, binding, &[&query]).await?;
                embedding_calls.push(embedding_call(bindings, binding, &embedded));
                embedded.vectors.into_iter().next()
            }
        };
        let results = match self.index_in_store(bindings, vector_store, &request.index).await {
            Ok(index) => {
                let side = Side { retriever: self, bindings, vector_store, request, index };
                side.search(&query, vector.as_deref()).await
            }
            Err(error) => Err(error),
        };
        let results = match results {
            Ok(results) => results,
            Err(error) => return Err(RetrievalError { embedding_calls, ..error }),
        };
        let call = RetrievalCall {
            provider_slug: vector_store.provider.slug.clone(),
            provider_key: vector_store.provider.key.clone(),
            deployment_profile_slug: bindings.deployment_profile_slug.clone(),
            index: request.index.clone(),
            query,
            top_k: request.top_k,
            search_method: request.search_method,
            query_preprocessing: request.query_preprocessing,
            hybrid_alpha: request.hybrid_alpha,
            result_count: results.len(),
            results,
        };
        Ok(Retrieved { embedding_calls, retrieval_calls: vec![call] })
    }
}

/// One search of one store, from one side or both.
struct Side<'a> {
    retriever: &'a Retriever,
    bindings: &'a Bindings,
    vector_store: &'a VectorBinding,
    request: &'a RetrievalRequest,
    /// As the store calls it.
    index: String,
}

impl Side<'_> {
    async fn search(&self, query: &str, vector: Option<&[f64]>) -> Result<Vec<RetrievedItem>, RetrievalError> {
        let top_k = self.request.top_k;
        let near = Looked::Near(vector.unwrap_or_default());
        match self.request.search_method {
            SearchMethod::Semantic => Ok(rank(self.ask(near, top_k).await?, RelevanceKind::Similarity)),
            SearchMethod::Keyword => {
                Ok(rank(self.ask(Looked::Words(query), top_k).await?, RelevanceKind::KeywordScore))
            }
            SearchMethod::Hybrid => {
                let each = branch_top_k(top_k);
                let sides = (self.ask(near, each), self.ask(Looked::Words(query), each));
                let (semantic, keyword) = futures::try_join!(sides.0, sides.1)?;
                let semantic = rank(semantic, RelevanceKind::Similarity);
                let keyword = rank(keyword, RelevanceKind::KeywordScore);
                Ok(fuse(semantic, keyword, self.request.hybrid_alpha.unwrap_or(0.5), top_k))
            }
        }
    }

    async fn ask(&self, looked: Looked<'_>, top_k: u32) -> Result<Vec<Hit>, RetrievalError> {
        let target = self.vector_store.target(&self.retriever.client);
        let (index, filters) = (&self.index, &self.request.filters);
        match &self.vector_store.store {
            VectorStore::Weaviate { endpoint_url, .. } => {
                weaviate::search(&target, endpoint_url, index, looked, top_k, filters).await
            }
            VectorStore::Qdrant { endpoint_url, .. } => {
                qdrant::search(&target, endpoint_url, index, looked, top_k, filters).await
            }
            VectorStore::Pgvector => {
                let (store, tenant) = (&self.retriever.store, self.bindings.tenant);
                let search = pgvector::search(store, target.provider_slug, tenant, index, looked, top_k, filters);
                let found = tokio::time::timeout(target.timeout, search).await;
                found.unwrap_or_else(|_elapsed| Err(target.error(FailureKind::Timeout)))
            }
        }
    }
}

fn embedding_call(bindings: &Bindings, binding: &EmbeddingsBinding, embedded: &Embedded) -> EmbeddingCall {
    EmbeddingCall {
        provider_slug: binding.provider.slug.clone(),
        provider_key: binding.provider.key.clone(),
        deployment_profile_slug: bindings.deployment_profile_slug.clone(),
        requested_model: binding.requested_model.clone(),
        input_count: embedded.vectors.len(),
        dimension: embedded.dimension,
        status_code: embedded.status_code,
    }
}

impl VectorBinding {
    pub(super) fn target<'a>(&'a self, client: &'a Client) -> Target<'a> {
        let api_key = match &self.store {
            VectorStore::Weaviate { api_key, .. } => api_key.as_ref().map(|key| ("authorization", "Bearer ", key)),
            VectorStore::Qdrant { api_key, .. } => api_key.as_ref().map(|key| ("api-key", "", key)),
            VectorStore::Pgvector => None,
        };
        let provider_slug = &self.provider.slug;
        Target { client, stage: Stage::VectorStore, provider_slug, timeout: self.timeout, api_key }
    }
}

/// What an index of ours is called in a store that is not ours. Letters and digits alone: every store has it as it is.
pub(super) fn own_name(index: &Index) -> String {
    format!("lh{}", index.id.simple())
}

/// The beginning of what a store said, for logs.
pub(super) fn excerpt(said: &Value) -> String {
    said.to_string().chars().take(1_000).collect()
}
