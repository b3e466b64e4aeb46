//! Executions whose journal has a newer format than the worker that holds them knows.

use crate::{Store, StoreError};
use longhaul_domain::{ExecutionId, LeaseToken, WorkerId, formats::journal_requirement};

impl Store {
    /// Adds journals of `format` to the requirements of a held execution on workers. The lease goes on; once it
    /// ends, only a worker that satisfies them claims the execution again. Idempotent.
    ///
    /// # Errors
    /// The lease is lost or waits for its renewal, or Postgres is unavailable.
    pub async fn require_journal_format(
        &self,
        worker: WorkerId,
        (id, token): (ExecutionId, LeaseToken),
        format: u8,
    ) -> Result<(), StoreError> {
        let required = sqlx::query_scalar!(
            r#"
            with me as materialized (
                select id from workers where id = $1 and dead_at is null for key share
            ),
            held as materialized (
                select e.id, e.serve_key
                from me, executions e
                where e.id = $2 and e.worker_id is not distinct from $1 and e.lease_token = $3
                for update of e
            ),
            needs as materialized (
                select held.id, array(
                    select need.name
                    from (
                        select unnest(k.requirements) from serve_keys k where k.key = held.serve_key
                        union select $4::text
                    ) as need (name)
                    order by need.name collate "C"
                ) as requirements
                from held
            ),
            keyed as materialized (
                -- As ServeKey::of.
                select needs.id, needs.requirements,
                    case when octet_length(written.key) <= 512 then written.key
                        else 'sha256:' || encode(sha256(convert_to(written.key, 'UTF8')), 'hex')
                    end as key
                from needs cross join lateral (select array_to_string(needs.requirements, '+') as key) as written
            ),
            known as (
                insert into serve_keys (key, requirements) select key, requirements from keyed
                on conflict (key) do nothing
            )
            update executions e set serve_key = keyed.key
            from keyed
            where e.id = keyed.id
            returning e.id
            "#,
            worker.0,
            id.0,
            token.0,
            journal_requirement(format),
        )
        .fetch_optional(&self.pool)
        .await?;
        match required {
            Some(_) => Ok(()),
            None => Err(self.why_refused(worker, id, token).await),
        }
    }
}
