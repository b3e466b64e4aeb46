//! `POST /v1/questions/{id}/answer`.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_domain::RequestKind;
use longhaul_store::{
    human_requests::{Decider, NewDecision, Verdict},
    tenants::api_keys::Scope,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{decide, find, refuse_decided, view::Question, violations};
use crate::{
    auth::Principal,
    body::{NO_NUL, Read, SUBMIT_LIMIT, in_turn, read, read_body},
    error::{ApiError, ApiResult},
    extract::{Params, Path},
    state::ApiState,
};

/// Answer to a question.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerBody {
    /// Any JSON but null; valid against the question's schema if it has one.
    #[schemars(with = "Value")]
    answer: Box<RawValue>,
    /// Name of the person who answers; the key itself is always recorded.
    #[schemars(length(max = 200), regex(pattern = NO_NUL))]
    answered_by: Option<String>,
}

/// Answers a waiting question.
///
/// The model reads the answer as the result of its call. A second answer is 409.
#[utoipa::path(
    post,
    operation_id = "answerQuestion",
    path = "/v1/questions/{id}/answer",
    tag = "people",
    request_body = ref("#/components/schemas/AnswerBody"),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "Answered", body = Question)),
)]
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
    let Read { body, values } = in_turn(bytes.len(), || read(&bytes, |_: &AnswerBody| Vec::new())).await?;
    refuse_decided(&request)?;
    let value = values.get("answer").unwrap_or(&Value::Null);
    let found = violations(request.schema.as_ref(), value, "/answer").await?;
    if !found.is_empty() {
        return Err(ApiError::InvalidRequest(found));
    }
    let decision = NewDecision {
        verdict: Verdict::Answer { answer: body.answer.get().as_bytes().to_vec() },
        hash: request.hash,
        by: Decider { key_id: principal.key_id(), key_name: principal.key().name.clone(), person: body.answered_by },
        reason: None,
    };
    let answered = decide(&state, &principal, &request, &decision).await?;
    Ok(Json(Question::full(&answered)?))
}
