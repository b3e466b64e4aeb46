//! Documents whose chunks are in another store: who writes one when, and when what is noted here of it is true of there.
//!
//! What must hold: a document's hash is stored only by its last writer, after that one's chunks are there and all others are not; while
//! nobody can say so the hash is empty, and whatever is put next is put anew.

use serde_json::Value;

use super::{
    Store, StoreError,
    indexes::{Index, IndexError, NewDocument},
};

/// The number of a writer of a document, above that of every writer before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(pub i64);

/// What became of a document that was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// It is what this writer made of it.
    Stored,
    /// Another one came after this and is done, a removal too.
    Replaced,
    /// Another one came after this and is not done, or failed.
    Overtaken,
    /// The index was removed.
    IndexGone,
}

impl Store {
    /// Takes a document's place in its index, and the right to fill it. An index holds at most `max_chunks`.
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

    /// Notes what a document is made from, if no other writer has come after this one.
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
            select exists (select from stored) as "is_stored!", exists (select from indexes where id = $1) as "has_index!",
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

    /// Begins to remove a document, and says whether there was one. None when there is no such index.
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
