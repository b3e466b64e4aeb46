//! Every error a caller can see: problem+json (RFC 9457) with a stable `code`. Causes are logged here, once, and
//! never returned. docs/reference/api.md lists the codes; a test compares both.

use std::net::IpAddr;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use longhaul_shared::domain::{ExecutionId, ExecutionStatus};
use longhaul_store::{StoreError, api_keys::Scope, quarantine::Refused};
use serde::Serialize;
use utoipa::ToSchema;

/// Maximum number of violations in a response.
pub(crate) const MAX_VIOLATIONS: usize = 20;
/// Maximum length of a path or a message, in characters. Both may quote the request.
const MAX_TEXT_CHARS: usize = 400;

pub(crate) type ApiResult<T> = Result<T, ApiError>;

/// A violation in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Violation {
    /// JSON Pointer into the body; `/query/<name>` for a query parameter, `/header/<name>` for a header.
    #[schema(example = "/input/amount")]
    pub path: String,
    /// Description of the violation.
    #[schema(example = "\"twelve\" is not of type \"number\"")]
    pub message: String,
}

impl Violation {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        let capped = |mut text: String| {
            if let Some((cut, _)) = text.char_indices().nth(MAX_TEXT_CHARS) {
                text.truncate(cut);
                text.push('…');
            }
            text
        };
        Self { path: capped(path.into()), message: capped(message.into()) }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum ApiError {
    Unauthenticated,
    InvalidApiKey,
    MissingScope(Scope),
    NotFound(&'static str),
    NoSuchRoute,
    MethodNotAllowed,
    UnsupportedMediaType,
    PayloadTooLarge { limit_bytes: usize },
    RequestTimeout,
    MalformedJson(String),
    InvalidRequest(Vec<Violation>),
    InvalidInput(Vec<Violation>),
    InputContainsNul { path: String },
    UnknownDefinition(String),
    UnknownAgent(String),
    UnknownVersion { of: String, version: i32 },
    VersionRemoved { of: String, version: i32 },
    KeyReserved(String),
    TooManyLimits { max: usize },
    PriceUnknown { model: String },
    NoBudget,
    CommandNotAllowed { server: String },
    VariableNotAllowed { server: String, name: String },
    AddressNotAllowed { server: String, address: IpAddr },
    AgentNotAllowed(String),
    IdempotencyKeyReused(ExecutionId),
    ExecutionIsTerminal(ExecutionStatus),
    ExecutionNotFailed(ExecutionStatus),
    ExecutionNotEnded(ExecutionId),
    ExecutionErased,
    SessionBusy(ExecutionId),
    SessionKeyReused,
    SessionFull,
    TooManyMessages { max: i64 },
    NotReleasable(Refused),
    SelfApproval,
    CrossSite,
    StaleHash,
    AlreadyDecided(String),
    InvalidRetrieval(String),
    IndexConflict(String),
    RetrievalNotConfigured(String),
    RetrievalUnavailable(String),
    TooManyStreams,
    Refused,
    Busy,
    Unavailable,
    Internal,
}

impl ApiError {
    /// Shorthand for one violation.
    pub(crate) fn invalid(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::InvalidRequest(vec![Violation::new(path, message)])
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Unauthenticated | Self::InvalidApiKey => StatusCode::UNAUTHORIZED,
            Self::MissingScope(_)
            | Self::SelfApproval
            | Self::CrossSite
            | Self::CommandNotAllowed { .. }
            | Self::VariableNotAllowed { .. }
            | Self::AddressNotAllowed { .. }
            | Self::AgentNotAllowed(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) | Self::NoSuchRoute => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::IdempotencyKeyReused(_)
            | Self::ExecutionIsTerminal(_)
            | Self::ExecutionNotFailed(_)
            | Self::ExecutionNotEnded(_)
            | Self::ExecutionErased
            | Self::SessionBusy(_)
            | Self::SessionKeyReused
            | Self::SessionFull
            | Self::NotReleasable(_)
            | Self::NoBudget
            | Self::StaleHash
            | Self::AlreadyDecided(_)
            | Self::IndexConflict(_)
            | Self::TooManyLimits { .. }
            | Self::KeyReserved(_) => StatusCode::CONFLICT,
            Self::TooManyMessages { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::PayloadTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::MalformedJson(_) => StatusCode::BAD_REQUEST,
            Self::InvalidRequest(_)
            | Self::InvalidInput(_)
            | Self::InputContainsNul { .. }
            | Self::UnknownDefinition(_)
            | Self::UnknownAgent(_)
            | Self::UnknownVersion { .. }
            | Self::VersionRemoved { .. }
            | Self::PriceUnknown { .. }
            | Self::InvalidRetrieval(_)
            | Self::Refused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooManyStreams
            | Self::Busy
            | Self::Unavailable
            | Self::RetrievalNotConfigured(_)
            | Self::RetrievalUnavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The stable error code; part of the API.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Unauthenticated => "unauthenticated",
            Self::InvalidApiKey => "invalid_api_key",
            Self::MissingScope(_) => "missing_scope",
            Self::NotFound(_) => "not_found",
            Self::NoSuchRoute => "no_such_route",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::PayloadTooLarge { .. } => "payload_too_large",
            Self::RequestTimeout => "request_timeout",
            Self::MalformedJson(_) => "malformed_json",
            Self::InvalidRequest(_) => "invalid_request",
            Self::InvalidInput(_) => "invalid_input",
            Self::InputContainsNul { .. } => "input_contains_nul",
            Self::UnknownDefinition(_) => "unknown_definition",
            Self::UnknownAgent(_) => "unknown_agent",
            Self::UnknownVersion { .. } => "unknown_version",
            Self::VersionRemoved { .. } => "version_removed",
            Self::KeyReserved(_) => "key_reserved",
            Self::TooManyLimits { .. } => "too_many_limits",
            Self::PriceUnknown { .. } => "price_unknown",
            Self::NoBudget => "no_budget",
            Self::CommandNotAllowed { .. } => "command_not_allowed",
            Self::VariableNotAllowed { .. } => "variable_not_allowed",
            Self::AddressNotAllowed { .. } => "address_not_allowed",
            Self::AgentNotAllowed(_) => "agent_not_allowed",
            Self::IdempotencyKeyReused(_) => "idempotency_key_reused",
            Self::ExecutionIsTerminal(_) => "execution_is_terminal",
            Self::ExecutionNotEnded(_) => "execution_not_ended",
            Self::ExecutionErased => "execution_erased",
            Self::SessionBusy(_) => "session_busy",
            Self::SessionKeyReused => "idempotency_key_reused",
            Self::SessionFull => "session_full",
            Self::TooManyMessages { .. } => "too_many_messages",
            Self::ExecutionNotFailed(_) => "execution_not_failed",
            Self::NotReleasable(_) => "not_releasable",
            Self::SelfApproval => "self_approval",
            Self::CrossSite => "cross_site",
            Self::StaleHash => "stale_hash",
            Self::AlreadyDecided(_) => "already_decided",
            Self::InvalidRetrieval(_) => "invalid_retrieval_input",
            Self::IndexConflict(_) => "index_conflict",
            Self::RetrievalNotConfigured(_) => "retrieval_not_configured",
            Self::RetrievalUnavailable(_) => "retrieval_unavailable",
            Self::TooManyStreams => "too_many_streams",
            Self::Refused => "refused_values",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal_error",
        }
    }

    #[expect(clippy::too_many_lines, reason = "one sentence for each error")]
    fn detail(&self) -> String {
        match self {
            Self::Unauthenticated => "send an API key: `Authorization: Bearer lh_…`".into(),
            Self::InvalidApiKey => "the API key is unknown or revoked".into(),
            Self::MissingScope(scope) => format!("the API key lacks the scope `{scope}`"),
            Self::NotFound(what) => format!("{what} not found"),
            Self::NoSuchRoute => "there is nothing at this path".into(),
            Self::MethodNotAllowed => "this path has no such method".into(),
            Self::UnsupportedMediaType => "send `Content-Type: application/json`".into(),
            Self::PayloadTooLarge { limit_bytes } => format!("the body is larger than {limit_bytes} bytes"),
            Self::RequestTimeout => "the body did not arrive in time".into(),
            Self::MalformedJson(why) => format!("the body is not JSON: {why}"),
            Self::InvalidRequest(_) => "the request is invalid; see `errors`".into(),
            Self::InvalidInput(_) => "the input does not match the definition's schema; see `errors`".into(),
            Self::InputContainsNul { path } => format!("{path} contains the character U+0000, which cannot be stored"),
            Self::UnknownDefinition(key) => format!("there is no definition `{key}`"),
            Self::UnknownAgent(key) => format!("there is no agent `{key}`"),
            Self::UnknownVersion { of, version } => format!("`{of}` has no version {version}"),
            Self::VersionRemoved { of, version } => format!("version {version} of `{of}` was removed"),
            Self::KeyReserved(key) => format!("the key `{key}` is built in"),
            Self::TooManyLimits { max } => {
                format!("there are {max} limits, which is as many as there may be; remove one")
            }
            Self::PriceUnknown { model } => {
                format!("the budget is in money, and no price is configured for the model {model}")
            }
            Self::NoBudget => "the execution has no budget".into(),
            Self::CommandNotAllowed { server } => format!(
                "the tool server `{server}` is started by a command, which this agent may not (setting tools.mcp.stdio); give it a `url`"
            ),
            Self::VariableNotAllowed { server, name } => format!(
                "the tool server `{server}` is to be sent the variable `{name}` of the workers, which this agent may not (setting \
                 tools.mcp.secret_variables)"
            ),
            Self::AddressNotAllowed { server, address } => format!(
                "the tool server `{server}` is at {address}, in a private network, which this agent may not reach (setting \
                 tools.mcp.private_addresses)"
            ),
            Self::AgentNotAllowed(key) => format!("policy does not let you execute the agent `{key}`"),
            Self::IdempotencyKeyReused(_) => "the Idempotency-Key was used for a different request".into(),
            Self::ExecutionNotEnded(id) => format!("execution {id} has not ended; cancel it first"),
            Self::ExecutionErased => "the texts of the execution were erased".into(),
            Self::SessionFull => "the session has as many messages or bytes as it may; begin another".into(),
            Self::SessionKeyReused => "the idempotency key began another session".into(),
            Self::SessionBusy(id) => format!("execution {id} answers another message of the session"),
            Self::TooManyMessages { max } => format!("{max} messages of the session wait for their turn already"),
            Self::ExecutionIsTerminal(status) => format!("the execution is {status}, which never changes"),
            Self::ExecutionNotFailed(status) => format!("the execution is {status}; only FAILED ones can be retried"),
            Self::NotReleasable(why) => match why {
                Refused::Before(id) => format!("it was released before, as {id}"),
                Refused::Withdrawn => "it was cancelled".into(),
                Refused::Expired => "its deadline has passed; a retry has a new one".into(),
                Refused::CanaryRuns(id) => format!("{id} of its group is being tried; wait for its end"),
            },
            Self::SelfApproval => {
                "the execution, or one that it goes back to, was submitted with this key; another key must decide, unless \
                 the agent's policy says `allow_self`"
                    .into()
            }
            Self::CrossSite => "a page of another site sent this; sign in or out on the status page itself".into(),
            Self::StaleHash => "the hash is not that of this call; look at it again before you decide".into(),
            Self::AlreadyDecided(how) => format!("there is nothing to decide any more: {how}"),
            Self::InvalidRetrieval(why)
            | Self::IndexConflict(why)
            | Self::RetrievalNotConfigured(why)
            | Self::RetrievalUnavailable(why) => why.clone(),
            Self::TooManyStreams => "this server follows as many event streams as it may".into(),
            Self::Refused => "the database refused a value of the request".into(),
            Self::Busy => "too many large values are being checked; try again".into(),
            Self::Unavailable => "the service cannot reach its database; try again".into(),
            Self::Internal => "something went wrong on our side; the request id helps to find it".into(),
        }
    }

    /// The problem body, for a whole response or for one item of a batch.
    pub(crate) fn problem(&self) -> Problem {
        let status = self.status();
        let errors = self.violations();
        Problem {
            r#type: format!("urn:longhaul:error:{}", self.code()),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            code: self.code().to_owned(),
            detail: self.detail(),
            errors: (!errors.is_empty()).then_some(errors),
            execution_id: self.execution_id().map(|id| id.to_string()),
        }
    }

    /// The other execution that caused the conflict.
    fn execution_id(&self) -> Option<ExecutionId> {
        let (Self::IdempotencyKeyReused(id) | Self::NotReleasable(Refused::Before(id) | Refused::CanaryRuns(id))) =
            self
        else {
            return None;
        };
        Some(*id)
    }

    fn violations(&self) -> Vec<Violation> {
        match self {
            Self::InvalidRequest(all) | Self::InvalidInput(all) => all.iter().take(MAX_VIOLATIONS).cloned().collect(),
            Self::InputContainsNul { path } => vec![Violation::new(path.clone(), "contains the character U+0000")],
            Self::CommandNotAllowed { server } => {
                let path = format!("/mcp_servers/{server}/command");
                vec![Violation::new(path, "is not allowed for an agent of this owner")]
            }
            Self::VariableNotAllowed { server, .. } => {
                let path = format!("/mcp_servers/{server}");
                vec![Violation::new(path, "refers to a variable that is not allowed for an agent of this owner")]
            }
            Self::AddressNotAllowed { server, .. } => {
                let path = format!("/mcp_servers/{server}/url");
                vec![Violation::new(path, "is in a private network, which is not allowed for an agent of this owner")]
            }
            Self::IdempotencyKeyReused(_)
            | Self::NotReleasable(_)
            | Self::Unauthenticated
            | Self::InvalidApiKey
            | Self::MissingScope(_)
            | Self::NotFound(_)
            | Self::NoSuchRoute
            | Self::MethodNotAllowed
            | Self::UnsupportedMediaType
            | Self::PayloadTooLarge { .. }
            | Self::RequestTimeout
            | Self::MalformedJson(_)
            | Self::UnknownDefinition(_)
            | Self::UnknownAgent(_)
            | Self::UnknownVersion { .. }
            | Self::VersionRemoved { .. }
            | Self::PriceUnknown { .. }
            | Self::NoBudget
            | Self::KeyReserved(_)
            | Self::TooManyLimits { .. }
            | Self::AgentNotAllowed(_)
            | Self::ExecutionIsTerminal(_)
            | Self::ExecutionNotFailed(_)
            | Self::ExecutionNotEnded(_)
            | Self::ExecutionErased
            | Self::SessionBusy(_)
            | Self::SessionKeyReused
            | Self::SessionFull
            | Self::TooManyMessages { .. }
            | Self::SelfApproval
            | Self::CrossSite
            | Self::StaleHash
            | Self::AlreadyDecided(_)
            | Self::InvalidRetrieval(_)
            | Self::IndexConflict(_)
            | Self::RetrievalNotConfigured(_)
            | Self::RetrievalUnavailable(_)
            | Self::TooManyStreams
            | Self::Refused
            | Self::Busy
            | Self::Unavailable
            | Self::Internal => Vec::new(),
        }
    }
}

/// Body of every error response.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Problem {
    /// `urn:longhaul:error:<code>`.
    #[schema(example = "urn:longhaul:error:invalid_input")]
    pub r#type: String,
    /// HTTP reason phrase of the status.
    #[schema(example = "Unprocessable Entity")]
    pub title: String,
    /// HTTP status.
    #[schema(example = 422)]
    pub status: u16,
    /// Stable name of the error; docs/reference/api.md lists them.
    #[schema(example = "invalid_input")]
    pub code: String,
    /// Description for people. May change.
    pub detail: String,
    /// All violations of the request, at most 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<Vec<Violation>>,
    /// The execution that the error is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status(), Json(self.problem())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self.status() {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::TooMuch(_)
            | StoreError::Unavailable(_)
            | StoreError::Unreachable(_)
            | StoreError::TimedOut(_)
            | StoreError::Closed => {
                tracing::warn!(error = %error, "request failed: the database is unavailable");
                Self::Unavailable
            }
            StoreError::Rejected(_) => {
                tracing::warn!(error = %error, "request failed: the database refused its values");
                Self::Refused
            }
            StoreError::NotFound(what) => Self::NotFound(what),
            StoreError::Conflict(_)
            | StoreError::LeaseLost
            | StoreError::LeaseStale
            | StoreError::Corrupt(_)
            | StoreError::Misconfigured(_) => {
                tracing::error!(error = %error, "request failed");
                Self::Internal
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Read from the source, so that a variant without a row cannot be missed here.
    #[test]
    fn error_codes_match_the_reference_table() {
        let source = include_str!("error.rs");
        let body = source.split("pub(crate) fn code").nth(1).and_then(|rest| rest.split("fn detail").next()).unwrap();
        let codes: BTreeSet<&str> = body.split("=> \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let guide = include_str!("../../../docs/reference/api.md");
        let table = guide.split("## Errors").nth(1).and_then(|rest| rest.split("## Events").next()).unwrap();
        let rows = table.lines().filter_map(|line| line.split(" | `").nth(1)?.split('`').next());
        assert_eq!(rows.collect::<BTreeSet<_>>(), codes);
        assert!(codes.len() > 20);
    }
}
