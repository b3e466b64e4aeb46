//! The criterion of one search in a vector store.

use longhaul_domain::retrieval::ScoreKind;

/// Search criterion.
#[derive(Debug, Clone, Copy)]
pub(super) enum SearchCriterion<'a> {
    Near(&'a [f64]),
    Words(&'a str),
}

impl SearchCriterion<'_> {
    pub(super) fn score_kind(self, of_distances: ScoreKind, of_words: ScoreKind) -> ScoreKind {
        match self {
            Self::Near(_) => of_distances,
            Self::Words(_) => of_words,
        }
    }
}
