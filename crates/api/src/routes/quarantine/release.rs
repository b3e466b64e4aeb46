//! `POST /v1/quarantine/{id}/release`: lets a person retry an execution after its cause was fixed.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_store::{quarantine::Released, tenants::api_keys::Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ReleaseError;
use crate::{
    auth::Principal,
    body::read_optional,
    error::{ApiError, ApiResult},
    extract::{ExecutionPath, Params, take_reach},
    state::ApiState,
};

/// Extent of the release. The body may be left out.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReleaseBody {
    /// Releases the whole group, a portion at a time and without a canary.
    all: bool,
}

/// Result of a release.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReleaseView {
    /// Retry that runs now; the rest of the group follows if it ends without killing its worker. Null with `all`.
    released_as: Option<String>,
    /// True if the whole group is released.
    all: bool,
}

/// Retries a quarantined execution as the canary of its group.
///
/// The retry runs whatever the build of the workers. With `all`, releases the whole group without a canary.
#[utoipa::path(
    post,
    operation_id = "releaseFromQuarantine",
    path = "/v1/quarantine/{id}/release",
    tag = "quarantine",
    request_body = ref("#/components/schemas/ReleaseBody"),
    params(
        ("id" = String, Path, description = "The execution's id"),
        ("all_tenants" = Option<bool>, Query, description = "Of all tenants; needs the scope `admin`"),
    ),
    responses((status = 200, description = "It is tried, or all are", body = ReleaseView)),
)]
pub(crate) async fn release(
    State(state): State<ApiState>,
    principal: Principal,
    ExecutionPath(id): ExecutionPath,
    mut params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<ReleaseView>> {
    principal.need(Scope::ExecutionsWrite)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    params.finish()?;
    let ReleaseBody { all } = read_optional(&headers, body).await?;
    match state.store.release_quarantined(&reach, id, all).await? {
        Released::Canary(released) => {
            state.publisher.wake(&released.queue, released.id);
            Ok(Json(ReleaseView { released_as: Some(released.id.to_string()), all: false }))
        }
        Released::All => Ok(Json(ReleaseView { released_as: None, all: true })),
        Released::Refused(why) => Err(ReleaseError::NotReleasable(why).into()),
        Released::NotFound => Err(ApiError::NotFound("quarantined execution")),
    }
}
