//! Approvals and questions as the API shows them.

use chrono::{DateTime, Utc};
use longhaul_domain::RequestState;
use longhaul_store::human_requests::{Decider, HumanRequest};
use serde::Serialize;
use serde_json::{Value, value::RawValue};
use utoipa::ToSchema;

use crate::{
    error::{ApiError, ApiResult},
    openapi::closed,
};

/// Key and person that decided.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeciderView {
    key_id: String,
    #[schema(example = "operations")]
    key_name: String,
    /// Name of the person, as the caller stated it.
    person: Option<String>,
}

/// A call that needs a person's approval. Lists leave out `arguments`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Approval {
    pub(crate) id: String,
    pub(crate) execution_id: String,
    /// Key of the agent.
    pub(crate) agent: String,
    pub(crate) tool: String,
    /// Beginning of the arguments, for people.
    pub(crate) preview: String,
    /// Arguments that the tool will get, byte for byte, with references resolved. A value that the agent or the
    /// tool's schema marks as secret is shown as `[redacted]`; sent back in an edit, `[redacted]` keeps the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object, required = false)]
    pub(crate) arguments: Option<Box<RawValue>>,
    /// SHA-256 over tool and arguments; a decision must name it.
    pub(crate) hash: String,
    /// Rule of the agent that asks for the approval.
    pub(crate) policy: Option<String>,
    #[schema(value_type = closed::ApprovalState)]
    pub(crate) state: &'static str,
    pub(crate) requested_at: DateTime<Utc>,
    /// Without a decision until then, the call is rejected.
    pub(crate) expires_at: DateTime<Utc>,
    pub(crate) decided_at: Option<DateTime<Utc>>,
    pub(crate) decided_by: Option<DeciderView>,
    pub(crate) reason: Option<String>,
    /// Tool that runs instead.
    pub(crate) decided_tool: Option<String>,
    /// Arguments that replace the proposed ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object, required = false)]
    pub(crate) decided_arguments: Option<Box<RawValue>>,
}

/// A question of an execution to its caller. Lists leave out `schema` and `answer`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Question {
    pub(crate) id: String,
    pub(crate) execution_id: String,
    /// Key of the agent.
    pub(crate) agent: String,
    pub(crate) question: String,
    /// JSON Schema of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object, required = false)]
    pub(crate) schema: Option<Value>,
    #[schema(value_type = closed::QuestionState)]
    pub(crate) state: &'static str,
    pub(crate) requested_at: DateTime<Utc>,
    pub(crate) expires_at: DateTime<Utc>,
    /// Answer, byte for byte as it was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value, required = false)]
    pub(crate) answer: Option<Box<RawValue>>,
    pub(crate) answered_at: Option<DateTime<Utc>>,
    pub(crate) answered_by: Option<DeciderView>,
}

/// The state as a caller sees it: an overdue request is expired even if the sweep has not marked it yet.
pub(crate) fn state(request: &HumanRequest) -> RequestState {
    match request.state {
        RequestState::Waiting if request.execution_is_over => RequestState::Closed,
        RequestState::Waiting if request.is_overdue => RequestState::Expired,
        state @ (RequestState::Waiting
        | RequestState::Approved
        | RequestState::Edited
        | RequestState::Replaced
        | RequestState::Rejected
        | RequestState::Answered
        | RequestState::Failed
        | RequestState::Expired
        | RequestState::Closed) => state,
    }
}

/// Explains why the request cannot be decided any more; `None` while it can.
pub(crate) fn standing(request: &HumanRequest) -> Option<String> {
    let state = state(request);
    if state == RequestState::Waiting {
        return None;
    }
    let at = request.decided_at.unwrap_or(request.expires_at).format("%Y-%m-%dT%H:%M:%SZ");
    Some(match &request.decided_by {
        Some(Decider { key_name, person: Some(person), .. }) => {
            format!("it was {state} by {person} with the key `{key_name}` at {at}")
        }
        Some(Decider { key_name, person: None, .. }) => format!("it was {state} with the key `{key_name}` at {at}"),
        None if state == RequestState::Expired => format!("nobody decided before it expired at {at}"),
        None => "the execution ended first".to_owned(),
    })
}

pub(crate) fn raw(bytes: &[u8]) -> ApiResult<Box<RawValue>> {
    let text = String::from_utf8(bytes.to_vec()).map_err(|_| ApiError::Internal)?;
    RawValue::from_string(text).map_err(|_| ApiError::Internal)
}

/// The exact text of the arguments, or, if they contain secrets, a copy with the secrets hidden.
pub(crate) fn shown(request: &HumanRequest, arguments: &[u8]) -> ApiResult<Box<RawValue>> {
    RawValue::from_string(request.visible(arguments).ok_or(ApiError::Internal)?).map_err(|_| ApiError::Internal)
}

fn decider(by: Option<&Decider>) -> Option<DeciderView> {
    by.map(|by| DeciderView { key_id: by.key_id.to_string(), key_name: by.key_name.clone(), person: by.person.clone() })
}

impl Approval {
    pub(crate) fn brief(request: &HumanRequest) -> Self {
        Self {
            id: request.id.to_string(),
            execution_id: request.execution_id.to_string(),
            agent: request.agent_key.clone(),
            tool: request.tool.clone(),
            preview: request.shown.clone(),
            arguments: None,
            hash: hex::encode(request.hash),
            policy: request.policy.clone(),
            state: state(request).as_str(),
            requested_at: request.requested_at,
            expires_at: request.expires_at,
            decided_at: request.decided_at,
            decided_by: decider(request.decided_by.as_ref()),
            reason: request.reason.clone(),
            decided_tool: request.decision_tool.clone(),
            decided_arguments: None,
        }
    }

    pub(crate) fn full(request: &HumanRequest) -> ApiResult<Self> {
        Ok(Self {
            arguments: Some(shown(request, &request.arguments)?),
            decided_arguments: request.decision_body.as_deref().map(|body| shown(request, body)).transpose()?,
            ..Self::brief(request)
        })
    }
}

impl Question {
    pub(crate) fn brief(request: &HumanRequest) -> Self {
        Self {
            id: request.id.to_string(),
            execution_id: request.execution_id.to_string(),
            agent: request.agent_key.clone(),
            question: request.shown.clone(),
            schema: None,
            state: state(request).as_str(),
            requested_at: request.requested_at,
            expires_at: request.expires_at,
            answer: None,
            answered_at: request.decided_by.as_ref().and(request.decided_at),
            answered_by: decider(request.decided_by.as_ref()),
        }
    }

    pub(crate) fn full(request: &HumanRequest) -> ApiResult<Self> {
        Ok(Self {
            schema: request.schema.clone(),
            answer: request.decision_body.as_deref().map(raw).transpose()?,
            ..Self::brief(request)
        })
    }
}
