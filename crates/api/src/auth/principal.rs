//! The caller of a request, as data: its key, and what it leaves in the audit log.

use std::sync::Arc;

use longhaul_domain::{ApiKeyId, TenantId};
use longhaul_store::tenants::{
    api_keys::{ApiKey, Scope},
    audit_log::Actor,
    scope::TenantScope,
};

use crate::{
    audit::AuditSlot,
    error::{ApiError, ApiResult},
    keyed_answer::KeyedAnswer,
};

/// The authenticated caller of a request.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    key: Arc<ApiKey>,
    /// The row of this request in the audit log, if it changes something.
    audit: Option<AuditSlot>,
    /// The request's claim on its idempotency key, if its answer is kept.
    pub(crate) keyed: Option<KeyedAnswer>,
}

impl Principal {
    /// The caller that holds `key`, outside of a request.
    pub(crate) fn new(key: ApiKey) -> Self {
        Self { key: Arc::new(key), audit: None, keyed: None }
    }

    pub(crate) fn key_id(&self) -> ApiKeyId {
        self.key.id
    }

    pub(crate) fn tenant(&self) -> TenantId {
        self.key.tenant_id
    }

    /// The executions that the caller may read when it names no tenant.
    pub(crate) fn reach(&self) -> TenantScope {
        self.key.tenant_id.into()
    }

    pub(crate) fn key(&self) -> &ApiKey {
        &self.key
    }

    /// Names what the request created, for the audit log.
    pub(crate) fn created(&self, target: impl ToString) {
        if let Some(slot) = &self.audit {
            slot.name_target(target.to_string());
        }
    }

    /// Names the caller as the actor of the request's row in the audit log.
    pub(crate) fn act_in(&mut self, slot: &AuditSlot) {
        let key = self.key();
        slot.name_actor(Actor { kind: key.actor, id: key.id.0, name: key.name.clone(), tenant: key.tenant_id });
        self.audit = Some(slot.clone());
    }

    /// The caller's role in agent access policy.
    pub(crate) fn role(&self) -> &'static str {
        if self.key.scopes.contains(&Scope::Admin) { "superadmin" } else { "user" }
    }

    /// # Errors
    /// The key lacks the scope.
    pub(crate) fn need(&self, scope: Scope) -> ApiResult<()> {
        if let Some(keyed) = &self.keyed {
            keyed.note(scope);
        }
        if self.key.scopes.contains(&scope) { Ok(()) } else { Err(ApiError::MissingScope(scope)) }
    }
}
