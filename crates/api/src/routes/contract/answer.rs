//! Answers of the contract: records and errors.

use axum::{
    Json,
    http::{HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use longhaul_contract::{ContractRefusal, ErrorBody, ExecCode, ExecutionView, record::Recorded};
use longhaul_domain::{ExecutionId, ExecutionStatus};
use longhaul_guards::sealing::SealError;
use longhaul_store::StoreError;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::ApiError;

/// Header with the id of the execution that an answer is about.
pub(crate) const EXECUTION_ID: HeaderName = HeaderName::from_static("x-execution-id");

#[derive(Debug)]
pub(crate) enum ContractError {
    /// The request was not accepted; nothing is stored.
    Refused(ContractRefusal),
    /// A literal secret cannot be sealed.
    Secret(SealError),
    KeyReused(ExecutionId),
    NotFound,
    /// The execution is stored, but its result cannot be read now.
    Untold(ExecutionId, ApiError),
    /// Any other error of the API.
    Api(ApiError),
}

impl From<ContractRefusal> for ContractError {
    fn from(refusal: ContractRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ApiError> for ContractError {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

impl From<StoreError> for ContractError {
    fn from(error: StoreError) -> Self {
        Self::Api(error.into())
    }
}

impl ContractError {
    pub(crate) fn body(&self) -> (StatusCode, ErrorBody) {
        match self {
            Self::Refused(of) => refusal(of),
            Self::Secret(error) => {
                let body = ErrorBody {
                    error: "invalid_payload".into(),
                    message: error.to_string(),
                    details: Some(Map::from_iter([("reason".to_owned(), Value::from("literal_secret"))])),
                };
                (StatusCode::BAD_REQUEST, body)
            }
            Self::KeyReused(id) => {
                let body = ErrorBody {
                    error: "idempotency_key_reused".into(),
                    message: "The Idempotency-Key was used for a different request".into(),
                    details: Some(Map::from_iter([("execution_id".to_owned(), Value::from(id.to_string()))])),
                };
                (StatusCode::CONFLICT, body)
            }
            Self::NotFound => {
                let body = ErrorBody {
                    error: "execution_not_found".into(),
                    message: "Execution not found".into(),
                    details: Some(Map::new()),
                };
                (StatusCode::NOT_FOUND, body)
            }
            Self::Untold(id, error) => {
                let (status, mut body) = of_api(error);
                let details = body.details.get_or_insert_default();
                details.insert("execution_id".to_owned(), Value::from(id.to_string()));
                (status, body)
            }
            Self::Api(error) => of_api(error),
        }
    }

    /// Adds the id of a stored execution, so that the caller can find it.
    pub(crate) fn of(self, id: ExecutionId) -> Self {
        match self {
            Self::Api(error) => Self::Untold(id, error),
            Self::Refused(_) | Self::Secret(_) | Self::KeyReused(_) | Self::NotFound | Self::Untold(..) => self,
        }
    }
}

impl IntoResponse for ContractError {
    fn into_response(self) -> Response {
        let (status, body) = self.body();
        let mut response = (status, Json(body)).into_response();
        if let Self::KeyReused(id) | Self::Untold(id, _) = self {
            name_execution(&mut response, &id.to_string());
        }
        response
    }
}

fn refusal(of: &ContractRefusal) -> (StatusCode, ErrorBody) {
    let status = StatusCode::from_u16(of.status).unwrap_or(StatusCode::BAD_REQUEST);
    (status, ErrorBody { error: of.error.into(), message: of.message.into(), details: None })
}

/// Converts an error of the API into the contract's shape. Server errors get the contract's own codes and messages.
pub(crate) fn of_api(error: &ApiError) -> (StatusCode, ErrorBody) {
    let problem = error.problem();
    of_problem(error.status(), &problem.code, &problem.detail)
}

pub(crate) fn of_problem(status: StatusCode, code: &str, detail: &str) -> (StatusCode, ErrorBody) {
    match code {
        "no_such_route" => return refusal(&ContractRefusal::ROUTE),
        "method_not_allowed" => return refusal(&ContractRefusal::METHOD),
        _ => {}
    }
    let ours = match status {
        StatusCode::SERVICE_UNAVAILABLE => Some(ExecCode::UpstreamUnavailable),
        _ if status.is_server_error() => Some(ExecCode::InternalError),
        _ => None,
    };
    let (error, message) = ours.map_or((code, detail), |ours| (ours.as_str(), ours.message()));
    let facts = ours.map(|_| Map::from_iter([("reason".to_owned(), Value::from(code))]));
    (status, ErrorBody { error: error.into(), message: message.into(), details: Some(facts.unwrap_or_default()) })
}

/// `{"execution": …}`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AgentExecutionEnvelope")]
pub(crate) struct Envelope {
    pub(crate) execution: ExecutionView,
}

/// Result of a run for its caller.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The record of an execution that succeeded, was cancelled or still runs.
    Record(Box<ExecutionView>),
    Failed(StatusCode, ErrorBody),
}

impl Ending {
    /// A failure gets the status of its code and always carries the execution's id.
    pub(crate) fn of(recorded: Recorded) -> Self {
        let stored = (recorded.status, recorded.failure_code.as_deref());
        let code = match stored {
            (ExecutionStatus::Failed, Some(code)) if code != "cancelled" => Some(ExecCode::of_failure(code)),
            _ => None,
        };
        match (code, recorded.failure()) {
            (Some(code), Some((error, message, mut details))) => {
                details.insert("execution_id".to_owned(), Value::from(recorded.id));
                let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                Self::Failed(status, ErrorBody { error, message, details: Some(details) })
            }
            (Some(_) | None, _) => Self::Record(Box::new(recorded.view())),
        }
    }

    pub(crate) fn into_response(self, id: &str) -> Response {
        let mut response = match self {
            Self::Record(execution) => (StatusCode::CREATED, Json(Envelope { execution: *execution })).into_response(),
            Self::Failed(status, body) => (status, Json(body)).into_response(),
        };
        name_execution(&mut response, id);
        response
    }
}

pub(crate) fn name_execution(response: &mut Response, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        response.headers_mut().insert(EXECUTION_ID, id);
    }
}
