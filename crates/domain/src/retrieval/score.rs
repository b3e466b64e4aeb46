//! Ranking: relevance from provider scores, and fusion of the two sides of a hybrid search.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{RelevanceComponents, RelevanceKind, RetrievedItem, ScoreKind};

/// A result of a vector store, before ranking.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// Not empty.
    pub id: String,
    /// Text of the chunk.
    pub text: String,
    /// Metadata stored with the chunk.
    pub metadata: Map<String, Value>,
    /// Score from the provider; 0 if it gave no finite number.
    pub score: f64,
    pub score_kind: ScoreKind,
}

/// Number of results requested from each side of a hybrid search. More than `top_k`, because the best combined
/// results may rank lower on either side.
#[must_use]
pub fn branch_top_k(top_k: u32) -> u32 {
    top_k.saturating_mul(3).clamp(10, 50)
}

/// Computes the relevance of hits and sorts them, best first. Ties keep the provider's order.
#[must_use]
pub fn rank(hits: Vec<Hit>, relevance_kind: RelevanceKind) -> Vec<RetrievedItem> {
    let judged = |hit: Hit| {
        let score = if hit.score.is_finite() { hit.score } else { 0.0 };
        let relevance_score = if hit.score_kind == ScoreKind::Distance { 1.0 - score } else { score };
        RetrievedItem {
            id: hit.id,
            text: hit.text,
            metadata: hit.metadata,
            score,
            score_kind: hit.score_kind,
            relevance_score,
            relevance_kind,
            relevance_components: None,
        }
    };
    let mut items: Vec<RetrievedItem> = hits.into_iter().filter(|hit| !hit.id.is_empty()).map(judged).collect();
    best_first(&mut items);
    items
}

/// Fuses both sides of a hybrid search into at most `top_k` results.
///
/// Semantic scores count unchanged; keyword scores are scaled from the worst result (0) to the best (1). A result
/// found by one side only has 0 on the other. Of several results with one id on one side, the last is kept at the
/// position of the first.
#[must_use]
pub fn fuse(semantic: Vec<RetrievedItem>, keyword: Vec<RetrievedItem>, alpha: f64, top_k: u32) -> Vec<RetrievedItem> {
    let semantic = unique(semantic);
    let keyword = unique(keyword);
    let scores = keyword.iter().map(|item| item.relevance_score);
    let (least, most) =
        scores.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), score| (least.min(score), most.max(score)));
    let scaled = |score: f64| {
        // Divided first, because the difference of two finite numbers may be infinite.
        if most > least { (score / 2.0 - least / 2.0) / (most / 2.0 - least / 2.0) } else { 1.0 }
    };
    let keyword_scores: HashMap<String, f64> =
        keyword.iter().map(|item| (item.id.clone(), scaled(item.relevance_score))).collect();
    let only_keyword = keyword.into_iter().filter(|item| !semantic.iter().any(|known| known.id == item.id));
    let only_keyword = only_keyword.map(|item| (item, 0.0)).collect::<Vec<_>>();
    let found = semantic
        .into_iter()
        .map(|item| {
            let own = item.relevance_score;
            (item, own)
        })
        .chain(only_keyword);
    let fused = found.map(|(item, semantic_score)| {
        let keyword_score = keyword_scores.get(&item.id).copied().unwrap_or(0.0);
        let score = alpha * semantic_score + (1.0 - alpha) * keyword_score;
        RetrievedItem {
            score,
            score_kind: ScoreKind::HybridScore,
            relevance_score: score,
            relevance_kind: RelevanceKind::HybridScore,
            relevance_components: Some(RelevanceComponents { semantic_score, keyword_score }),
            ..item
        }
    });
    let mut fused: Vec<RetrievedItem> = fused.collect();
    best_first(&mut fused);
    fused.truncate(top_k as usize);
    fused
}

fn best_first(items: &mut [RetrievedItem]) {
    items.sort_by(|one, other| other.relevance_score.total_cmp(&one.relevance_score));
}

fn unique(items: Vec<RetrievedItem>) -> Vec<RetrievedItem> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut kept: Vec<RetrievedItem> = Vec::new();
    for item in items {
        match places.get(&item.id) {
            Some(&place) => kept[place] = item,
            None => {
                places.insert(item.id.clone(), kept.len());
                kept.push(item);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(id: &str, score: f64, score_kind: ScoreKind) -> Hit {
        Hit { id: id.into(), text: format!("{id} {score_kind:?}"), metadata: Map::new(), score, score_kind }
    }

    fn semantic(hits: &[(&str, f64)]) -> Vec<RetrievedItem> {
        let hits = hits.iter().map(|(id, score)| hit(id, *score, ScoreKind::Distance)).collect();
        rank(hits, RelevanceKind::Similarity)
    }

    fn keyword(hits: &[(&str, f64)]) -> Vec<RetrievedItem> {
        let hits = hits.iter().map(|(id, score)| hit(id, *score, ScoreKind::Bm25)).collect();
        rank(hits, RelevanceKind::KeywordScore)
    }

    fn parts(items: &[RetrievedItem]) -> Vec<(&str, f64, f64, f64)> {
        let rounded = |number: f64| (number * 1e9).round() / 1e9;
        let part = |item: &RetrievedItem| {
            let components = item.relevance_components.unwrap();
            (rounded(item.score), rounded(components.semantic_score), rounded(components.keyword_score))
        };
        items
            .iter()
            .map(|item| {
                let (score, s, k) = part(item);
                (item.id.as_str(), score, s, k)
            })
            .collect()
    }

    #[test]
    fn the_fusion_check_of_the_contract() {
        let fused = fuse(semantic(&[("d1", 0.2), ("d2", 0.6)]), keyword(&[("d2", 5.0), ("d3", 1.0)]), 0.3, 2);
        assert_eq!(parts(&fused), [("d2", 0.82, 0.4, 1.0), ("d1", 0.24, 0.8, 0.0)]);
        assert_eq!(fused[0].text, "d2 Distance", "text and metadata are the semantic side's");
        assert_eq!(fused[0].relevance_kind, RelevanceKind::HybridScore);
    }

    #[test]
    fn hybrid_branches_request_more_than_top_k() {
        assert_eq!([1, 4, 5, 17, 100].map(branch_top_k), [10, 12, 15, 50, 50]);
    }

    #[test]
    fn relevance_derives_from_distance_or_score() {
        let items = semantic(&[("far", 1.5), ("near", 0.25)]);
        let seen: Vec<_> = items.iter().map(|item| (item.id.as_str(), item.score, item.relevance_score)).collect();
        assert_eq!(seen, [("near", 0.25, 0.75), ("far", 1.5, -0.5)]);
        let items = rank(
            vec![hit("a", 0.1, ScoreKind::Similarity), hit("b", 0.9, ScoreKind::Similarity)],
            RelevanceKind::Similarity,
        );
        assert_eq!(items.iter().map(|item| item.relevance_score).collect::<Vec<_>>(), [0.9, 0.1]);
    }

    #[test]
    fn scores_that_are_no_numbers_count_as_zero() {
        let items = semantic(&[("nan", f64::NAN), ("inf", f64::INFINITY), ("", 0.1)]);
        let seen: Vec<_> = items.iter().map(|item| (item.id.as_str(), item.score, item.relevance_score)).collect();
        assert_eq!(seen, [("nan", 0.0, 1.0), ("inf", 0.0, 1.0)]);
        let fused = fuse(semantic(&[("a", f64::NAN)]), keyword(&[("b", f64::MAX), ("c", -f64::MAX)]), 0.5, 5);
        assert!(fused.iter().all(|item| item.score.is_finite()), "{fused:?}");
    }

    #[test]
    fn lone_or_equal_keyword_hits_score_full() {
        let fused = fuse(Vec::new(), keyword(&[("a", 3.0)]), 0.25, 5);
        assert_eq!(parts(&fused), [("a", 0.75, 0.0, 1.0)]);
        let fused = fuse(semantic(&[("c", 0.0)]), keyword(&[("a", 3.0), ("b", 3.0)]), 0.5, 5);
        let ids: Vec<_> = fused.iter().map(|item| item.id.as_str()).collect();
        assert_eq!(ids, ["c", "a", "b"], "equal ones in the order semantic, then keyword");
    }

    #[test]
    fn last_hit_of_an_id_counts() {
        let fused = fuse(semantic(&[("a", 0.1), ("b", 0.2), ("a", 0.9)]), Vec::new(), 1.0, 5);
        assert_eq!(parts(&fused), [("b", 0.8, 0.8, 0.0), ("a", 0.1, 0.1, 0.0)]);
    }
}
