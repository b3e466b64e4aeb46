//! The indexes that tenants fill and search, using the bindings of the configuration.

use super::{
    bindings::{Bindings, EmbeddingsBinding},
    embeddings::embed,
    error::{FailureKind, RetrievalError},
    ingest::{IncomingDocument, IngestedDocument},
    retrieve::{Retrieved, Retriever},
};
use longhaul_config::RetrievalConfig;
use longhaul_domain::{
    TenantId,
    retrieval::{RetrievalRequest, SearchMethod},
};
use longhaul_store::Store;

/// One instance per process. Every operation takes the tenant and sees only that tenant's indexes.
#[derive(Debug, Clone)]
pub struct OwnIndexes {
    retriever: Retriever,
    config: RetrievalConfig,
}

impl OwnIndexes {
    /// Creates an unconnected instance.
    ///
    /// # Errors
    /// Fails if the HTTP client cannot be built.
    pub fn new(store: Store, config: RetrievalConfig) -> Result<Self, reqwest::Error> {
        Ok(Self { retriever: Retriever::new(store)?, config })
    }

    /// Retriever for searches with other bindings.
    #[must_use]
    pub fn retriever(&self) -> &Retriever {
        &self.retriever
    }

    /// Searches an index of the tenant.
    ///
    /// # Errors
    /// [`RetrievalError`].
    pub async fn search(&self, tenant: TenantId, request: &RetrievalRequest) -> Result<Retrieved, RetrievalError> {
        self.retriever.retrieve(&self.bindings(tenant)?, request).await
    }

    /// Returns the search method for a request that names none: keyword search if the index holds no embeddings,
    /// otherwise semantic search.
    ///
    /// # Errors
    /// [`RetrievalError`].
    pub async fn usual_method(&self, tenant: TenantId, index: &str) -> Result<SearchMethod, RetrievalError> {
        let found = self.retriever.find(tenant, index).await?;
        let holds_words_only = found.is_some_and(|index| index.model.is_none());
        Ok(if holds_words_only { SearchMethod::Keyword } else { SearchMethod::Semantic })
    }

    /// Puts documents into an index of the tenant, creating it if it is new.
    ///
    /// # Errors
    /// [`RetrievalError`].
    pub async fn ingest(
        &self,
        tenant: TenantId,
        index: &str,
        documents: &[IncomingDocument],
    ) -> Result<Vec<IngestedDocument>, RetrievalError> {
        self.retriever.ingest(&self.bindings(tenant)?, index, documents, (&self.config).into()).await
    }

    /// Removes a document. Returns true if it existed.
    ///
    /// # Errors
    /// [`RetrievalError`].
    pub async fn remove_document(&self, tenant: TenantId, index: &str, id: &str) -> Result<bool, RetrievalError> {
        self.retriever.remove_document(&self.bindings(tenant)?, index, id).await
    }

    /// Removes an index with all its documents. Returns true if it existed.
    ///
    /// # Errors
    /// [`RetrievalError`].
    pub async fn remove_index(&self, tenant: TenantId, index: &str) -> Result<bool, RetrievalError> {
        self.retriever.remove_index(&self.bindings(tenant)?, index).await
    }

    pub(super) fn store(&self) -> &Store {
        &self.retriever.store
    }

    /// The embeddings of a tenant; `None` where none are bound.
    ///
    /// # Errors
    /// The configuration names a secret that does not exist.
    pub(super) fn embeddings(&self, tenant: TenantId) -> Result<Option<EmbeddingsBinding>, RetrievalError> {
        Ok(self.bindings(tenant)?.embeddings)
    }

    /// Embeddings of `texts`, one each.
    ///
    /// # Errors
    /// The endpoint fails.
    pub(super) async fn embed(
        &self,
        binding: &EmbeddingsBinding,
        texts: &[&str],
    ) -> Result<Vec<Vec<f64>>, RetrievalError> {
        Ok(embed(&self.retriever.client, binding, texts).await?.vectors)
    }

    fn bindings(&self, tenant: TenantId) -> Result<Bindings, RetrievalError> {
        Bindings::configured(&self.config, tenant)
            .map_err(|error| RetrievalError::request(FailureKind::Configuration(Box::new(error))))
    }
}
