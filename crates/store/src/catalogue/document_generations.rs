//! Documents whose chunks are in another store: the order of their writers, and when the hash recorded here
//! describes the other store.
//!
//! Invariant: a document's hash is stored only by its last writer, after that writer's chunks are there and all
//! others are deleted. Until then the hash is empty, so that the next put stores the document again.

use serde_json::Value;

use crate::{
    Store, StoreError,
    catalogue::{
        documents::{Generation, NewDocument},
        indexes::{Index, IndexError},
    },
};

/// Result of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// The document is as this writer put it.
    Stored,
    /// A later writer, or a removal, has finished.
    Replaced,
    /// A later writer has not finished, or has failed.
    Overtaken,
    /// The index was removed.
    IndexGone,
}

impl Store {
    /// Reserves a document's place in its index, and draws the writer's number. An index holds at most
    /// `max_chunks`.
    ///
    /// # Errors
    /// See [`IndexError`]; nothing is changed then.
    pub async fn begin_document(
        &self,
        index: &Index,
        document: &NewDocument<'_>,
        max_chunks: i32,
    ) -> Result<Generation, IndexError> {
        let width = document.width();
        let begun = sqlx::query!(
            r#"select outcome as "outcome!", drawn from longhaul_begin_document($1, $2, $3, $4, $5, $6, $7, $8)"#,
            index.id,
            document.id,
            i32::try_from(document.bytes).unwrap_or(i32::MAX),
            Value::Object(document.metadata.clone()),
            i32::try_from(document.chunks.len()).unwrap_or(i32::MAX),
            width.and_then(|width| i32::try_from(width).ok()) as _,
            document.model() as _,
            max_chunks,
        )
        .fetch_one(&self.pool)
        .await?;
        match (begun.outcome.as_str(), begun.drawn) {
            (_, Some(drawn)) => Ok(Generation(drawn)),
            (refused, None) => Err(self.refusal(refused, index, document, max_chunks).await?),
        }
    }

    /// Stores a document's hash, if no other writer has come after this one.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn finish_document(
        &self,
        index: &Index,
        document: &NewDocument<'_>,
        generation: Generation,
    ) -> Result<Finished, StoreError> {
        let row = sqlx::query!(
            r#"
            with stored as (
                update index_documents set content_hash = $3, updated_at = longhaul_now()
                where index_id = $1 and id = $2 and generation = $4
                returning id
            )
            select exists (select from stored) as "is_stored!", exists (select from indexes where id = $1)
                as "has_index!",
                exists (select from index_documents where index_id = $1 and id = $2 and content_hash = '') as "is_open!"
            "#,
            index.id,
            document.id,
            document.content_hash,
            generation.0,
        )
        .fetch_one(&self.pool)
        .await?;
        if row.is_stored {
            return Ok(Finished::Stored);
        }
        if !row.has_index {
            return Ok(Finished::IndexGone);
        }
        Ok(if row.is_open { Finished::Overtaken } else { Finished::Replaced })
    }

    /// Begins to remove a document, and tells if there was one. `None` if the index does not exist.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn begin_removal(&self, index: &Index, id: &str) -> Result<Option<(Generation, bool)>, StoreError> {
        let begun = sqlx::query!(
            r#"select drawn, was_there as "was_there!" from longhaul_begin_removal($1, $2)"#,
            index.id,
            id,
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(begun.drawn.map(|drawn| (Generation(drawn), begun.was_there)))
    }
}
