//! `/v1/webhooks`: endpoints that are told of ends and requests ([guide](../../../../../docs/guide/webhooks.md)).

pub(crate) mod create;
pub(crate) mod deliveries;
mod error;
pub(crate) mod read;
pub(crate) mod redeliver;
pub(crate) mod remove;
pub(crate) mod replace;
mod request;
pub(crate) mod rotate;
mod view;

use longhaul_store::webhooks::{Endpoint, EndpointOf};
use uuid::Uuid;

pub(crate) use error::WebhookError;
pub(crate) use request::{RedeliverBody, RotateBody, WebhookBody};

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    state::ApiState,
};

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
