//! Results and call records of a search, with the keys of the agent execution contract in their order.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Preprocessing, SearchMethod};

/// Meaning of a provider's score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScoreKind {
    /// Smaller is closer; the similarity is 1 minus the distance.
    Distance,
    /// Larger is closer.
    Similarity,
    /// Weaviate's keyword score.
    Bm25,
    /// Qdrant's keyword search: a text matches or does not.
    TextMatch,
    /// PostgreSQL's `ts_rank_cd`.
    TsRank,
    /// Score of a fusion.
    HybridScore,
}

/// Meaning of a relevance, independent of the provider. Larger is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RelevanceKind {
    /// Similarity of embeddings. May be negative.
    Similarity,
    /// Keyword score, on the provider's scale.
    KeywordScore,
    /// Fusion of both.
    HybridScore,
}

/// Components of a hybrid score.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RelevanceComponents {
    /// Similarity from semantic search.
    pub semantic_score: f64,
    /// Keyword score, scaled from 0 (worst keyword result) to 1 (best).
    pub keyword_score: f64,
}

/// A chunk that a search found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RetrievedItem {
    /// Id of the chunk. For a chunk ingested by Longhaul, the document's id and the chunk's number.
    pub id: String,
    /// Text of the chunk.
    pub text: String,
    /// Metadata stored with the chunk.
    pub metadata: Map<String, Value>,
    /// Score from the provider; in a hybrid search, the fused score.
    pub score: f64,
    pub score_kind: ScoreKind,
    /// Score that orders the results.
    pub relevance_score: f64,
    pub relevance_kind: RelevanceKind,
    /// Set for hybrid searches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relevance_components: Option<RelevanceComponents>,
}

/// A request to an embeddings endpoint, as recorded in executions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbeddingCall {
    pub provider_slug: String,
    pub provider_key: String,
    /// Slug of the deployment profile.
    pub deployment_profile_slug: String,
    /// Managed model id, never the provider's.
    pub requested_model: String,
    /// Number of embedded texts.
    pub input_count: usize,
    /// Length of each embedding.
    pub dimension: usize,
    /// HTTP status.
    pub status_code: u16,
}

/// A search, as recorded in executions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetrievalCall {
    pub provider_slug: String,
    pub provider_key: String,
    /// Slug of the deployment profile.
    pub deployment_profile_slug: String,
    /// Index as the caller named it.
    pub index: String,
    /// Query after preprocessing.
    pub query: String,
    /// Number of requested results.
    pub top_k: u32,
    pub search_method: SearchMethod,
    pub query_preprocessing: Preprocessing,
    /// Set for hybrid searches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hybrid_alpha: Option<f64>,
    /// Number of results found.
    pub result_count: usize,
    /// Results, best first.
    pub results: Vec<RetrievedItem>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retrieval_call_has_the_contract_keys_in_order() {
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
        let expected = concat!(
            r#"{"provider_slug":"weaviate-local","provider_key":"weaviate_local","#,
            r#""deployment_profile_slug":"local-default","index":"kb_product_docs","query":"how does retrieval work","#,
            r#""top_k":5,"search_method":"hybrid","query_preprocessing":"normalize","hybrid_alpha":0.5,"#,
            r#""result_count":1,"results":[{"id":"doc-1","text":"Hybrid","metadata":{},"score":0.94,"#,
            r#""score_kind":"hybrid_score","relevance_score":0.94,"relevance_kind":"hybrid_score","#,
            r#""relevance_components":{"semantic_score":0.91,"keyword_score":0.97}}]}"#
        );
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<RetrievalCall>(&text).unwrap(), call);
        let keyword = RetrievalCall { search_method: SearchMethod::Keyword, hybrid_alpha: None, ..call };
        assert!(!serde_json::to_string(&keyword).unwrap().contains("hybrid_alpha"));
    }
}
