//! One search: preprocesses and embeds the query, asks the vector store, and ranks the results.

use std::{borrow::Cow, sync::Arc};

use reqwest::Client;
use tokio::sync::Semaphore;

use super::{
    bindings::{Bindings, EmbeddingsBinding, VectorBinding, VectorStore},
    criterion::SearchCriterion,
    embeddings::{self, Embedded},
    error::{FailureKind, RetrievalError, Stage},
    fill, pgvector, qdrant,
    request::Target,
    weaviate,
};
use longhaul_domain::TenantId;
use longhaul_domain::retrieval::{
    EmbeddingCall, Filters, Hit, RelevanceKind, RetrievalCall, RetrievalRequest, RetrievedItem, SearchMethod,
    branch_top_k, fuse,
    index::{property, qdrant_collection, weaviate_class},
    rank,
};
use longhaul_guards::http::{self, HttpOptions};
use longhaul_store::{
    Store,
    catalogue::indexes::{Index, IndexError},
};

/// Prefix of the names that Longhaul's own indexes have in external stores, before the id.
const OWN_PREFIX: &str = "lh";
/// Maximum concurrent ingestions per process; each may hold a hundred megabytes of embeddings.
pub const MAX_PARALLEL_INGESTIONS: usize = 4;

/// Searches and fills indexes. One instance per process: it owns the connection pool.
#[derive(Debug, Clone)]
pub struct Retriever {
    pub(super) client: Client,
    pub(super) store: Store,
    pub(super) ingesting: Arc<Semaphore>,
}

/// Calls and results of one search.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Retrieved {
    /// Empty for keyword searches.
    pub embedding_calls: Vec<EmbeddingCall>,
    /// One entry after a search.
    pub retrieval_calls: Vec<RetrievalCall>,
}

impl Retrieved {
    /// Results, best first.
    pub fn results(&self) -> impl Iterator<Item = &RetrievedItem> {
        self.retrieval_calls.iter().flat_map(|call| &call.results)
    }
}

impl Retriever {
    /// Creates an unconnected retriever. `store` holds the indexes of `pgvector`.
    ///
    /// # Errors
    /// Fails if the HTTP client cannot be built.
    pub fn new(store: Store) -> Result<Self, reqwest::Error> {
        let ingesting = Arc::new(Semaphore::new(MAX_PARALLEL_INGESTIONS));
        Ok(Self { client: http::client(&HttpOptions::default())?, store, ingesting })
    }

    /// Looks up an index of the tenant.
    pub(super) async fn find(&self, tenant: TenantId, name: &str) -> Result<Option<Index>, RetrievalError> {
        self.store.find_index(tenant, name).await.map_err(RetrievalError::request)
    }

    /// Resolves an index name: an index of the tenant, otherwise the store's own index of that name.
    async fn place(
        &self,
        bindings: &Bindings,
        vector_store: &VectorBinding,
        name: &str,
    ) -> Result<ResolvedIndex, RetrievalError> {
        let not_found = || FailureKind::from(IndexError::NotFound(name.to_owned()));
        if matches!(vector_store.store, VectorStore::Pgvector) {
            let target = vector_store.target(&self.client);
            let found = tokio::time::timeout(target.timeout, self.store.find_index(bindings.tenant, name)).await;
            let found = found.map_err(|_elapsed| target.error(FailureKind::Timeout))?;
            let own = found.map_err(|error| target.error(error))?;
            return own.map(ResolvedIndex::Own).ok_or_else(|| target.error(not_found()));
        }
        let own = self.find(bindings.tenant, name).await?;
        match own.filter(|index| index.store == vector_store.store.adapter_kind()) {
            Some(index) => Ok(ResolvedIndex::Own(index)),
            None if vector_store.only_own || reads_as_own(&vector_store.store, name) => {
                Err(RetrievalError::request(not_found()))
            }
            None => Ok(ResolvedIndex::Others(name.to_owned())),
        }
    }

    /// Runs one search.
    ///
    /// # Errors
    /// [`RetrievalError`], with the calls made before the failure.
    pub async fn retrieve(&self, bindings: &Bindings, request: &RetrievalRequest) -> Result<Retrieved, RetrievalError> {
        let query = request.processed_query();
        if query.trim().is_empty() {
            return Err(RetrievalError::request(FailureKind::QueryEmpty));
        }
        let vector_store = bindings.vector_store.as_ref();
        let vector_store =
            vector_store.ok_or_else(|| RetrievalError::request(FailureKind::NotBound("vector_store")))?;
        let place = self.place(bindings, vector_store, &request.index).await?;
        let mut embedding_calls = Vec::new();
        let vector = match request.search_method {
            SearchMethod::Keyword => None,
            SearchMethod::Semantic | SearchMethod::Hybrid => {
                let binding = bindings.embeddings.as_ref();
                let binding = binding.ok_or_else(|| RetrievalError::request(FailureKind::NotBound("embeddings")))?;
                place.check_model(vector_store, binding)?;
                let embedded = embeddings::embed(&self.client, binding, &[&query]).await?;
                embedding_calls.push(embedding_call(bindings, binding, &embedded));
                embedded.vectors.into_iter().next()
            }
        };
        let filters = place.filters(&vector_store.store, &request.filters);
        let side = Side { retriever: self, vector_store, request, place, filters };
        let results = match side.search(&query, vector.as_deref()).await {
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

/// A resolved index.
#[derive(Debug)]
enum ResolvedIndex {
    /// Filled by Longhaul for this tenant.
    Own(Index),
    /// Filled by another application, under this name.
    Others(String),
}

impl ResolvedIndex {
    /// Name in the vector store. An own index is named by its id, so that it cannot collide with another tenant's.
    fn name(&self) -> Cow<'_, str> {
        match self {
            Self::Own(index) => own_name(index).into(),
            Self::Others(name) => name.into(),
        }
    }

    /// Refuses a query embedded by another model. The dimensions may be equal, but distances between models have no
    /// meaning.
    fn check_model(&self, vector_store: &VectorBinding, binding: &EmbeddingsBinding) -> Result<(), RetrievalError> {
        let Self::Own(Index { model: Some(expected), .. }) = self else { return Ok(()) };
        let given = &binding.provider_model;
        if expected == given {
            return Ok(());
        }
        let mismatch = IndexError::Model { expected: expected.clone(), given: given.clone() };
        let slug = &vector_store.provider.slug;
        Err(RetrievalError::new(Stage::VectorStore, Some(slug), FailureKind::from(mismatch)))
    }

    /// Translates the filters for the store. In the contract `document_id` is the chunk's id in external stores,
    /// but for Longhaul's own indexes it is the document's id.
    fn filters(&self, store: &VectorStore, filters: &Filters) -> Filters {
        let is_renamed = matches!(self, Self::Own(_)) && !matches!(store, VectorStore::Pgvector);
        let known = |key: &String| match property(key) {
            Ok(name) if is_renamed && name == "document_id" => fill::DOCUMENT.to_owned(),
            Ok(_) | Err(_) => key.clone(),
        };
        filters.iter().map(|(key, value)| (known(key), value.clone())).collect()
    }

    fn numbers(&self) -> weaviate::Numbers {
        match self {
            Self::Own(_) => weaviate::Numbers::OneType,
            Self::Others(_) => weaviate::Numbers::WholeApart,
        }
    }
}

/// One search in one store: semantic, keyword or both.
struct Side<'a> {
    retriever: &'a Retriever,
    vector_store: &'a VectorBinding,
    request: &'a RetrievalRequest,
    place: ResolvedIndex,
    /// Already translated for the store.
    filters: Filters,
}

impl Side<'_> {
    async fn search(&self, query: &str, vector: Option<&[f64]>) -> Result<Vec<RetrievedItem>, RetrievalError> {
        let top_k = self.request.top_k;
        let near = SearchCriterion::Near(vector.unwrap_or_default());
        match self.request.search_method {
            SearchMethod::Semantic => Ok(rank(self.ask(near, top_k).await?, RelevanceKind::Similarity)),
            SearchMethod::Keyword => {
                Ok(rank(self.ask(SearchCriterion::Words(query), top_k).await?, RelevanceKind::KeywordScore))
            }
            SearchMethod::Hybrid => {
                let each = branch_top_k(top_k);
                let sides = (self.ask(near, each), self.ask(SearchCriterion::Words(query), each));
                let (semantic, keyword) = futures::try_join!(sides.0, sides.1)?;
                let semantic = rank(semantic, RelevanceKind::Similarity);
                let keyword = rank(keyword, RelevanceKind::KeywordScore);
                Ok(fuse(semantic, keyword, self.request.hybrid_alpha.unwrap_or(0.5), top_k))
            }
        }
    }

    async fn ask(&self, looked: SearchCriterion<'_>, top_k: u32) -> Result<Vec<Hit>, RetrievalError> {
        let target = self.vector_store.target(&self.retriever.client);
        let filters = &self.filters;
        match (&self.vector_store.store, &self.place) {
            (VectorStore::Weaviate { endpoint_url, .. }, place) => {
                let numbers = place.numbers();
                weaviate::search(&target, endpoint_url, &place.name(), looked, top_k, filters, numbers).await
            }
            (VectorStore::Qdrant { endpoint_url, .. }, place) => {
                qdrant::search(&target, endpoint_url, &place.name(), looked, top_k, filters).await
            }
            (VectorStore::Pgvector, ResolvedIndex::Others(name)) => {
                Err(target.error(FailureKind::from(IndexError::NotFound(name.clone()))))
            }
            (VectorStore::Pgvector, ResolvedIndex::Own(index)) => {
                let store = &self.retriever.store;
                let search = pgvector::search(store, target.provider_slug, index, looked, top_k, filters);
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

/// Name of an own index in an external store. Only letters and digits, which every store accepts unchanged.
pub(super) fn own_name(index: &Index) -> String {
    format!("{OWN_PREFIX}{}", index.id.simple())
}

/// Returns true if the store would map `name` to a name of the form of [`own_name`], of any tenant.
fn reads_as_own(store: &VectorStore, name: &str) -> bool {
    let read = match store {
        VectorStore::Weaviate { .. } => weaviate_class(name),
        VectorStore::Qdrant { .. } => qdrant_collection(name),
        VectorStore::Pgvector => return false,
    };
    // Weaviate capitalises class names and does not distinguish names by case.
    let read = read.unwrap_or_default().to_lowercase();
    let id = read.strip_prefix(OWN_PREFIX).unwrap_or_default();
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}
