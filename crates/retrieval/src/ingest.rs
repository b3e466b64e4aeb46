//! Ingestion: splits documents into chunks, embeds them, and replaces their previous chunks.
//!
//! Invariants: an unchanged document is neither embedded nor stored again, so a caller without a response repeats
//! the whole request; nothing that would be refused is embedded, and nothing is stored before the whole request is
//! embedded. In Longhaul's database one statement replaces a document's chunks. In another store the new chunks are
//! written before the old ones are removed, and the hash noted here is set only when it matches the contents there
//! (`store::document_generations`).

use std::{collections::HashMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use text_splitter::{ChunkConfig, MarkdownSplitter, TextSplitter};

use super::{
    bindings::{Bindings, EmbeddingsBinding, VectorBinding, VectorStore},
    embeddings,
    error::{FailureKind, RetrievalError, Stage},
    fill::{self, Filled, Which},
    retrieve::Retriever,
};
use longhaul_store::catalogue::{
    document_generations::Finished,
    documents::{Document, NewDocument},
    indexes::{Index, IndexError},
};

/// Longest wait for an ingestion permit.
const PATIENCE: Duration = Duration::from_secs(30);

/// Chunking settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSettings {
    /// Maximum characters of a chunk.
    pub chars: usize,
    /// Maximum characters that a chunk repeats of the previous one.
    pub overlap: usize,
    /// Maximum chunks of one index.
    pub max_per_index: i32,
}

/// Format of a document; selects the splitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DocumentFormat {
    /// Split at sentences and paragraphs.
    #[default]
    Text,
    /// Also split at headings, lists and code blocks.
    Markdown,
}

/// A document to put into an index.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IncomingDocument {
    /// The caller's id of the document. The same id again replaces it.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[^\u0000]*$"), example = "handbook/leave.md")]
    pub id: String,
    /// Text of the document, not blank, up to 2 MiB.
    pub text: String,
    /// Metadata that filters compare with and models see with every chunk; `title` and `uri` name the source.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// Determines where the text may be cut.
    #[serde(default)]
    pub format: DocumentFormat,
}

/// Result of ingesting one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngestedDocument {
    /// Caller's id of the document.
    pub id: String,
    /// False if an identical document was already stored.
    pub is_stored: bool,
    /// Number of chunks.
    pub chunks: usize,
}

/// A changed document, ready to be stored.
struct Prepared<'a> {
    document: &'a IncomingDocument,
    hash: Vec<u8>,
    chunks: Vec<String>,
}

impl Retriever {
    /// Puts documents into an index, creating it if it is new. The last of several documents with one id wins.
    ///
    /// # Errors
    /// [`RetrievalError`]. Documents before the failed one may be stored; repeating the request continues from
    /// there.
    pub async fn ingest(
        &self,
        bindings: &Bindings,
        index: &str,
        documents: &[IncomingDocument],
        settings: ChunkSettings,
    ) -> Result<Vec<IngestedDocument>, RetrievalError> {
        let permit = tokio::time::timeout(PATIENCE, self.ingesting.acquire()).await;
        let _permit = permit.map_err(|_elapsed| RetrievalError::request(FailureKind::Busy))?;
        let vector_store = vector_store(bindings)?;
        let embeddings = bindings.embeddings.as_ref();
        if embeddings.is_none() && !matches!(vector_store.store, VectorStore::Pgvector) {
            return Err(RetrievalError::request(FailureKind::NotBound("embeddings")));
        }
        let adapter_kind = vector_store.store.adapter_kind();
        let index = self.store.ensure_index(bindings.tenant, index, adapter_kind).await.map_err(of_index)?;
        let ids: Vec<String> = documents.iter().map(|document| document.id.clone()).collect();
        let known = self.store.known_documents(&index, &ids).await.map_err(of_index)?;
        let hashes: HashMap<&str, &Vec<u8>> =
            known.iter().map(|document| (document.id.as_str(), &document.content_hash)).collect();
        let hashed =
            last_of_each(documents).into_iter().map(|document| (document, hash(document, settings, embeddings)));
        let changed = hashed.filter(|(document, hash)| hashes.get(document.id.as_str()) != Some(&hash));
        let prepared = chunked(changed.collect(), settings).await?;
        admit(&index, &known, &prepared, embeddings, settings)?;
        let texts: Vec<&str> = prepared.iter().flat_map(|one| &one.chunks).map(String::as_str).collect();
        let vectors = match embeddings {
            Some(binding) => Some(embeddings::embed(&self.client, binding, &texts).await?.vectors),
            None => None,
        };
        let mut vectors = vectors.as_deref();
        let mut stored = HashMap::new();
        for one in &prepared {
            let (own, rest) = vectors.map(|vectors| vectors.split_at(one.chunks.len())).unzip();
            vectors = rest;
            self.put(vector_store, &index, one, embeddings.zip(own), settings).await?;
            stored.insert(one.document.id.as_str(), one.chunks.len());
        }
        let ingested = documents.iter().map(|document| {
            let is_stored = stored.contains_key(document.id.as_str());
            (document, is_stored)
        });
        let known = self.store.known_documents(&index, &ids).await.map_err(of_index)?;
        let counts: HashMap<&str, i32> = known.iter().map(|known| (known.id.as_str(), known.chunks)).collect();
        let chunks = |id: &str| counts.get(id).and_then(|count| usize::try_from(*count).ok()).unwrap_or_default();
        Ok(ingested
            .map(|(document, is_stored)| IngestedDocument {
                id: document.id.clone(),
                is_stored,
                chunks: chunks(&document.id),
            })
            .collect())
    }

    async fn put(
        &self,
        vector_store: &VectorBinding,
        index: &Index,
        one: &Prepared<'_>,
        embedded: Option<(&EmbeddingsBinding, &[Vec<f64>])>,
        settings: ChunkSettings,
    ) -> Result<(), RetrievalError> {
        let Prepared { document, hash, chunks } = one;
        let new = NewDocument {
            id: &document.id,
            content_hash: hash,
            bytes: document.text.len(),
            metadata: &document.metadata,
            chunks,
            embeddings: embedded.map(|(binding, vectors)| (binding.provider_model.as_str(), vectors)),
        };
        if matches!(vector_store.store, VectorStore::Pgvector) {
            return self.store.put_document(index, &new, settings.max_per_index).await.map_err(of_index);
        }
        self.put_elsewhere(vector_store, index, &new, settings).await
    }

    /// Puts a document whose chunks are in another store. Among concurrent writers the chunks of the one that began
    /// last remain. Every other writer removes its own chunks; it returns `Overtaken` if the last writer has not
    /// finished.
    async fn put_elsewhere(
        &self,
        vector_store: &VectorBinding,
        index: &Index,
        new: &NewDocument<'_>,
        settings: ChunkSettings,
    ) -> Result<(), RetrievalError> {
        let NewDocument { id: document, metadata, chunks, embeddings, .. } = *new;
        let vectors = embeddings.map(|(_, vectors)| vectors).unwrap_or_default();
        let filled = Filled { index, document, metadata, chunks, vectors };
        fill::prepare(&self.client, vector_store, &filled).await?;
        let generation = self.store.begin_document(index, new, settings.max_per_index).await.map_err(of_index)?;
        fill::put(&self.client, vector_store, &filled, generation).await?;
        let own = || fill::remove(&self.client, vector_store, index, document, Which::Of(generation));
        match self.store.finish_document(index, new, generation).await.map_err(of_index)? {
            Finished::Stored => Ok(()),
            Finished::Replaced => own().await,
            Finished::Overtaken => {
                own().await?;
                Err(RetrievalError::request(FailureKind::Overtaken))
            }
            // This write may have created the index again in the vector store, and no other request will remove it.
            Finished::IndexGone => {
                fill::remove_all(&self.client, vector_store, index).await?;
                Err(of_index(IndexError::NotFound(index.name.clone())))
            }
        }
    }

    /// Removes a document from an index. Returns true if it existed.
    ///
    /// # Errors
    /// [`RetrievalError`].
    pub async fn remove_document(&self, bindings: &Bindings, index: &str, id: &str) -> Result<bool, RetrievalError> {
        let Some(index) = self.store.find_index(bindings.tenant, index).await.map_err(of_index)? else {
            return Ok(false);
        };
        let Some(store) = elsewhere(bindings, &index)? else {
            return self.store.remove_document(&index, id, None).await.map_err(of_index);
        };
        let begun = self.store.begin_removal(&index, id).await.map_err(of_index)?;
        let Some((removal, was_there)) = begun else { return Ok(false) };
        fill::remove(&self.client, store, &index, id, Which::Before(removal)).await?;
        self.store.remove_document(&index, id, Some(removal)).await.map_err(of_index)?;
        Ok(was_there)
    }

    /// Removes an index with all its documents. Returns true if it existed.
    ///
    /// # Errors
    /// [`RetrievalError`].
    pub async fn remove_index(&self, bindings: &Bindings, index: &str) -> Result<bool, RetrievalError> {
        let Some(index) = self.store.find_index(bindings.tenant, index).await.map_err(of_index)? else {
            return Ok(false);
        };
        if let Some(store) = elsewhere(bindings, &index)? {
            fill::remove_all(&self.client, store, &index).await?;
        }
        self.store.remove_index(bindings.tenant, &index.name).await.map_err(of_index)
    }
}

fn vector_store(bindings: &Bindings) -> Result<&VectorBinding, RetrievalError> {
    bindings.vector_store.as_ref().ok_or_else(|| RetrievalError::request(FailureKind::NotBound("vector_store")))
}

/// Returns the vector store of an index whose chunks are not in Longhaul's database.
fn elsewhere<'a>(bindings: &'a Bindings, index: &Index) -> Result<Option<&'a VectorBinding>, RetrievalError> {
    if index.store == VectorStore::Pgvector.adapter_kind() {
        return Ok(None);
    }
    let bound = vector_store(bindings)?;
    let given = bound.store.adapter_kind();
    if index.store == given {
        return Ok(Some(bound));
    }
    Err(of_index(IndexError::Elsewhere { expected: index.store.clone(), given: given.to_owned() }))
}

fn of_index(error: impl Into<IndexError>) -> RetrievalError {
    RetrievalError::new(Stage::VectorStore, Some(VectorStore::Pgvector.adapter_kind()), FailureKind::from(error.into()))
}

/// Hash of all inputs of chunks and embeddings.
fn hash(document: &IncomingDocument, settings: ChunkSettings, embeddings: Option<&EmbeddingsBinding>) -> Vec<u8> {
    let IncomingDocument { id: _, text, metadata, format } = document;
    let model = embeddings.map(|binding| [&binding.requested_model, &binding.provider_model]);
    let made_from = json!([1, text, metadata, format, settings.chars, settings.overlap, model]);
    Sha256::digest(made_from.to_string()).to_vec()
}

/// Keeps the last document of each id.
fn last_of_each(documents: &[IncomingDocument]) -> Vec<&IncomingDocument> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut last: Vec<&IncomingDocument> = Vec::new();
    for document in documents {
        match places.get(document.id.as_str()) {
            Some(&place) => last[place] = document,
            None => {
                places.insert(&document.id, last.len());
                last.push(document);
            }
        }
    }
    last
}

/// Refuses documents that the index cannot take, before embeddings are paid for. Storing checks again, with the row
/// of the index locked.
fn admit(
    index: &Index,
    known: &[Document],
    prepared: &[Prepared<'_>],
    embeddings: Option<&EmbeddingsBinding>,
    settings: ChunkSettings,
) -> Result<(), RetrievalError> {
    if prepared.is_empty() {
        return Ok(());
    }
    if let (Some(expected), Some(binding)) = (&index.model, embeddings)
        && *expected != binding.provider_model
    {
        let given = binding.provider_model.clone();
        return Err(of_index(IndexError::Model { expected: expected.clone(), given }));
    }
    let before: HashMap<&str, i64> = known.iter().map(|known| (known.id.as_str(), known.chunks.into())).collect();
    let grown = prepared.iter().map(|one| {
        let chunks = i64::try_from(one.chunks.len()).unwrap_or(i64::MAX);
        chunks - before.get(one.document.id.as_str()).copied().unwrap_or_default()
    });
    if i64::from(index.chunks) + grown.sum::<i64>() > i64::from(settings.max_per_index) {
        return Err(of_index(IndexError::Full(settings.max_per_index)));
    }
    Ok(())
}

/// Splits the documents on a blocking thread: a megabyte takes long enough to stall the executor.
async fn chunked(
    changed: Vec<(&IncomingDocument, Vec<u8>)>,
    settings: ChunkSettings,
) -> Result<Vec<Prepared<'_>>, RetrievalError> {
    let inputs: Vec<(String, DocumentFormat)> =
        changed.iter().map(|(document, _)| (document.text.clone(), document.format)).collect();
    let cut = move || inputs.iter().map(|(text, format)| split(text, *format, settings)).collect::<Result<Vec<_>, _>>();
    let failed = |reason: String| RetrievalError::request(FailureKind::Chunks(reason));
    let chunks = tokio::task::spawn_blocking(cut).await.map_err(|error| failed(error.to_string()))?.map_err(failed)?;
    let prepared = changed.into_iter().zip(chunks);
    Ok(prepared.map(|((document, hash), chunks)| Prepared { document, hash, chunks }).collect())
}

fn split(text: &str, format: DocumentFormat, settings: ChunkSettings) -> Result<Vec<String>, String> {
    let config = ChunkConfig::new(settings.chars).with_overlap(settings.overlap).map_err(|error| error.to_string())?;
    let chunks: Vec<String> = match format {
        DocumentFormat::Text => TextSplitter::new(config).chunks(text).map(str::to_owned).collect(),
        DocumentFormat::Markdown => MarkdownSplitter::new(config).chunks(text).map(str::to_owned).collect(),
    };
    Ok(chunks.into_iter().filter(|chunk| !chunk.trim().is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: ChunkSettings = ChunkSettings { chars: 100, overlap: 20, max_per_index: 10 };

    fn document(text: &str) -> IncomingDocument {
        IncomingDocument { id: "d".into(), text: text.into(), metadata: Map::new(), format: DocumentFormat::Text }
    }

    #[test]
    fn chunks_hold_the_whole_text_within_their_size() {
        let text = (0..60).map(|n| format!("Sentence number {n} is here. ")).collect::<String>();
        let chunks = split(&text, DocumentFormat::Text, SETTINGS).unwrap();
        assert!(chunks.len() > 10 && chunks.iter().all(|chunk| chunk.chars().count() <= 100), "{chunks:?}");
        for n in 0..60 {
            let sentence = format!("Sentence number {n} is here.");
            assert!(chunks.iter().any(|chunk| chunk.contains(&sentence)), "{sentence}");
        }
    }

    #[test]
    fn markdown_is_cut_at_headings() {
        let text = "# One\n\nAlpha beta gamma delta alpha beta gamma delta.\n\n# Two\n\nEpsilon zeta eta theta iota \
            kappa lambda mu nu xi omicron.";
        let chunks = split(text, DocumentFormat::Markdown, SETTINGS).unwrap();
        assert_eq!(chunks.len(), 2);
        assert!(chunks[0].starts_with("# One") && chunks[1].starts_with("# Two"), "{chunks:?}");
    }

    #[test]
    fn hash_covers_all_inputs_of_embeddings() {
        let binding = |model: &str| EmbeddingsBinding {
            provider: Default::default(),
            endpoint_url: String::new(),
            path: String::new(),
            requested_model: model.into(),
            provider_model: model.into(),
            api_key: None,
            timeout: Duration::from_secs(1),
        };
        let of = |document: &IncomingDocument, model: &str| hash(document, SETTINGS, Some(&binding(model)));
        let same = of(&document("a"), "m");
        assert_eq!(same, of(&IncomingDocument { id: "other".into(), ..document("a") }, "m"));
        let with =
            |metadata: Value| IncomingDocument { metadata: metadata.as_object().unwrap().clone(), ..document("a") };
        let others = [
            of(&document("b"), "m"),
            of(&document("a"), "n"),
            of(&with(json!({"k": 1})), "m"),
            of(&IncomingDocument { format: DocumentFormat::Markdown, ..document("a") }, "m"),
            hash(&document("a"), SETTINGS, None),
            hash(&document("a"), ChunkSettings { overlap: 10, ..SETTINGS }, Some(&binding("m"))),
        ];
        assert!(others.iter().all(|other| *other != same));
    }
}
