//! The retrieval of a run: one search of its index, before the first turn.
//!
//! Bindings come from the snapshot. The search, its records and its failures are in
//! `longhaul_retrieval`.

use longhaul_agent::prepare::profile::Retrieved;
use longhaul_contract::{Binding, Capability, ContractRun, ExecCode, ExecFailure, PlatformRuntime};
use longhaul_domain::{
    TenantId,
    noted::{CallList, Noted},
    retrieval::{RetrievalRequest, SearchMethod, reference_message},
};
use longhaul_retrieval::{Bindings, EmbeddingsBinding, Provider, RetrievalError, VectorBinding, VectorStore};
use longhaul_sdk::Failure;
use serde_json::Value;

use super::{model, platform::Platform};

const EMBEDDINGS_ADAPTER: &str = "openai_compatible_embeddings";

/// The search requested by a run.
#[derive(Debug)]
pub(crate) struct Retrieval {
    request: RetrievalRequest,
    /// The request as stored, which identifies the step.
    text: String,
    /// Text placed before the references.
    instruction: Option<String>,
    runtime: PlatformRuntime,
}

impl Retrieval {
    /// Reads the retrieval request of a run, if it has one.
    ///
    /// # Errors
    /// The stored request cannot be serialised.
    pub(super) fn of(run: &ContractRun) -> Result<Option<Self>, Failure> {
        let Some(request) = run.retrieval.clone() else { return Ok(None) };
        let text = serde_json::to_string(&request).map_err(|_unreadable| {
            Failure::from(ExecFailure::new(ExecCode::InternalError).detail("reason", "retrieval_unreadable"))
        })?;
        let (instruction, runtime) = (run.retrieval_context.clone(), run.platform_runtime.clone());
        Ok(Some(Self { request, text, instruction, runtime }))
    }

    /// The request as stored, which identifies the step.
    pub(crate) fn request(&self) -> &str {
        &self.text
    }

    /// Runs the search.
    pub(crate) async fn retrieve(&self, platform: &Platform, tenant: TenantId) -> Retrieved {
        let (bindings, request) = match self.bindings(platform, tenant).await {
            Ok(bound) => bound,
            Err(failure) => return Retrieved { references: Err(failure), noted: Vec::new() },
        };
        match platform.retriever.retrieve(&bindings, &request).await {
            Ok(mut found) => {
                // The record names the index as the caller did, not as the vector store does.
                for call in &mut found.retrieval_calls {
                    call.index.clone_from(&self.request.index);
                }
                let results: Vec<_> = found.results().cloned().collect();
                let embedded = found.embedding_calls.iter().map(|call| Noted::new(CallList::EmbeddingCalls, call));
                let searched = found.retrieval_calls.iter().map(|call| Noted::new(CallList::RetrievalCalls, call));
                let references = Ok(reference_message(self.instruction.as_deref(), &results));
                Retrieved { references, noted: embedded.chain(searched).collect() }
            }
            Err(error) => {
                tracing::info!(error = %error, "retrieval failed");
                let embedded = error.embedding_calls.iter().map(|call| Noted::new(CallList::EmbeddingCalls, call));
                let searched = error.retrieval_calls.iter().map(|call| Noted::new(CallList::RetrievalCalls, call));
                Retrieved { noted: embedded.chain(searched).collect(), references: Err(told(&error)) }
            }
        }
    }

    /// Resolves the services, and the index name in the vector store.
    async fn bindings(&self, platform: &Platform, tenant: TenantId) -> Result<(Bindings, RetrievalRequest), Failure> {
        let of = |capability| self.runtime.binding(capability).map_err(|error| Failure::from(ExecFailure::from(error)));
        let embeddings = match self.request.search_method {
            SearchMethod::Keyword => None,
            SearchMethod::Semantic | SearchMethod::Hybrid => {
                Some(embeddings(&of(Capability::Embeddings)?, platform).await?)
            }
        };
        let vectors = of(Capability::VectorStore)?;
        let index = resolve_index(&vectors, &self.request.index)?;
        let bindings = Bindings {
            tenant,
            deployment_profile_slug: self.runtime.deployment_slug().unwrap_or_default().to_owned(),
            embeddings,
            vector_store: Some(vector_store(&vectors, platform)?),
        };
        Ok((bindings, RetrievalRequest { index, ..self.request.clone() }))
    }
}

fn provider(binding: &Binding) -> Provider {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Provider { slug: text(&binding.slug), key: text(&binding.provider_key) }
}

/// Always uses the binding's default resource, whichever model the run calls.
async fn embeddings(binding: &Binding, platform: &Platform) -> Result<EmbeddingsBinding, Failure> {
    model::check_adapter(binding, &[EMBEDDINGS_ADAPTER])?;
    let resource = binding.select_resource(None)?;
    Ok(EmbeddingsBinding {
        provider: provider(binding),
        endpoint_url: endpoint(binding)?,
        path: binding.text("embeddings_path").unwrap_or(EmbeddingsBinding::DEFAULT_PATH).to_owned(),
        requested_model: resource.id.clone().unwrap_or_default(),
        provider_model: model::provider_id(binding, resource, platform).await?,
        api_key: platform.api_key(binding)?,
        timeout: binding.request_timeout(),
    })
}

fn vector_store(binding: &Binding, platform: &Platform) -> Result<VectorBinding, Failure> {
    let kind = binding.adapter_kind.as_deref().unwrap_or_default().trim();
    let store = match kind {
        "weaviate_http" => {
            VectorStore::Weaviate { endpoint_url: endpoint(binding)?, api_key: platform.api_key(binding)? }
        }
        "qdrant_http" => VectorStore::Qdrant { endpoint_url: endpoint(binding)?, api_key: platform.api_key(binding)? },
        "pgvector" => VectorStore::Pgvector,
        other => return Err(model::unusable(binding, &format!("adapter_kind `{other}` is not supported"))),
    };
    let (provider, timeout) = (provider(binding), binding.request_timeout());
    Ok(VectorBinding { provider, store, timeout, only_own: false })
}

fn endpoint(binding: &Binding) -> Result<String, Failure> {
    let url = binding.endpoint().map(str::to_owned);
    url.ok_or_else(|| model::unusable(binding, "the binding has no endpoint_url"))
}

/// Resolves an index to its name in the vector store. With `resource_policy.selection_mode` = `explicit`, the
/// index must be one of the binding's resources; otherwise its name may also begin with `namespace_prefix`, by
/// default empty.
fn resolve_index(binding: &Binding, index: &str) -> Result<String, Failure> {
    let text =
        |name: &str| binding.resource_policy.get(name).and_then(Value::as_str).map(str::trim).unwrap_or_default();
    let listed = binding
        .resources
        .iter()
        .find(|resource| [resource.id.as_deref(), resource.provider_resource_id.as_deref()].contains(&Some(index)));
    if let Some(resource) = listed {
        return Ok(resource.provider_id().unwrap_or(index).to_owned());
    }
    let refused = match (text("selection_mode"), text("namespace_prefix")) {
        ("explicit", _) => "is not bound to the active vector store",
        (_, prefix) if index.starts_with(prefix) => return Ok(index.to_owned()),
        _ => "is outside the namespace of the active vector store",
    };
    let failure = ExecFailure::with_message(ExecCode::PolicyDenied, format!("Index '{index}' {refused}"))
        .detail("provider_slug", binding.slug.clone().unwrap_or_default())
        .detail("index", index);
    Err(failure.into())
}

fn told(error: &RetrievalError) -> Failure {
    let of = error.contract();
    let code = ExecCode::parse(of.code).unwrap_or(ExecCode::InternalError);
    let mut failure = ExecFailure::with_message(code, of.message);
    if let Some(slug) = of.provider_slug {
        failure = failure.detail("provider_slug", slug).detail("status_code", of.upstream_status.unwrap_or(of.status));
    }
    if let Some(reason) = of.reason {
        failure = failure.detail("reason", reason);
    }
    failure.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn index_is_resolved_by_resource_policy() {
        let binding = |policy: Value| -> Binding {
            let resources = json!([{"id": "kb", "provider_resource_id": "kb_v2"}]);
            serde_json::from_value(json!({"slug": "s", "resources": resources, "resource_policy": policy})).unwrap()
        };
        let resolve = |policy: Value, index: &str| resolve_index(&binding(policy), index).map_err(|error| error.code);
        let explicit = json!({"selection_mode": "explicit"});
        assert_eq!(resolve(explicit.clone(), "kb").unwrap(), "kb_v2");
        assert_eq!(resolve(explicit, "other").unwrap_err().as_str(), "EXEC_POLICY_DENIED");
        let named = json!({"selection_mode": "dynamic_namespace", "namespace_prefix": "prod_"});
        assert_eq!(resolve(named.clone(), "prod_other").unwrap(), "prod_other");
        assert_eq!(resolve(named.clone(), "kb").unwrap(), "kb_v2");
        assert_eq!(resolve(named, "other").unwrap_err().as_str(), "EXEC_POLICY_DENIED");
        assert_eq!(resolve(json!({}), "other").unwrap(), "other");
    }
}
