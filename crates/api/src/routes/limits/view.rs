//! A limit as the API shows it, and its key as the API reads it.

use longhaul_shared::{domain::LimitKey, store::slots::Limit};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    error::{ApiError, ApiResult},
    state::ApiState,
};

/// A concurrency limit and how it stands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LimitView {
    /// What executions are grouped by, and the one value it is about if it is about one.
    #[schema(example = "metadata.customer")]
    key: String,
    /// `operator` (set here), `definition` or `agent` (part of their newest version).
    source: String,
    /// The definition or agent that has it.
    subject: Option<String>,
    /// Whether it is about everybody's executions.
    shared: bool,
    /// At most so many for each value of the key.
    limit: i32,
    /// Slots that are held, over all values.
    held: i64,
    /// Executions that wait for one; counted up to 10000.
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

/// Limits.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LimitsPage {
    pub(crate) limits: Vec<LimitView>,
    /// For the next page, as `?after=`; null on the last one.
    pub(crate) next_after: Option<String>,
}

/// Reads a key. A tenant is named by its organisation and stored by its id.
pub(crate) async fn read_key(state: &ApiState, text: &str) -> ApiResult<LimitKey> {
    let refused =
        || ApiError::invalid("/key", "must be tenant, definition, agent or metadata.<path>, with or without :value");
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
