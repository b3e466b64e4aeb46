//! Documents of an index, with their chunks.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::types::Json;

use super::indexes::{Index, IndexError, vector_text};
use crate::{Store, StoreError, columns::Object};

/// A document without its chunks.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Id given by the caller.
    pub id: String,
    /// Hash of everything that the chunks are made from. Empty while they are put into another store, and after
    /// that failed.
    pub content_hash: Vec<u8>,
    /// Size of the text.
    pub bytes: i32,
    /// Number of chunks.
    pub chunks: i32,
    /// Metadata given by the caller.
    pub metadata: Map<String, Value>,
    /// Time of the first put.
    pub created_at: DateTime<Utc>,
    /// Time of the last change of its content.
    pub updated_at: DateTime<Utc>,
}

/// A document to be put.
#[derive(Debug, Clone)]
pub struct NewDocument<'a> {
    /// Id given by the caller.
    pub id: &'a str,
    /// Hash of everything that the chunks are made from.
    pub content_hash: &'a [u8],
    /// Size of the text.
    pub bytes: usize,
    /// Metadata given by the caller.
    pub metadata: &'a Map<String, Value>,
    /// Chunks in order.
    pub chunks: &'a [String],
    /// Model, and one embedding for each chunk; `None` for an index that is searched by words alone.
    pub embeddings: Option<(&'a str, &'a [Vec<f64>])>,
}

/// Number of a writer of a document, above that of every earlier writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(pub i64);

/// A row of the type `new_document`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "new_document")]
struct DocumentValues {
    id: String,
    content_hash: Vec<u8>,
    bytes: i32,
    metadata: Json<Map<String, Value>>,
    chunks: i32,
    dimension: Option<i32>,
    model: Option<String>,
}

impl From<&NewDocument<'_>> for DocumentValues {
    fn from(of: &NewDocument<'_>) -> Self {
        Self {
            id: of.id.to_owned(),
            content_hash: of.content_hash.to_vec(),
            bytes: i32::try_from(of.bytes).unwrap_or(i32::MAX),
            metadata: Json(of.metadata.clone()),
            chunks: i32::try_from(of.chunks.len()).unwrap_or(i32::MAX),
            dimension: of.width().and_then(|width| i32::try_from(width).ok()),
            model: of.model().map(str::to_owned),
        }
    }
}

impl NewDocument<'_> {
    pub(crate) fn model(&self) -> Option<&str> {
        self.embeddings.map(|(model, _)| model)
    }

    /// Length of each embedding.
    pub(crate) fn width(&self) -> Option<usize> {
        self.embeddings.and_then(|(_, vectors)| vectors.first()).map(Vec::len)
    }
}

impl Store {
    /// Those of `ids` that the index has.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn known_documents(&self, index: &Index, ids: &[String]) -> Result<Vec<Document>, StoreError> {
        let documents = sqlx::query_as!(
            Document,
            r#"select id, content_hash, bytes, chunks, metadata as "metadata: Object", created_at, updated_at
            from index_documents where index_id = $1 and id = any($2) order by id"#,
            index.id,
            ids,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(documents)
    }

    /// Documents of an index after an id, in order.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn list_documents(&self, index: &Index, after: &str, limit: i64) -> Result<Vec<Document>, StoreError> {
        let documents = sqlx::query_as!(
            Document,
            r#"select id, content_hash, bytes, chunks, metadata as "metadata: Object", created_at, updated_at
            from index_documents where index_id = $1 and id > $2 order by id limit $3"#,
            index.id,
            after,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(documents)
    }

    /// Stores a document, replacing an earlier one of the same id. An index holds at most `max_chunks`.
    ///
    /// # Errors
    /// See [`IndexError`]; nothing is changed then.
    pub async fn put_document(
        &self,
        index: &Index,
        document: &NewDocument<'_>,
        max_chunks: i32,
    ) -> Result<(), IndexError> {
        let vectors =
            document.embeddings.map(|(_, vectors)| vectors.iter().map(|v| vector_text(v)).collect::<Vec<_>>());
        let outcome = sqlx::query_scalar!(
            r#"select longhaul_put_document($1, $2, $3, $4, $5) as "outcome!""#,
            index.id,
            DocumentValues::from(document) as _,
            document.chunks,
            vectors.as_deref() as _,
            max_chunks,
        )
        .fetch_one(&self.pool)
        .await?;
        match outcome.as_str() {
            "stored" => Ok(()),
            refused => Err(self.refusal(refused, index, document, max_chunks).await?),
        }
    }

    /// Error for the outcome of a function that did not put the document.
    pub(crate) async fn refusal(
        &self,
        outcome: &str,
        index: &Index,
        document: &NewDocument<'_>,
        max_chunks: i32,
    ) -> Result<IndexError, StoreError> {
        match outcome {
            "gone" => Ok(IndexError::NotFound(index.name.clone())),
            "full" => Ok(IndexError::Full(max_chunks)),
            "no_vectors" => Ok(IndexError::NoVectorExtension),
            _ => {
                let given = document.width().unwrap_or_default();
                self.disagreement(index, document.model().unwrap_or_default(), given).await
            }
        }
    }

    /// Error that names the model or dimension in which index and document differ.
    async fn disagreement(&self, index: &Index, model: &str, given: usize) -> Result<IndexError, StoreError> {
        let row = sqlx::query!("select model, dimension from indexes where id = $1", index.id)
            .fetch_optional(&self.pool)
            .await?;
        let held = row.as_ref().and_then(|row| row.model.clone()).unwrap_or_default();
        let dimension = row.and_then(|row| row.dimension).and_then(|numbers| usize::try_from(numbers).ok());
        if held != model {
            return Ok(IndexError::Model { expected: held, given: model.to_owned() });
        }
        Ok(IndexError::Dimension { expected: dimension.unwrap_or_default(), given })
    }

    /// Removes a document with its chunks; with a `removal`, only if no other writer has come after it. Returns
    /// true if it was removed.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn remove_document(
        &self,
        index: &Index,
        id: &str,
        removal: Option<Generation>,
    ) -> Result<bool, StoreError> {
        let removed = sqlx::query_scalar!(
            r#"
            with locked as materialized (select id from indexes where id = $1 for no key update),
            removed as (
                delete from index_documents d using locked
                where d.index_id = locked.id and d.id = $2 and ($3::bigint is null or d.generation = $3)
                returning d.chunks
            )
            update indexes i
            set documents = i.documents - 1, chunks = i.chunks - removed.chunks, updated_at = longhaul_now()
            from removed where i.id = $1
            returning i.id
            "#,
            index.id,
            id,
            removal.map(|Generation(number)| number) as _,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(removed.is_some())
    }
}
