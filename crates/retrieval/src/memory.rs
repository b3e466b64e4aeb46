//! Recall of an agent's memory: by words, by meaning where embeddings are bound, and the facts beside them. Embeddings
//! of memories are in Longhaul's own database, whatever the vector store of indexes is, so that forgetting is one
//! transaction.

use longhaul_shared::domain::{
    EpisodeId,
    retrieval::{Hit, RelevanceKind, ScoreKind, branch_top_k, fuse, rank},
};
use longhaul_store::{
    StoreError,
    memory::{FoundEpisode, MemoryPlace, TakenEpisode},
};
use serde_json::Map;

use super::{OwnIndexes, RetrievalError};

/// Weight of the meaning beside the words.
const ALPHA: f64 = 0.5;
/// Maximum bytes of a query; the rest is left out.
const MAX_QUERY_BYTES: usize = 8_192;

/// Memories that fit a query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recalled {
    /// The best first.
    pub episodes: Vec<RecalledEpisode>,
    /// Sentences from the graph, with the episodes that say so.
    pub facts: Vec<(String, Vec<EpisodeId>)>,
}

/// An episode that fits a query.
#[derive(Debug, Clone, PartialEq)]
pub struct RecalledEpisode {
    pub id: EpisodeId,
    pub content: String,
    /// Larger is better.
    pub relevance: f64,
}

impl OwnIndexes {
    /// Recalls at most `top_k` episodes and as many facts. Without embeddings, or if their endpoint fails, by words
    /// alone.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn recall(&self, place: &MemoryPlace, query: &str, top_k: u32) -> Result<Recalled, StoreError> {
        let query = &query[..query.floor_char_boundary(MAX_QUERY_BYTES)];
        if query.trim().is_empty() || top_k == 0 {
            return Ok(Recalled::default());
        }
        let store = self.store();
        let each = branch_top_k(top_k);
        let keyword = store.matching_episodes(place, query, each).await?;
        let nearest = match self.embed(place.tenant, &[query]).await {
            Ok(Some((model, vectors))) => {
                let vector = vectors.first().map(Vec::as_slice).unwrap_or_default();
                store.nearest_episodes(place, (&model, vector), each).await?
            }
            Ok(None) => Vec::new(),
            Err(error) => {
                tracing::warn!(error = %error, "memory is recalled by words alone");
                Vec::new()
            }
        };
        let hits = |found: Vec<FoundEpisode>, score_kind| {
            let hit = |found: FoundEpisode| Hit {
                id: found.id.to_string(),
                text: found.content,
                metadata: Map::new(),
                score: found.score,
                score_kind,
            };
            found.into_iter().map(hit).collect::<Vec<_>>()
        };
        let semantic = rank(hits(nearest, ScoreKind::Distance), RelevanceKind::Similarity);
        let keyword = rank(hits(keyword, ScoreKind::TsRank), RelevanceKind::KeywordScore);
        let fused = fuse(semantic, keyword, ALPHA, top_k);
        let episodes = fused.into_iter().filter_map(|item| {
            let id = item.id.parse().ok()?;
            Some(RecalledEpisode { id, content: item.text, relevance: item.relevance_score })
        });
        let facts = store.related_facts(place, query, top_k.into()).await?;
        let facts = facts.into_iter().map(|fact| {
            let sentence = format!("{} {} {}", fact.subject, fact.predicate, fact.object);
            (sentence, fact.episodes)
        });
        Ok(Recalled { episodes: episodes.collect(), facts: facts.collect() })
    }

    /// Embeds those episodes that have no embedding yet. Does nothing where no embeddings are bound.
    ///
    /// # Errors
    /// The endpoint fails; Postgres is unavailable.
    pub async fn embed_episodes(&self, place: &MemoryPlace, episodes: &[TakenEpisode]) -> Result<(), RetrievalError> {
        let missing: Vec<&TakenEpisode> = episodes.iter().filter(|episode| !episode.is_embedded).collect();
        let texts: Vec<&str> = missing.iter().map(|episode| episode.content.as_str()).collect();
        if texts.is_empty() {
            return Ok(());
        }
        if let Some((model, vectors)) = self.embed(place.tenant, &texts).await? {
            let embedded: Vec<(&TakenEpisode, &[f64])> =
                missing.into_iter().zip(vectors.iter().map(Vec::as_slice)).collect();
            let stored = self.store().embed_episodes(&model, &embedded).await;
            stored.map_err(RetrievalError::request)?;
        }
        Ok(())
    }
}
