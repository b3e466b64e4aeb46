//! `PUT /v1/limits/{key}`: sets a limit as an operator.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_domain::{LimitKey, TenantId};
use longhaul_sdk::spec::ConcurrencySpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{LimitError, view::read_key};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, read_json},
    error::ApiResult,
    extract::{Params, Path},
    routes::definitions::put::owner,
    state::ApiState,
};

/// Maximum number of limits per owner. Bounded, because every claim checks them for every execution.
const MAX_LIMITS: usize = 100;

/// The new limit.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitBody {
    /// Maximum number of concurrent executions for each value of the key; 0 holds all of them back.
    #[schemars(range(min = 0, max = ConcurrencySpec::MAX), example = 10)]
    limit: i32,
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
#[utoipa::path(
    put,
    operation_id = "putLimit",
    path = "/v1/limits/{key}",
    tag = "limits",
    request_body = ref("#/components/schemas/LimitBody"),
    params(
        (
            "key" = String,
            Path,
            description = "tenant, definition, agent, queue or metadata.<path>; with :value about that value alone",
        ),
        ("shared" = Option<bool>, Query, description = "About all tenants; needs the scope `admin`"),
    ),
    responses((status = 200, description = "The limit", body = LimitSet)),
)]
pub(crate) async fn put(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<LimitSet>> {
    let owner = owner(&principal, params)?;
    let LimitBody { limit } = read_json(&headers, body, BODY_LIMIT).await?;
    let stored = read_key(&state, &key).await?;
    refuse_beyond_cap(&state, owner, &stored).await?;
    let woken = state.store.put_limit(owner, &stored, limit).await?;
    for one in &woken {
        state.publisher.look([one.id]);
        state.publisher.wake(&one.queue, one.id);
    }
    Ok(Json(LimitSet { key, limit, shared: owner.is_none(), woken: woken.len() }))
}

/// Two concurrent puts may both pass this check, so the cap may be exceeded by a few limits.
async fn refuse_beyond_cap(state: &ApiState, owner: Option<TenantId>, key: &LimitKey) -> ApiResult<()> {
    let own = state.store.operator_limits(owner).await?;
    if own.len() >= MAX_LIMITS && !own.contains(key) {
        return Err(LimitError::TooManyLimits { max: MAX_LIMITS }.into());
    }
    Ok(())
}
