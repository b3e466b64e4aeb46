//! `GET /v1/approvals` and `GET /v1/questions`.

use axum::{Json, extract::State};
use longhaul_domain::{HumanRequestId, RequestKind, RequestState};
use longhaul_store::{
    human_requests::{HumanRequest, RequestFilter},
    tenants::api_keys::Scope,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::view::{Approval, Question};
use crate::{
    auth::{Principal, Reader},
    error::ApiResult,
    extract::{Params, read_cursor, take_reach},
    openapi::{
        closed,
        params::{Cursor, Limit, Tenants},
    },
    paging::PageLength,
    state::ApiState,
};

/// One page of approvals.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApprovalPage {
    /// Approvals, newest first.
    approvals: Vec<Approval>,
    /// Cursor of the next page; null on the last one.
    next_cursor: Option<String>,
}

/// One page of questions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QuestionPage {
    /// Questions, newest first.
    questions: Vec<Question>,
    /// Cursor of the next page; null on the last one.
    next_cursor: Option<String>,
}

/// Lists calls that wait, or waited, for a person's decision; newest first.
#[utoipa::path(
    get,
    operation_id = "listApprovals",
    path = "/v1/approvals",
    tag = "people",
    params(
        ("state" = Option<closed::ApprovalState>, Query, description = "In this state"),
        ("execution" = Option<String>, Query, description = "Of this execution"),
        ("agent" = Option<String>, Query, description = "By agent key"),
        Tenants,
        Limit,
        Cursor,
    ),
    responses((status = 200, description = "A page", body = ApprovalPage)),
)]
pub(crate) async fn approvals(
    State(state): State<ApiState>,
    principal: Reader,
    params: Params,
) -> ApiResult<Json<ApprovalPage>> {
    let (found, next_cursor) = page(&state, &principal, RequestKind::Approval, params).await?;
    Ok(Json(ApprovalPage { approvals: found.iter().map(Approval::brief).collect(), next_cursor }))
}

/// Lists questions of executions to their callers; newest first.
#[utoipa::path(
    get,
    operation_id = "listQuestions",
    path = "/v1/questions",
    tag = "people",
    params(
        ("state" = Option<closed::QuestionState>, Query, description = "In this state"),
        ("execution" = Option<String>, Query, description = "Of this execution"),
        ("agent" = Option<String>, Query, description = "By agent key"),
        Tenants,
        Limit,
        Cursor,
    ),
    responses((status = 200, description = "A page", body = QuestionPage)),
)]
pub(crate) async fn questions(
    State(state): State<ApiState>,
    principal: Reader,
    params: Params,
) -> ApiResult<Json<QuestionPage>> {
    let (found, next_cursor) = page(&state, &principal, RequestKind::Question, params).await?;
    Ok(Json(QuestionPage { questions: found.iter().map(Question::brief).collect(), next_cursor }))
}

async fn page(
    state: &ApiState,
    principal: &Principal,
    kind: RequestKind,
    mut params: Params,
) -> ApiResult<(Vec<HumanRequest>, Option<String>)> {
    principal.need(Scope::ExecutionsRead)?;
    let reach = take_reach(state, principal, &mut params).await?;
    let length = PageLength::take(&mut params);
    let filter = RequestFilter {
        kind,
        state: params.chosen("state", RequestState::ALL, RequestState::as_str),
        execution_id: params.take("execution"),
        agent: params.text("agent"),
        before: params.named("cursor", read_cursor).map(HumanRequestId),
        limit: length.rows(),
    };
    params.finish()?;
    let mut found = state.store.list_requests(&reach, &filter).await?;
    let next_cursor = length.cut(&mut found, |one| one.id.0);
    Ok((found, next_cursor))
}
