//! `PUT /v1/limits/{key}`: sets a limit as an operator.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_sdk::spec::ConcurrencySpec;
use longhaul_shared::domain::{LimitKey, TenantId};
use serde::Serialize;
use utoipa::ToSchema;

use super::view::read_key;
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::{BODY_LIMIT, Fields, Params, Path, read_body},
    routes::definitions::put::owner,
    state::ApiState,
};

/// Maximum number of limits per owner. Bounded, because every claim checks them for every execution.
const MAX_LIMITS: usize = 100;

/// The new limit.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "describes the body in OpenAPI")]
pub(crate) struct LimitBody {
    /// Maximum number of concurrent executions for each value of the key, 0 to 10000; 0 holds all of them back.
    #[schema(example = 10)]
    limit: u32,
}

/// The limit that holds from now on.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LimitSet {
    key: String,
    limit: i32,
    shared: bool,
    /// Executions that waited for the limit and may run now.
    woken: usize,
}

/// Sets how many executions may run at a time.
///
/// The limit covers the caller's executions, or all tenants' with `?shared=true`. It holds from the next claim on;
/// running executions continue.
#[utoipa::path(put, operation_id = "putLimit", path = "/v1/limits/{key}", tag = "limits", request_body = LimitBody,
    params(
        ("key" = String, Path, description = "tenant, definition, agent or metadata.<path>; with :value about that value alone"),
        ("shared" = Option<bool>, Query, description = "About all tenants; needs the scope `admin`"),
    ),
    responses((status = 200, description = "The limit", body = LimitSet)))]
pub(crate) async fn put(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<LimitSet>> {
    let owner = owner(&principal, params)?;
    let bytes = read_body(&headers, body, BODY_LIMIT).await?;
    let mut fields = Fields::parse(&bytes)?;
    let limit = fields.take::<u32>("limit");
    match limit {
        None => fields.violation("/limit", "is required"),
        Some(limit) if limit > ConcurrencySpec::MAX => fields.violation("/limit", "must be at most 10000"),
        Some(_) => {}
    }
    fields.finish()?;
    let limit = limit.and_then(|limit| i32::try_from(limit).ok()).ok_or(ApiError::invalid("/limit", "is required"))?;
    let stored = read_key(&state, &key).await?;
    refuse_beyond_cap(&state, owner, &stored).await?;
    let woken = state.store.put_limit(owner, &stored, limit).await?;
    for one in &woken {
        (state.hooks.announce)(one.id);
        (state.hooks.wake)(&one.queue, one.id);
    }
    Ok(Json(LimitSet { key, limit, shared: owner.is_none(), woken: woken.len() }))
}

/// Two concurrent puts may both pass this check, so the cap may be exceeded by a few limits.
async fn refuse_beyond_cap(state: &ApiState, owner: Option<TenantId>, key: &LimitKey) -> ApiResult<()> {
    let own = state.store.operator_limits(owner).await?;
    if own.len() >= MAX_LIMITS && !own.contains(key) {
        return Err(ApiError::TooManyLimits { max: MAX_LIMITS });
    }
    Ok(())
}
