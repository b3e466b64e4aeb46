//! Outputs of tasks, as text.

use std::collections::HashMap;

use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;

/// The beginning of each execution's output, at most `chars` characters, by execution. None for one that was erased.
pub(super) async fn texts_of(
    connection: &mut PgConnection,
    executions: &[Uuid],
    chars: usize,
) -> Result<HashMap<Uuid, String>, StoreError> {
    let rows = sqlx::query!(
        r#"
        select execution_id, left(coalesce(output ->> 'response', output::text, ''), $2) as "text!"
        from execution_payloads where execution_id = any ($1) and erased_at is null
        "#,
        executions,
        i32::try_from(chars).unwrap_or(i32::MAX),
    );
    Ok(rows.fetch_all(connection).await?.into_iter().map(|row| (row.execution_id, row.text)).collect())
}
