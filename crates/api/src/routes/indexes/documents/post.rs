//! `POST /v1/indexes/{name}/documents`: puts documents and creates the index if it is new.
//!
//! Invariant: repeating a request changes nothing, so a caller that got no answer sends it again
//! (docs/adr/0017-retrieval.md).

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_retrieval::{DocumentFormat, IncomingDocument, IngestedDocument};
use longhaul_shared::domain::retrieval::index::is_own_name;
use longhaul_store::api_keys::Scope;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::{DOCUMENTS_LIMIT, Fields, Path, Record, find_nul, in_turn, read_body},
    state::ApiState,
};

/// Maximum number of documents per request.
const MAX_DOCUMENTS: usize = 100;
/// Maximum bytes of one document's text: some 700 pages.
const MAX_TEXT_BYTES: usize = 2 * 1024 * 1024;
/// Maximum bytes of all texts of a request, whose embeddings are held in memory.
const MAX_TEXTS_BYTES: usize = 4 * 1024 * 1024;
/// Bounded, because the metadata is returned with every chunk that is found.
const MAX_METADATA_BYTES: usize = 16 * 1024;
const MAX_ID_CHARS: usize = 256;

/// A document to put into an index.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DocumentBody {
    /// Your id of the document, up to 256 characters. The same id again replaces it.
    #[schema(example = "handbook/leave.md")]
    id: String,
    /// Text of the document, up to 2 MiB.
    text: String,
    /// Metadata that filters compare with and models see with every chunk; `title` and `uri` name the source.
    #[serde(default)]
    #[schema(value_type = Object)]
    metadata: Map<String, Value>,
    /// `text` (when absent) or `markdown`: determines where the text may be cut.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    format: DocumentFormat,
}

/// Up to 100 documents with up to 4 MiB of text together.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "describes the body in OpenAPI")]
pub(crate) struct DocumentsBody {
    documents: Vec<DocumentBody>,
}

/// Outcome for one document.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IngestedView {
    id: String,
    /// `stored`, or `unchanged` if the index already holds the same document.
    status: &'static str,
    /// Number of its chunks.
    chunks: usize,
}

/// Outcomes, in the order of the documents.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ingested {
    index: String,
    documents: Vec<IngestedView>,
}

impl From<IngestedDocument> for IngestedView {
    fn from(of: IngestedDocument) -> Self {
        Self { id: of.id, status: if of.is_stored { "stored" } else { "unchanged" }, chunks: of.chunks }
    }
}

/// Puts documents into an index.
///
/// Documents are cut into chunks, embedded, and replace their former content. Unchanged documents are not embedded
/// again, so the same request may be repeated freely.
#[utoipa::path(post, operation_id = "putDocuments", path = "/v1/indexes/{name}/documents", tag = "indexes", request_body = DocumentsBody,
    params(("name" = String, Path, description = "The index, made when it is new: a-z, 0-9, '.', '_', '-', up to 128 characters")),
    responses((status = 200, description = "All of them are stored and found from now on", body = Ingested)))]
pub(crate) async fn post(
    State(state): State<ApiState>,
    principal: Principal,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<Ingested>> {
    principal.need(Scope::DefinitionsWrite)?;
    let bytes = read_body(&headers, body, DOCUMENTS_LIMIT).await?;
    let documents = in_turn(bytes.len(), || read_documents(&bytes, &name)).await?;
    let ingested = state.indexes.ingest(principal.tenant(), &name, &documents).await?;
    Ok(Json(Ingested { index: name, documents: ingested.into_iter().map(IngestedView::from).collect() }))
}

fn read_documents(bytes: &[u8], name: &str) -> ApiResult<Vec<IncomingDocument>> {
    let mut fields = Fields::parse(bytes)?;
    let documents: Vec<Record<DocumentBody>> = fields.take("documents").unwrap_or_default();
    let documents: Vec<DocumentBody> = documents.into_iter().map(|Record(document)| document).collect();
    if !is_own_name(name) {
        fields.violation(
            "/name",
            "must be 1 to 128 characters of a-z, 0-9, '.', '_' and '-', the first a letter or digit",
        );
    }
    check(&documents, &mut fields);
    for (n, document) in documents.iter().enumerate() {
        fields.oversized_number(&Value::Object(document.metadata.clone()), &format!("/documents/{n}/metadata"));
    }
    fields.finish()?;
    let incoming = |document: DocumentBody| {
        let DocumentBody { id, text, metadata, format } = document;
        IncomingDocument { id, text, metadata, format }
    };
    let documents: Vec<IncomingDocument> = documents.into_iter().map(incoming).collect();
    let nul = |document: &IncomingDocument| find_nul(&Value::Object(document.metadata.clone()), "/metadata");
    if let Some((n, path)) = documents.iter().enumerate().find_map(|(n, document)| Some((n, nul(document)?))) {
        return Err(ApiError::InputContainsNul { path: format!("/documents/{n}{path}") });
    }
    Ok(documents)
}

fn check(documents: &[DocumentBody], fields: &mut Fields<'_>) {
    if documents.is_empty() || documents.len() > MAX_DOCUMENTS {
        fields.violation("/documents", format!("must be 1 to {MAX_DOCUMENTS} documents"));
    }
    if documents.iter().map(|document| document.text.len()).sum::<usize>() > MAX_TEXTS_BYTES {
        fields.violation("/documents", format!("their texts are more than {MAX_TEXTS_BYTES} bytes together"));
    }
    for (n, DocumentBody { id, text, metadata, format: _ }) in documents.iter().enumerate() {
        let mut wrong = |field: &str, why: String| fields.violation(format!("/documents/{n}/{field}"), why);
        if id.is_empty() || id.chars().count() > MAX_ID_CHARS || id.contains('\0') {
            wrong("id", format!("must be 1 to {MAX_ID_CHARS} characters, U+0000 not among them"));
        }
        if text.trim().is_empty() || text.len() > MAX_TEXT_BYTES || text.contains('\0') {
            wrong("text", format!("must hold something, in at most {MAX_TEXT_BYTES} bytes, U+0000 not among them"));
        }
        let bytes: usize = metadata.iter().map(|(key, value)| key.len() + value.to_string().len() + 4).sum();
        if bytes > MAX_METADATA_BYTES {
            wrong("metadata", format!("must be at most {MAX_METADATA_BYTES} bytes"));
        }
    }
}
