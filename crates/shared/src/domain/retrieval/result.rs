//! What a search gives, in the shape and order of keys of the agent execution contract.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Preprocessing, SearchMethod};

/// What a provider's score means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScoreKind {
    /// Smaller is closer: 1 minus it is the similarity.
    Distance,
    /// Larger is closer.
    Similarity,
    /// Weaviate's keyword score.
    Bm25,
    /// Qdrant's: a text matches or does not.
    TextMatch,
    /// PostgreSQL's `ts_rank_cd`.
    TsRank,
    /// Of a fusion.
    HybridScore,
}

/// What the relevance means, whoever computed it; larger is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelevanceKind {
    /// Of embeddings; may be below zero.
    Similarity,
    /// Of words, on the provider's scale.
    KeywordScore,
    /// Of both.
    HybridScore,
}

/// What a hybrid score is made of.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RelevanceComponents {
    /// Similarity, as the semantic side found it.
    pub semantic_score: f64,
    /// From 0, the worst of the keyword side's results, to 1, the best.
    pub keyword_score: f64,
}

/// One result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetrievedItem {
    /// The chunk's id; for one that Longhaul ingested, its document's id and number.
    pub id: String,
    /// The chunk.
    pub text: String,
    /// What was stored with it.
    pub metadata: Map<String, Value>,
    /// As the provider gave it; of a hybrid search, the fused one.
    pub score: f64,
    /// What it means.
    pub score_kind: ScoreKind,
    /// By which results are in order.
    pub relevance_score: f64,
    /// What it means.
    pub relevance_kind: RelevanceKind,
    /// Of hybrid searches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relevance_components: Option<RelevanceComponents>,
}

/// A request to an embeddings endpoint, as executions record it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbeddingCall {
    /// The provider.
    pub provider_slug: String,
    /// Its key.
    pub provider_key: String,
    /// The deployment it belongs to.
    pub deployment_profile_slug: String,
    /// The managed id of the model, never the provider's.
    pub requested_model: String,
    /// Texts embedded.
    pub input_count: usize,
    /// Numbers per embedding.
    pub dimension: usize,
    /// HTTP's.
    pub status_code: u16,
}

/// A search, as executions record it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetrievalCall {
    /// The provider.
    pub provider_slug: String,
    /// Its key.
    pub provider_key: String,
    /// The deployment it belongs to.
    pub deployment_profile_slug: String,
    /// The index as the caller named it.
    pub index: String,
    /// After preprocessing.
    pub query: String,
    /// Results wanted.
    pub top_k: u32,
    /// How it was searched.
    pub search_method: SearchMethod,
    /// What was done to the query.
    pub query_preprocessing: Preprocessing,
    /// Of hybrid searches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hybrid_alpha: Option<f64>,
    /// Results found.
    pub result_count: usize,
    /// The results, best first.
    pub results: Vec<RetrievedItem>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_the_keys_of_the_contract_in_their_order() {
        let call = RetrievalCall {
            provider_slug: "weaviate-local".into(),
            provider_key: "weaviate_local".into(),
            deployment_profile_slug: "local-default".into(),
            index: "kb_product_docs".into(),
            query: "how does retrieval work".into(),
            top_k: 5,
            search_method: SearchMethod::Hybrid,
            query_preprocessing: Preprocessing::Normalize,
            hybrid_alpha: Some(0.5),
            result_count: 1,
            results: vec![RetrievedItem {
                id: "doc-1".into(),
                text: "Hybrid".into(),
                metadata: Map::new(),
                score: 0.94,
                score_kind: ScoreKind::HybridScore,
                relevance_score: 0.94,
                relevance_kind: RelevanceKind::HybridScore,
                relevance_components: Some(RelevanceComponents { semantic_score: 0.91, keyword_score: 0.97 }),
            }],
        };
        let text = serde_json::to_string(&call).unwrap();
        let expected = r#"{"provider_slug":"weaviate-local","provider_key":"weaviate_local","deployment_profile_slug":"local-default","index":"kb_product_docs","query":"how does retrieval work","top_k":5,"search_method":"hybrid","query_preprocessing":"normalize","hybrid_alpha":0.5,"result_count":1,"results":[{"id":"doc-1","text":"Hybrid","metadata":{},"score":0.94,"score_kind":"hybrid_score","relevance_score":0.94,"relevance_kind":"hybrid_score","relevance_components":{"semantic_score":0.91,"keyword_score":0.97}}]}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<RetrievalCall>(&text).unwrap(), call);
        let keyword = RetrievalCall { search_method: SearchMethod::Keyword, hybrid_alpha: None, ..call };
        assert!(!serde_json::to_string(&keyword).unwrap().contains("hybrid_alpha"));
    }
}
