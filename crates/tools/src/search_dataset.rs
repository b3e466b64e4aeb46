//! `search_dataset`: searches the datasets of an agent.
//!
//! Invariants: a call sees only indexes of the tenant whose execution makes it, and of these only the agent's
//! datasets. The number of results is limited here; their size is limited like any tool's, by the agent.

use async_trait::async_trait;
use longhaul_domain::{
    TenantId,
    requirements::SEARCH_DATASET,
    retrieval::{RetrievalRequest, leaves_method_open},
};
use longhaul_retrieval::{OwnIndexes, RetrievalError};
use longhaul_sdk::{ToolCallContext, ToolEffect, ToolFailure, ToolOutput, ToolSpec};
use serde_json::{Value, json};

use super::any_tool::AnyTool;

/// Largest number of results per call. The first few usually suffice, and the model can search again.
const MAX_RESULTS: u32 = 20;

#[derive(Debug)]
pub(super) struct SearchDataset {
    datasets: Vec<String>,
    indexes: OwnIndexes,
}

impl SearchDataset {
    pub(super) fn new(datasets: Vec<String>, indexes: OwnIndexes) -> Self {
        Self { datasets, indexes }
    }
}

#[async_trait]
impl AnyTool for SearchDataset {
    fn spec(&self) -> ToolSpec {
        spec(&self.datasets)
    }

    async fn call(&self, args: Value, context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let tenant = context.tenant_id.as_deref().and_then(|id| id.parse::<TenantId>().ok());
        let tenant = tenant.ok_or_else(|| ToolFailure::Reported("datasets are searched by executions alone".into()))?;
        let mut args = args;
        let index = args.get("index").and_then(Value::as_str).or(self.datasets.first().map(String::as_str));
        // The schema restricts the index too, but a resumed execution's pinned schema may be older than the
        // agent's datasets.
        let index = index.filter(|index| self.datasets.iter().any(|dataset| dataset == index)).map(str::to_owned);
        let index = index
            .ok_or_else(|| ToolFailure::Reported(format!("`index` must be one of: {}", self.datasets.join(", "))))?;
        args["index"] = index.into();
        let request = RetrievalRequest::read(Some(&args), || None).map_err(ToolFailure::from)?;
        let mut request = request.ok_or_else(|| ToolFailure::Reported("`query` is required".into()))?;
        request.top_k = request.top_k.min(MAX_RESULTS);
        if leaves_method_open(args.get("search_method")) {
            let usual = self.indexes.usual_method(tenant, &request.index).await;
            request.search_method = usual.map_err(|error| report(&error))?;
        }
        let found = self.indexes.search(tenant, &request).await.map_err(|error| report(&error))?;
        let results: Vec<Value> = found
            .results()
            .map(|item| {
                json!({"id": item.id, "text": item.text, "metadata": item.metadata,
                "score": item.relevance_score})
            })
            .collect();
        Ok(json!({"index": request.index, "results": results}).to_string().into())
    }
}

/// Logs the error for the operator and reports it to the model, which may search by keyword or continue without
/// results.
fn report(error: &RetrievalError) -> ToolFailure {
    tracing::warn!(
        error = %error, upstream = error.upstream.as_deref().unwrap_or_default(), "a dataset was not searched"
    );
    ToolFailure::Reported(error.to_string())
}

fn spec(datasets: &[String]) -> ToolSpec {
    let only = datasets.len() == 1;
    let required = if only { json!(["query"]) } else { json!(["query", "index"]) };
    ToolSpec {
        name: SEARCH_DATASET.into(),
        description: format!(
            "Searches documents and returns the passages that fit best, with their metadata. Available: {}.",
            datasets.join(", ")
        ),
        parameters: json!({
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1, "description": "What to look for: a question or words."},
                "index": {"type": "string", "enum": datasets, "description": "Which documents."},
                "top_k": {"type": "integer", "minimum": 1, "maximum": MAX_RESULTS,
                    "description": "Passages wanted; 5 when absent."},
                "search_method": {
                    "type": "string",
                    "enum": ["semantic", "keyword", "hybrid"],
                    "description": "By meaning, by words, or both. When absent the best that the documents allow.",
                },
                "filters": {
                    "type": "object",
                    "additionalProperties": {"type": ["string", "number", "boolean"]},
                    "description": "Only documents whose metadata has these values.",
                },
            },
            "required": required,
            "additionalProperties": false,
        }),
        effect: ToolEffect::ReadOnly,
        latent_output: None,
        is_strict: false,
        mended: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_guards::json_schema::report;

    #[test]
    fn index_is_optional_with_a_single_dataset() {
        let one = spec(&["kb".into()]);
        assert_eq!(one.parameters["required"], json!(["query"]));
        let two = spec(&["kb".into(), "faq".into()]);
        assert_eq!(two.parameters["required"], json!(["query", "index"]));
        assert_eq!(two.parameters["properties"]["index"]["enum"], json!(["kb", "faq"]));
        assert!(report::compile(&two.parameters).is_ok());
        assert_eq!(two.effect, ToolEffect::ReadOnly);
    }
}
