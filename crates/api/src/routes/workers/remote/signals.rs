//! `GET /v1/workers/{id}/executions/{execution}/signals`.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{execution, held, journal::take_token, worker_of};
use crate::{
    auth::Reader,
    error::{ApiError, ApiResult},
    extract::{Params, Path},
    remote::WorkerError,
    state::ApiState,
};

/// Signals, in the order in which they were sent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SignalPage {
    signals: Vec<SignalView>,
}

/// A signal.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SignalView {
    /// Its number, which grows.
    seq: i32,
    #[schema(value_type = Value)]
    payload: Box<RawValue>,
    sent_at: DateTime<Utc>,
}

/// Reads the signals of a name that an execution which the worker holds was sent; at most 100.
#[utoipa::path(
    get,
    operation_id = "readSignals",
    path = "/v1/workers/{id}/executions/{execution}/signals",
    tag = "worker protocol",
    params(
        ("id" = String, Path, description = "Its id"),
        ("execution" = String, Path, description = "The execution"),
        ("token" = String, Query, description = "Token of its lease"),
        ("name" = String, Query, description = "Name of the signals"),
        ("after" = Option<i32>, Query, description = "Signals after this number"),
    ),
    responses((status = 200, description = "Signals in order", body = SignalPage)),
)]
pub(crate) async fn signals(
    State(state): State<ApiState>,
    principal: Reader,
    Path((worker, id)): Path<(String, String)>,
    mut params: Params,
) -> ApiResult<Json<SignalPage>> {
    let remote = worker_of(&state, &principal, &worker).await?;
    let (token, name) = (take_token(&mut params), params.text("name"));
    let after = params.take("after").unwrap_or(0);
    params.finish()?;
    let name = name.ok_or_else(|| ApiError::invalid("/query/name", "is required"))?;
    let id = execution(&id)?;
    held(&state, &remote, id, token.ok_or(WorkerError::LeaseLost)?).await?;
    let found = state.store.signals(id, &name, after).await?;
    let signals = found.into_iter().map(|signal| {
        let payload = RawValue::from_string(signal.payload).map_err(|_| ApiError::Internal)?;
        Ok(SignalView { seq: signal.seq, payload, sent_at: signal.sent_at })
    });
    Ok(Json(SignalPage { signals: signals.collect::<ApiResult<_>>()? }))
}
