//! A limit as the API shows it, and the parser of its key.

use longhaul_domain::LimitKey;
use longhaul_store::waiting::slots::Limit;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    error::{ApiError, ApiResult},
    openapi::closed,
    state::ApiState,
};

/// A concurrency limit and its current use.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LimitView {
    /// Key that groups executions, with a value if the limit covers only that value.
    #[schema(example = "metadata.customer")]
    key: String,
    /// `operator` (set here), `definition` or `agent` (part of their newest version).
    #[schema(value_type = closed::LimitSource)]
    source: String,
    /// Definition or agent that has the limit.
    subject: Option<String>,
    /// True if the limit covers all tenants' executions.
    shared: bool,
    /// Maximum number of concurrent executions for each value of the key.
    limit: i32,
    /// Held slots, over all values.
    held: i64,
    /// Executions that wait for a slot; counted up to 10000.
    waiting: i64,
}

impl From<Limit> for LimitView {
    fn from(of: Limit) -> Self {
        Self {
            key: of.key.to_string(),
            source: of.source,
            subject: of.subject,
            shared: of.is_shared,
            limit: of.max,
            held: of.held,
            waiting: of.waiting,
        }
    }
}

/// A page of limits.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LimitsPage {
    pub(crate) limits: Vec<LimitView>,
    /// Value of `?after=` for the next page; null on the last one.
    pub(crate) next_after: Option<String>,
}

/// Parses a limit key. Callers name a tenant by its organisation; the store names it by its id.
pub(crate) async fn read_key(state: &ApiState, text: &str) -> ApiResult<LimitKey> {
    let refused = || {
        ApiError::invalid("/key", "must be tenant, definition, agent, queue or metadata.<path>, perhaps with :value")
    };
    let key = LimitKey::parse(text).ok_or_else(refused)?;
    match (key.expression(), key.value()) {
        ("tenant", Some(org)) => {
            let tenants = state.store.find_tenants(org, Some("")).await?;
            let tenant = tenants.first().ok_or(ApiError::NotFound("tenant"))?;
            LimitKey::new("tenant", Some(tenant.id.to_string())).ok_or_else(refused)
        }
        (_, _) => Ok(key),
    }
}
