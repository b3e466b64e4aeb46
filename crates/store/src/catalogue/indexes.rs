//! Indexes of documents, each of one tenant, and the chunks of those that are kept here
//! (docs/design/retrieval.md).
//!
//! Invariants: every statement names the tenant or an index that was found by it; a document is replaced as a
//! whole, in one statement; without the extension `vector` everything but embeddings works.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{Store, StoreError, history::journal::storable};
use longhaul_domain::{TenantId, retrieval::Filters};

/// Most indexes of one tenant. To search over many small ones, use one index with a filter.
pub const MAX_INDEXES: i64 = 1_000;

/// Reason why an index could not be searched or filled.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The tenant has no such index.
    #[error("there is no index `{0}`")]
    NotFound(String),
    /// The index holds embeddings of another model.
    #[error("the index holds embeddings of the model `{expected}`, not of `{given}`")]
    Model {
        /// Model of the stored embeddings.
        expected: String,
        /// Model that is bound now.
        given: String,
    },
    /// The index holds embeddings of another length.
    #[error("the index holds embeddings of {expected} numbers, not of {given}")]
    Dimension {
        /// Length of the stored embeddings.
        expected: usize,
        /// Length given.
        given: usize,
    },
    /// The chunks are in another store than the one that is bound now.
    #[error("the index is in the store {expected}, not in {given}")]
    Elsewhere {
        /// Store of the chunks.
        expected: String,
        /// Store that is bound now.
        given: String,
    },
    /// The index holds another type under a metadata key, in a store that keeps one type for each.
    #[error("the index holds `{key}` as {expected}, not as {given}")]
    Property {
        /// Name of the key in the store.
        key: String,
        /// Type held.
        expected: String,
        /// Type given.
        given: String,
    },
    /// The index would hold more chunks than it may.
    #[error("the index would hold more than {0} chunks")]
    Full(i32),
    /// The tenant has as many indexes as it may.
    #[error("there are {MAX_INDEXES} indexes already")]
    TooMany,
    /// The extension `vector` is missing.
    #[error("the database has no extension `vector`: install pgvector on its server, then run `longhaul migrate`")]
    NoVectorExtension,
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for IndexError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// An index of documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    pub id: Uuid,
    /// Name, unique within the tenant.
    pub name: String,
    /// Adapter kind of the vector store that holds the chunks.
    pub store: String,
    /// Model of the embeddings; `None` while there are none.
    pub model: Option<String>,
    /// Length of the embeddings.
    pub dimension: Option<i32>,
    /// Number of documents.
    pub documents: i32,
    /// Number of chunks.
    pub chunks: i32,
    pub created_at: DateTime<Utc>,
    /// Time at which a document was last put or removed.
    pub updated_at: DateTime<Utc>,
}

/// A chunk found by a search.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkFound {
    /// `<document>#<number>`, from 1.
    pub id: String,
    pub text: String,
    /// Metadata of its document, with `document_id`.
    pub metadata: Map<String, Value>,
    /// Distance of the embeddings (the lowest is best), or rank of the words (the highest is best).
    pub score: f64,
}

/// Id of a document's chunk; `ordinal` counts from 1.
#[must_use]
pub fn chunk_id(document: &str, ordinal: usize) -> String {
    format!("{document}#{ordinal}")
}

/// Metadata of a chunk: that of its document, with the document's id.
#[must_use]
pub fn chunk_metadata(document: &str, metadata: &Map<String, Value>) -> Map<String, Value> {
    let mut metadata = metadata.clone();
    metadata.insert("document_id".into(), document.into());
    metadata
}

impl Store {
    /// Adds the extension `vector` and its column, if the server has it and this role may. Returns true if they
    /// are there.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn enable_vectors(&self) -> Result<bool, StoreError> {
        Ok(sqlx::query_scalar!(r#"select longhaul_enable_vectors() as "enabled!""#).fetch_one(&self.pool).await?)
    }

    /// The tenant's index of that name, created if it is new. `store` is where the chunks of a new one will be.
    ///
    /// # Errors
    /// It is in another store, there are too many, or Postgres is unavailable.
    pub async fn ensure_index(&self, tenant: TenantId, name: &str, store: &str) -> Result<Index, IndexError> {
        if let Some(index) = self.find_index(tenant, name).await? {
            if index.store == store {
                return Ok(index);
            }
            return Err(IndexError::Elsewhere { expected: index.store, given: store.to_owned() });
        }
        sqlx::query!(
            "insert into indexes (id, tenant_id, name, store, created_at, updated_at) \
             select $1, $2, $3, $4, longhaul_now(), longhaul_now() \
             where (select count(*) from indexes where tenant_id = $2) < $5 on conflict (tenant_id, name) do nothing",
            Uuid::new_v4(),
            tenant.0,
            name,
            store,
            MAX_INDEXES,
        )
        .execute(&self.pool)
        .await?;
        match self.find_index(tenant, name).await? {
            Some(index) if index.store == store => Ok(index),
            Some(index) => Err(IndexError::Elsewhere { expected: index.store, given: store.to_owned() }),
            None => Err(IndexError::TooMany),
        }
    }

    /// The tenant's index of that name.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn find_index(&self, tenant: TenantId, name: &str) -> Result<Option<Index>, StoreError> {
        let index = sqlx::query_as!(
            Index,
            "select id, name, store, model, dimension, documents, chunks, created_at, updated_at from indexes \
             where tenant_id = $1 and name = $2",
            tenant.0,
            name,
        );
        Ok(index.fetch_optional(&self.pool).await?)
    }

    /// Indexes of the tenant after a name, in order.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn list_indexes(&self, tenant: TenantId, after: &str, limit: i64) -> Result<Vec<Index>, StoreError> {
        let indexes = sqlx::query_as!(
            Index,
            "select id, name, store, model, dimension, documents, chunks, created_at, updated_at from indexes \
             where tenant_id = $1 and name > $2 order by name limit $3",
            tenant.0,
            after,
            limit,
        );
        Ok(indexes.fetch_all(&self.pool).await?)
    }

    /// Removes an index with everything in it. Returns true if there was one.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn remove_index(&self, tenant: TenantId, name: &str) -> Result<bool, StoreError> {
        let removed = sqlx::query!("delete from indexes where tenant_id = $1 and name = $2", tenant.0, name);
        Ok(removed.execute(&self.pool).await?.rows_affected() > 0)
    }

    /// Chunks of an index nearest to a query's embedding.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn nearest_chunks(
        &self,
        index: &Index,
        query: &[f64],
        top_k: u32,
        filters: &Filters,
    ) -> Result<Vec<ChunkFound>, IndexError> {
        // Nothing was embedded yet, so nothing is near; the extension may be missing.
        let Some(expected) = index.dimension.and_then(|numbers| usize::try_from(numbers).ok()) else {
            return Ok(Vec::new());
        };
        if expected != query.len() {
            return Err(IndexError::Dimension { expected, given: query.len() });
        }
        let rows = sqlx::query!(
            r#"select document_id as "document_id!", ordinal as "ordinal!", text as "text!", metadata as "metadata!",
                distance as "distance!" from longhaul_nearest_chunks($1, $2, $3, $4)"#,
            index.id,
            vector_text(query),
            having(filters),
            i32::try_from(top_k).unwrap_or(i32::MAX),
        )
        .fetch_all(&self.pool)
        .await?;
        let found =
            rows.into_iter().map(|row| found(&row.document_id, row.ordinal, row.text, &row.metadata, row.distance));
        Ok(found.collect())
    }

    /// Chunks of an index that have any of the query's words, those of the highest rank first.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn matching_chunks(
        &self,
        index: &Index,
        words: &str,
        top_k: u32,
        filters: &Filters,
    ) -> Result<Vec<ChunkFound>, StoreError> {
        let rows = sqlx::query!(
            r#"
            with query as materialized (
                select longhaul_any_word($2) as q
            )
            select c.document_id, c.ordinal, c.text, d.metadata, ts_rank(c.words, query.q, 1)::float8 as "rank!"
            from query
            join index_chunks c on c.words @@ query.q and c.index_id = $1
            join index_documents d on d.index_id = c.index_id and d.id = c.document_id
            where (d.metadata || jsonb_build_object('document_id', d.id)) @> $3
            order by "rank!" desc, c.document_id, c.ordinal
            limit $4
            "#,
            index.id,
            storable(words),
            having(filters),
            i64::from(top_k),
        )
        .fetch_all(&self.pool)
        .await?;
        let found = rows.into_iter().map(|row| found(&row.document_id, row.ordinal, row.text, &row.metadata, row.rank));
        Ok(found.collect())
    }
}

fn found(document: &str, ordinal: i32, text: String, metadata: &Value, score: f64) -> ChunkFound {
    let none = Map::new();
    ChunkFound {
        id: chunk_id(document, usize::try_from(ordinal).unwrap_or_default()),
        text,
        metadata: chunk_metadata(document, metadata.as_object().unwrap_or(&none)),
        score,
    }
}

/// Text form that pgvector reads; its numbers are single-precision.
pub(crate) fn vector_text(vector: &[f64]) -> String {
    let numbers: Vec<String> = vector.iter().map(|number| (*number as f32).to_string()).collect();
    format!("[{}]", numbers.join(","))
}

fn having(filters: &Filters) -> Value {
    // Cannot fail: keys are texts and numbers are finite.
    serde_json::to_value(filters).unwrap_or_default()
}
