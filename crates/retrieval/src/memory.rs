//! Recall of an agent's memory: by words, by meaning where embeddings are bound, and the facts beside them. Embeddings
//! of memories are in Longhaul's own database, whatever the vector store of indexes is, so that forgetting is one
//! transaction.

use std::time::Duration;

use longhaul_domain::{
    EpisodeId,
    retrieval::{Hit, RelevanceKind, ScoreKind, branch_top_k, fuse, rank},
};
use longhaul_store::{
    StoreError,
    memory::{FoundEpisode, MemoryPlace, TakenEpisode},
};
use serde_json::Map;

use super::{EmbeddingsBinding, OwnIndexes, RetrievalError, embeddings::MAX_BATCH_TEXTS};

/// Weight of the meaning beside the words.
const ALPHA: f64 = 0.5;
/// Maximum bytes of a query; the rest is left out.
const MAX_QUERY_BYTES: usize = 8_192;
/// Longest wait for the embedding of a query. Then its words are the whole query.
const PATIENCE: Duration = Duration::from_secs(5);

/// A query in the memory of a place.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryQuery {
    words: String,
    /// Model and embedding of the words, where they are of use and came in time.
    embedding: Option<(String, Vec<f64>)>,
    top_k: u32,
}

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
    /// A query for at most `top_k` episodes and as many facts. It is embedded if the place has embeddings to compare
    /// it with, and if the endpoint answers in time.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn memory_query(&self, place: &MemoryPlace, text: &str, top_k: u32) -> Result<MemoryQuery, StoreError> {
        let words = text[..text.floor_char_boundary(MAX_QUERY_BYTES)].trim().to_owned();
        let embedding = if words.is_empty() || top_k == 0 { None } else { self.embedding_of(place, &words).await? };
        Ok(MemoryQuery { words, embedding, top_k })
    }

    async fn embedding_of(&self, place: &MemoryPlace, words: &str) -> Result<Option<(String, Vec<f64>)>, StoreError> {
        let binding = match self.embeddings(place.tenant) {
            Ok(Some(binding)) if self.store().has_embeddings(place, &binding.provider_model).await? => binding,
            Ok(_) => return Ok(None),
            Err(error) => {
                tracing::warn!(error = %error, "memory is recalled by words alone");
                return Ok(None);
            }
        };
        match tokio::time::timeout(PATIENCE, self.embed(&binding, &[words])).await {
            Ok(Ok(vectors)) => Ok(vectors.into_iter().next().map(|vector| (binding.provider_model, vector))),
            Ok(Err(error)) => {
                tracing::warn!(error = %error, "memory is recalled by words alone");
                Ok(None)
            }
            Err(_) => {
                tracing::warn!("memory is recalled by words alone: the embedding is late");
                Ok(None)
            }
        }
    }

    /// Recalls what fits the query, by its words and by its embedding.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn recall(&self, place: &MemoryPlace, query: &MemoryQuery) -> Result<Recalled, StoreError> {
        let MemoryQuery { words, embedding, top_k } = query;
        if words.is_empty() || *top_k == 0 {
            return Ok(Recalled::default());
        }
        let (store, each) = (self.store(), branch_top_k(*top_k));
        let keyword = store.matching_episodes(place, words, each).await?;
        let nearest = match embedding {
            Some((model, vector)) => store.nearest_episodes(place, (model, vector), each).await?,
            None => Vec::new(),
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
        let fused = fuse(semantic, keyword, ALPHA, *top_k);
        let episodes = fused.into_iter().filter_map(|item| {
            let id = item.id.parse().ok()?;
            Some(RecalledEpisode { id, content: item.text, relevance: item.relevance_score })
        });
        let facts = store.related_facts(place, words, (*top_k).into()).await?;
        let facts = facts.into_iter().map(|fact| {
            let sentence = format!("{} {} {}", fact.subject, fact.predicate, fact.object);
            (sentence, fact.episodes)
        });
        Ok(Recalled { episodes: episodes.collect(), facts: facts.collect() })
    }

    /// Embeds episodes. Does nothing where no embeddings are bound, or without pgvector. One that the endpoint refuses
    /// keeps no other from it.
    ///
    /// # Errors
    /// The endpoint fails, or refused an episode; Postgres is unavailable. What was embedded before is stored.
    pub async fn embed_episodes(&self, place: &MemoryPlace, episodes: &[TakenEpisode]) -> Result<(), RetrievalError> {
        if episodes.is_empty() {
            return Ok(());
        }
        let Some(binding) = self.embeddings(place.tenant)? else { return Ok(()) };
        // Before they are paid for.
        if !self.store().enable_vectors().await.map_err(RetrievalError::request)? {
            return Ok(());
        }
        let (mut parts, mut refused): (Vec<_>, _) = (episodes.chunks(MAX_BATCH_TEXTS).rev().collect(), None);
        while let Some(part) = parts.pop() {
            let Err(error) = self.embed_part(&binding, part).await else { continue };
            if !matches!(error.upstream_status(), Some(400 | 413 | 422)) {
                return Err(error);
            }
            match part.split_at_checked(part.len() / 2) {
                Some((first, second)) if !first.is_empty() => parts.extend([second, first]),
                Some(_) | None => refused = refused.or(Some(error)),
            }
        }
        refused.map_or(Ok(()), Err)
    }

    async fn embed_part(&self, binding: &EmbeddingsBinding, part: &[TakenEpisode]) -> Result<(), RetrievalError> {
        let texts: Vec<&str> = part.iter().map(|episode| episode.content.as_str()).collect();
        let vectors = self.embed(binding, &texts).await?;
        let embedded: Vec<(&TakenEpisode, &[f64])> = part.iter().zip(vectors.iter().map(Vec::as_slice)).collect();
        let stored = self.store().embed_episodes(&binding.provider_model, &embedded).await;
        stored.map(drop).map_err(RetrievalError::request)
    }
}
