//! An execution as a wire shows it.

use chrono::{DateTime, Utc};
use longhaul_domain::{
    AgentVersionId, ApiKeyId, DefinitionVersionId, ExecutionId, ExecutionStatus, SessionId, TenantId, WaitReason,
};
use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Store, StoreError, tenants::scope::TenantScope};

/// An execution as a wire needs it, beside its events and its steps.
#[derive(Debug, Clone, PartialEq)]
pub struct WireRecord {
    pub id: ExecutionId,
    pub tenant_id: TenantId,
    /// `AgentOverrides::wire`; `None` if it came over another surface, or its texts were erased.
    pub wire: Option<Value>,
    pub definition_key: String,
    pub definition_version_id: DefinitionVersionId,
    pub agent_key: String,
    pub agent_version_id: AgentVersionId,
    /// Session whose message it answers.
    pub session_id: Option<SessionId>,
    pub submitted_by: Option<ApiKeyId>,
    pub metadata: Value,
    pub created_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
    pub status: ExecutionStatus,
    pub wait_reason: Option<WaitReason>,
    pub cancel_requested_at: Option<DateTime<Utc>>,
    pub failure_class: Option<String>,
    pub failure_code: Option<String>,
    pub failure_summary: Option<String>,
    /// Time at which its texts were erased.
    pub erased_at: Option<DateTime<Utc>>,
    /// True if its caller asked not to store it.
    pub is_unstored: bool,
    /// Number of its last event.
    pub event_seq: i32,
    /// Tokens of all its model calls: of the prompts, and the parts of them that caches had and were given; and of the
    /// replies.
    pub input_tokens: i64,
    pub cached_tokens: i64,
    pub cache_write_tokens: i64,
    pub output_tokens: i64,
}

impl Store {
    /// The execution of that id as a wire shows it; `None` if there is none within `scope`.
    ///
    /// # Errors
    /// Postgres is unavailable, or the row cannot be read.
    pub async fn wire_record(&self, scope: &TenantScope, id: ExecutionId) -> Result<Option<WireRecord>, StoreError> {
        let tenants = scope.ids();
        let row = sqlx::query!(
            r#"
            select e.tenant_id, p.overrides -> 'wire' as "wire: Json<Value>", e.definition_key, e.definition_version_id,
                e.agent_key, e.agent_version_id, e.session_id, e.submitted_by, e.metadata, e.created_at, e.finished_at,
                e.status::text as "status!: ExecutionStatus", e.wait_reason as "wait_reason: WaitReason",
                e.cancel_requested_at, e.failure_class, e.failure_code, p.failure_summary, p.erased_at,
                exists (select from unstored u where u.execution_id = e.id) as "is_unstored!", e.event_seq,
                e.input_tokens, e.cached_tokens, e.cache_write_tokens, e.output_tokens
            from executions e join execution_payloads p on p.execution_id = e.id
            where e.id = $1 and ($2::uuid[] is null or e.tenant_id = any ($2))
            "#,
            id.0,
            tenants.as_deref() as Option<&[Uuid]>,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| WireRecord {
            id,
            tenant_id: TenantId(row.tenant_id),
            wire: row.wire.map(|wire| wire.0).filter(|wire| !wire.is_null()),
            definition_key: row.definition_key,
            definition_version_id: DefinitionVersionId(row.definition_version_id),
            agent_key: row.agent_key,
            agent_version_id: AgentVersionId(row.agent_version_id),
            session_id: row.session_id.map(SessionId),
            submitted_by: row.submitted_by.map(ApiKeyId),
            metadata: row.metadata,
            created_at: row.created_at,
            finished_at: row.finished_at,
            status: row.status,
            wait_reason: row.wait_reason,
            cancel_requested_at: row.cancel_requested_at,
            failure_class: row.failure_class,
            failure_code: row.failure_code,
            failure_summary: row.failure_summary,
            erased_at: row.erased_at,
            is_unstored: row.is_unstored,
            event_seq: row.event_seq,
            input_tokens: row.input_tokens,
            cached_tokens: row.cached_tokens,
            cache_write_tokens: row.cache_write_tokens,
            output_tokens: row.output_tokens,
        }))
    }
}
