//! `POST /v1/indexes/{name}/documents`: puts documents and creates the index if it is new.
//!
//! Invariant: repeating a request changes nothing, so a caller that got no answer sends it again
//! (docs/design/retrieval.md).

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_domain::retrieval::index::is_own_name;
use longhaul_retrieval::{IncomingDocument, IngestedDocument};
use longhaul_store::tenants::api_keys::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    auth::Principal,
    body::{DOCUMENTS_LIMIT, in_turn, read, read_body},
    error::{ApiError, ApiResult, Violation},
    extract::{Path, find_nul},
    routes::executions::request::idempotency_key,
    state::ApiState,
};

/// Maximum bytes of one document's text: some 700 pages.
const MAX_TEXT_BYTES: usize = 2 * 1024 * 1024;
/// Maximum bytes of all texts of a request, whose embeddings are held in memory.
const MAX_TEXTS_BYTES: usize = 4 * 1024 * 1024;
/// Bounded, because the metadata is returned with every chunk that is found.
const MAX_METADATA_BYTES: usize = 16 * 1024;

/// Up to 4 MiB of text in documents.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DocumentsBody {
    #[schemars(length(min = 1, max = 100))]
    documents: Vec<IncomingDocument>,
}

/// Outcome for one document.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IngestedView {
    id: String,
    status: IngestedStatus,
    /// Number of its chunks.
    chunks: usize,
}

/// Outcome for a document: `unchanged` if the index holds the same document already.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum IngestedStatus {
    Stored,
    Unchanged,
}

/// Outcomes, in the order of the documents.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ingested {
    index: String,
    documents: Vec<IngestedView>,
}

impl From<IngestedDocument> for IngestedView {
    fn from(of: IngestedDocument) -> Self {
        let status = if of.is_stored { IngestedStatus::Stored } else { IngestedStatus::Unchanged };
        Self { id: of.id, status, chunks: of.chunks }
    }
}

/// Puts documents into an index.
///
/// Documents are cut into chunks, embedded, and replace their former content. Unchanged documents are not embedded
/// again, so the same request may be repeated freely.
#[utoipa::path(
    post,
    operation_id = "putDocuments",
    path = "/v1/indexes/{name}/documents",
    tag = "indexes",
    request_body = ref("#/components/schemas/DocumentsBody"),
    params(
        (
            "name" = String,
            Path,
            description = "The index, made when it is new: a-z, 0-9, '.', '_', '-', up to 128 characters",
        ),
        ("Idempotency-Key" = Option<String>, Header, description = "Accepted, and not needed"),
    ),
    responses((status = 200, description = "All of them are stored and found from now on", body = Ingested)),
)]
pub(crate) async fn post(
    State(state): State<ApiState>,
    principal: Principal,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<Ingested>> {
    principal.need(Scope::DefinitionsWrite)?;
    idempotency_key(&headers)?;
    let bytes = read_body(&headers, body, DOCUMENTS_LIMIT).await?;
    let documents = in_turn(bytes.len(), || read_documents(&bytes, &name)).await?;
    let ingested = state.indexes.ingest(principal.tenant(), &name, &documents).await?;
    Ok(Json(Ingested { index: name, documents: ingested.into_iter().map(IngestedView::from).collect() }))
}

fn read_documents(bytes: &[u8], name: &str) -> ApiResult<Vec<IncomingDocument>> {
    let DocumentsBody { documents } = read(bytes, |body| violations(body, name))?.body;
    let nul = |document: &IncomingDocument| find_nul(&Value::Object(document.metadata.clone()), "/metadata");
    match documents.iter().enumerate().find_map(|(n, document)| Some((n, nul(document)?))) {
        Some((n, path)) => Err(ApiError::InputContainsNul { path: format!("/documents/{n}{path}") }),
        None => Ok(documents),
    }
}

/// Violations of the limits in bytes, which no schema can express, and of the index's name.
fn violations(DocumentsBody { documents }: &DocumentsBody, name: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    if !is_own_name(name) {
        let message =
            "must be 1 to 128 characters of a-z, 0-9, '.', '_' and '-', the first a letter or digit, without `..`";
        violations.push(Violation::new("/name", message));
    }
    if documents.iter().map(|document| document.text.len()).sum::<usize>() > MAX_TEXTS_BYTES {
        let message = format!("their texts are more than {MAX_TEXTS_BYTES} bytes together");
        violations.push(Violation::new("/documents", message));
    }
    for (n, IncomingDocument { text, metadata, .. }) in documents.iter().enumerate() {
        let mut wrong = |field: &str, why| violations.push(Violation::new(format!("/documents/{n}/{field}"), why));
        if text.trim().is_empty() || text.len() > MAX_TEXT_BYTES || text.contains('\0') {
            wrong("text", format!("must hold something, in at most {MAX_TEXT_BYTES} bytes, U+0000 not among them"));
        }
        let bytes: usize = metadata.iter().map(|(key, value)| key.len() + value.to_string().len() + 4).sum();
        if bytes > MAX_METADATA_BYTES {
            wrong("metadata", format!("must be at most {MAX_METADATA_BYTES} bytes"));
        }
    }
    violations
}
