//! Longhaul's own indexes in Postgres: vector distance by pgvector, keywords by full-text search.

use super::{
    criterion::SearchCriterion,
    error::{FailureKind, RetrievalError, Stage},
};
use longhaul_domain::retrieval::{Filters, Hit, ScoreKind};
use longhaul_store::{
    Store,
    catalogue::indexes::{ChunkFound, Index, IndexError},
};

/// Searches one index.
pub(super) async fn search(
    store: &Store,
    provider_slug: &str,
    index: &Index,
    looked: SearchCriterion<'_>,
    top_k: u32,
    filters: &Filters,
) -> Result<Vec<Hit>, RetrievalError> {
    let found = match looked {
        SearchCriterion::Near(vector) => store.nearest_chunks(index, vector, top_k, filters).await,
        SearchCriterion::Words(words) => {
            store.matching_chunks(index, words, top_k, filters).await.map_err(IndexError::from)
        }
    };
    let kind = looked.score_kind(ScoreKind::Distance, ScoreKind::TsRank);
    let hit = |chunk: ChunkFound| Hit {
        id: chunk.id,
        text: chunk.text,
        metadata: chunk.metadata,
        score: chunk.score,
        score_kind: kind,
    };
    let found = found
        .map_err(|error| RetrievalError::new(Stage::VectorStore, Some(provider_slug), FailureKind::from(error)))?;
    Ok(found.into_iter().map(hit).collect())
}

impl From<IndexError> for FailureKind {
    fn from(error: IndexError) -> Self {
        if let IndexError::Store(error) = error { Self::Store(error) } else { Self::Index(Box::new(error)) }
    }
}
