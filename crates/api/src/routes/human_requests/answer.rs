//! `POST /v1/questions/{id}/answer`.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_shared::domain::RequestKind;
use longhaul_store::{
    api_keys::Scope,
    human_requests::{Decider, NewDecision, Verdict},
};
use serde_json::Value;
use utoipa::ToSchema;

use super::{MAX_PERSON, decide, find, refuse_decided, take_json, take_text, view::Question, violations};
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::{Fields, Params, Path, SUBMIT_LIMIT, read_body},
    state::ApiState,
};

/// Answer to a question. All violations are reported at once.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "describes the body in OpenAPI")]
pub(crate) struct AnswerBody {
    /// Any JSON but null; valid against the question's schema if it has one.
    #[schema(value_type = Value)]
    answer: Value,
    /// Name of the person who answers; the key itself is always recorded.
    answered_by: Option<String>,
}

/// Answers a waiting question.
///
/// The model reads the answer as the result of its call. A second answer is 409.
#[utoipa::path(post, operation_id = "answerQuestion", path = "/v1/questions/{id}/answer", tag = "people", request_body = AnswerBody,
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "Answered", body = Question)))]
pub(crate) async fn answer(
    State(state): State<ApiState>,
    principal: Principal,
    path: Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<Question>> {
    principal.need(Scope::ExecutionsWrite)?;
    params.finish()?;
    let request = find(&state, &principal.reach(), RequestKind::Question, path).await?;
    let bytes = read_body(&headers, body, SUBMIT_LIMIT).await?;
    let mut fields = Fields::parse(&bytes)?;
    let answer = take_json(&mut fields, "answer");
    if answer.is_none() {
        fields.violation("/answer", "is required");
    }
    let person = take_text(&mut fields, "answered_by", MAX_PERSON);
    fields.finish()?;
    // A missing answer has been reported above.
    let Some((text, value)) = answer else { return Err(ApiError::Internal) };
    refuse_decided(&request)?;
    let found = violations(request.schema.as_ref(), &value, "/answer").await?;
    if !found.is_empty() {
        return Err(ApiError::InvalidRequest(found));
    }
    let decision = NewDecision {
        verdict: Verdict::Answer { answer: text },
        hash: request.hash,
        by: Decider { key_id: principal.key_id(), key_name: principal.key().name.clone(), person },
        reason: None,
    };
    let answered = decide(&state, &principal, &request, &decision).await?;
    Ok(Json(Question::full(&answered)?))
}
