//! Answers to requests with an `Idempotency-Key` that store no execution under it (docs/design/api.md).
//!
//! Invariant: of one key and path, one process at a time acts; what it answered is what each repeat is answered.

use std::time::Duration;

use longhaul_domain::TenantId;
use sqlx::PgConnection;
use uuid::Uuid;

use super::api_keys::Scope;
use crate::{Store, StoreError, history::body};

/// Time after which a request that is still under way has lost its process, and a repeat acts in its place. Longer
/// than any such request takes.
const CLAIM: Duration = Duration::from_secs(60);

/// A request under an `Idempotency-Key`.
#[derive(Debug, Clone)]
pub struct KeyedRequest {
    pub tenant: TenantId,
    /// SHA-256 of the path.
    pub place: Vec<u8>,
    pub key: String,
    /// SHA-256 of the query and the body.
    pub request_hash: Vec<u8>,
}

/// The right to act on a request, and to answer it.
#[derive(Debug, Clone)]
pub struct Claim {
    pub request: KeyedRequest,
    id: Uuid,
}

/// An answer to keep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptAnswer {
    pub status: u16,
    /// None after an erasure.
    pub body: Option<Vec<u8>>,
    /// Scopes that the request needed.
    pub scopes: Vec<Scope>,
    /// Ids and keys that the path and the answer name.
    pub subjects: Vec<String>,
}

/// Result of asking for the right to act.
#[derive(Debug, Clone)]
pub enum Claimed {
    /// The caller acts, and then keeps its answer or gives the claim up.
    Now(Claim),
    Answered(KeptAnswer),
    /// Another process acts on the same request.
    UnderWay,
    /// The key belongs to another request.
    Reused,
}

impl Store {
    /// Asks for the right to act on a request.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn claim_request(&self, request: KeyedRequest) -> Result<Claimed, StoreError> {
        let id = Uuid::new_v4();
        let claimed = sqlx::query!(
            r#"
            insert into kept_answers as k (tenant_id, place, key, claim, request_hash, created_at)
            values ($1, $2, $3, $4, $5, longhaul_now())
            on conflict (tenant_id, place, key) do update set claim = excluded.claim, created_at = excluded.created_at
            where k.status is null and k.request_hash = excluded.request_hash
                and k.created_at < excluded.created_at - $6 * interval '1 second'
            "#,
            request.tenant.0,
            request.place,
            request.key,
            id,
            request.request_hash,
            CLAIM.as_secs_f64(),
        )
        .execute(&self.pool)
        .await?;
        if claimed.rows_affected() > 0 {
            return Ok(Claimed::Now(Claim { request, id }));
        }
        let kept = sqlx::query!(
            r#"
            select request_hash, status, body, scopes, subjects from kept_answers
            where tenant_id = $1 and place = $2 and key = $3
            "#,
            request.tenant.0,
            request.place,
            request.key,
        )
        .fetch_optional(&self.pool)
        .await?;
        // One that was given up meanwhile can be asked for again.
        let Some(kept) = kept else { return Ok(Claimed::UnderWay) };
        if kept.request_hash != request.request_hash {
            return Ok(Claimed::Reused);
        }
        let Some(status) = kept.status else { return Ok(Claimed::UnderWay) };
        Ok(Claimed::Answered(KeptAnswer {
            status: status.unsigned_abs(),
            body: kept.body.as_deref().map(body::decode).transpose()?,
            scopes: kept.scopes.iter().filter_map(|scope| Scope::parse(scope)).collect(),
            subjects: kept.subjects,
        }))
    }

    /// Keeps the answer of a claimed request, unless the transaction of its effect has done so, or the claim is lost.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn keep_answer(&self, claim: &Claim, answer: &KeptAnswer) -> Result<(), StoreError> {
        let mut connection = self.pool.acquire().await?;
        keep(&mut connection, claim, answer).await.map(drop)
    }

    /// Gives a claim up: a repeat of the request acts anew.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn give_up_claim(&self, claim: &Claim) -> Result<(), StoreError> {
        sqlx::query!(
            r#"
            delete from kept_answers
            where tenant_id = $1 and place = $2 and key = $3 and claim = $4 and status is null
            "#,
            claim.request.tenant.0,
            claim.request.place,
            claim.request.key,
            claim.id,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Deletes up to `limit` kept answers older than `keep`. Returns fewer if no more are left, or another process
    /// deletes them.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn forget_kept_answers(&self, keep: Duration, limit: i64) -> Result<u64, StoreError> {
        let gone = sqlx::query!(
            r#"
            with old as materialized (
                select tenant_id, place, key from kept_answers
                where created_at < longhaul_now() - $1 * interval '1 second'
                order by created_at limit $2 for update skip locked
            )
            delete from kept_answers k using old
            where (k.tenant_id, k.place, k.key) = (old.tenant_id, old.place, old.key)
            "#,
            keep.as_secs_f64(),
            limit,
        )
        .execute(&self.pool)
        .await?;
        Ok(gone.rows_affected())
    }
}

/// Keeps an answer in the transaction of its effect. Returns false if the claim was lost: another process acts, and
/// the effect must not be.
pub(crate) async fn keep(
    connection: &mut PgConnection,
    claim: &Claim,
    answer: &KeptAnswer,
) -> Result<bool, StoreError> {
    let kept = sqlx::query!(
        r#"
        update kept_answers set status = $5, body = $6, scopes = $7, subjects = $8
        where tenant_id = $1 and place = $2 and key = $3 and claim = $4 and status is null
        "#,
        claim.request.tenant.0,
        claim.request.place,
        claim.request.key,
        claim.id,
        i16::try_from(answer.status).unwrap_or(i16::MAX),
        answer.body.as_deref().map(body::encode),
        &answer.scopes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        &answer.subjects,
    )
    .execute(connection)
    .await?;
    Ok(kept.rows_affected() > 0)
}

/// Erases the bodies of kept answers that name one of these subjects.
pub(crate) async fn erase_answers_about(
    connection: &mut PgConnection,
    tenant: TenantId,
    subjects: &[String],
) -> Result<(), StoreError> {
    sqlx::query!(
        "update kept_answers set body = null where body is not null and subjects && $2 and tenant_id = $1",
        tenant.0,
        subjects,
    )
    .execute(connection)
    .await?;
    Ok(())
}
