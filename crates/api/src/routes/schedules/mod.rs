//! `/v1/schedules`: executions that start again and again ([guide](../../../../../docs/guide/schedules.md)).

pub(crate) mod create;
mod error;
pub(crate) mod firings;
pub(crate) mod pause;
pub(crate) mod read;
pub(crate) mod remove;
pub(crate) mod replace;
mod request;
pub(crate) mod run;
mod view;

pub(crate) use error::ScheduleError;

use longhaul_store::schedules::Schedule;

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    state::ApiState,
};

/// The caller's schedule of that key.
async fn find(state: &ApiState, principal: &Principal, key: &str) -> ApiResult<Schedule> {
    let missing = ApiError::NotFound("schedule");
    if key.contains('\0') {
        return Err(missing);
    }
    let found = state.store.get_schedule(&principal.tenant().into(), key).await?;
    found.ok_or(missing)
}
