//! `/v1/webhooks`: endpoints that are told of ends and requests ([guide](../../../../../docs/guide/webhooks.md)).

pub(crate) mod create;
pub(crate) mod deliveries;
pub(crate) mod read;
pub(crate) mod redeliver;
pub(crate) mod remove;
pub(crate) mod replace;
mod request;
pub(crate) mod rotate;
mod view;

use longhaul_store::webhooks::{Endpoint, EndpointOf};
use uuid::Uuid;

pub(crate) use request::{RedeliverBody, RotateBody, WebhookBody};

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    state::ApiState,
};

/// Errors of webhooks. Each is a conflict.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum WebhookError {
    #[error("there are {max} webhooks, which is as many as there may be; delete one")]
    TooMany { max: u32 },
    #[error("the webhook is disabled, and nothing is sent to it; replace it with `enabled: true`")]
    Disabled,
}

impl WebhookError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::TooMany { .. } => "too_many_webhooks",
            Self::Disabled => "webhook_disabled",
        }
    }
}

/// The id in the path, of the caller's tenant. A malformed one is not found.
fn own(principal: &Principal, id: &str) -> ApiResult<EndpointOf> {
    let id = Uuid::parse_str(id).map_err(|_| ApiError::NotFound("webhook"))?;
    Ok(EndpointOf { tenant: principal.tenant(), id })
}

/// The caller's webhook of that id.
async fn find(state: &ApiState, of: EndpointOf) -> ApiResult<Endpoint> {
    let found = state.store.webhooks(of.tenant, Some(of.id)).await?;
    found.into_iter().next().ok_or(ApiError::NotFound("webhook"))
}
