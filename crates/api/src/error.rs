//! Every error a caller can see: problem+json (RFC 9457) with a stable `code`. Causes are logged here, once, and
//! never returned. docs/reference/api.md lists the codes; a test compares both.

use std::net::IpAddr;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use longhaul_shared::domain::{ExecutionId, ExecutionStatus};
use longhaul_store::{StoreError, quarantine::Refused, tenants::api_keys::Scope};

pub(crate) use crate::problem::{Problem, Violation};
use crate::routes::{keys::KeyError, projects::ProjectError, schedules::ScheduleError, webhooks::WebhookError};

/// Maximum number of violations in a response.
pub(crate) const MAX_VIOLATIONS: usize = 20;
pub(crate) type ApiResult<T> = Result<T, ApiError>;

#[derive(Debug, Clone)]
pub(crate) enum ApiError {
    Unauthenticated,
    InvalidApiKey,
    MissingScope(Scope),
    NotFound(&'static str),
    NoSuchRoute,
    MethodNotAllowed,
    UnsupportedMediaType,
    UnsupportedFileType(String),
    FileQuotaExceeded,
    FileStoreUnavailable,
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
    SandboxNotConfigured { tool: String },
    BrowserNotConfigured { tool: String },
    AgentNotAllowed(String),
    WebSearchNotConfigured(String),
    KeyReused(Option<ExecutionId>),
    ExecutionIsTerminal(ExecutionStatus),
    ExecutionNotFailed(ExecutionStatus),
    ExecutionNotEnded(ExecutionId),
    ExecutionErased,
    SessionBusy(ExecutionId),
    KeyInUse,
    SessionFull,
    TooManyMessages { max: i64 },
    TooManySessions { max: u32 },
    SessionBudgetSpent,
    Schedule(ScheduleError),
    Project(ProjectError),
    Webhook(WebhookError),
    Key(KeyError),
    NotReleasable(Refused),
    SelfApproval,
    CrossSite,
    InvalidSignature,
    InvalidButton,
    StaleHash,
    AlreadyDecided(String),
    ToolResultsRefused(Vec<Violation>),
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
            Self::Unauthenticated | Self::InvalidApiKey | Self::InvalidSignature => StatusCode::UNAUTHORIZED,
            Self::MissingScope(_)
            | Self::SelfApproval
            | Self::CrossSite
            | Self::InvalidButton
            | Self::CommandNotAllowed { .. }
            | Self::VariableNotAllowed { .. }
            | Self::AddressNotAllowed { .. }
            | Self::AgentNotAllowed(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) | Self::NoSuchRoute => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::KeyReused(_)
            | Self::ExecutionIsTerminal(_)
            | Self::ExecutionNotFailed(_)
            | Self::ExecutionNotEnded(_)
            | Self::ExecutionErased
            | Self::SessionBusy(_)
            | Self::KeyInUse
            | Self::SessionFull
            | Self::NotReleasable(_)
            | Self::NoBudget
            | Self::FileQuotaExceeded
            | Self::StaleHash
            | Self::AlreadyDecided(_)
            | Self::ToolResultsRefused(_)
            | Self::IndexConflict(_)
            | Self::TooManyLimits { .. }
            | Self::SessionBudgetSpent
            | Self::Schedule(_)
            | Self::Webhook(_)
            | Self::Key(_)
            | Self::KeyReserved(_) => StatusCode::CONFLICT,
            Self::TooManyMessages { .. } | Self::TooManySessions { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Project(error) => error.status(),
            Self::PayloadTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType | Self::UnsupportedFileType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::MalformedJson(_) => StatusCode::BAD_REQUEST,
            Self::InvalidRequest(_)
            | Self::InvalidInput(_)
            | Self::InputContainsNul { .. }
            | Self::UnknownDefinition(_)
            | Self::UnknownAgent(_)
            | Self::UnknownVersion { .. }
            | Self::VersionRemoved { .. }
            | Self::PriceUnknown { .. }
            | Self::SandboxNotConfigured { .. }
            | Self::BrowserNotConfigured { .. }
            | Self::InvalidRetrieval(_)
            | Self::WebSearchNotConfigured(_)
            | Self::Refused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooManyStreams
            | Self::Busy
            | Self::Unavailable
            | Self::RetrievalNotConfigured(_)
            | Self::RetrievalUnavailable(_)
            | Self::FileStoreUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The stable error code; part of the API.
    #[expect(clippy::too_many_lines, reason = "one line for each error")]
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Unauthenticated => "unauthenticated",
            Self::InvalidApiKey => "invalid_api_key",
            Self::MissingScope(_) => "missing_scope",
            Self::NotFound(_) => "not_found",
            Self::NoSuchRoute => "no_such_route",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::UnsupportedFileType(_) => "unsupported_file_type",
            Self::FileQuotaExceeded => "file_quota_exceeded",
            Self::FileStoreUnavailable => "file_store_unavailable",
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
            Self::SandboxNotConfigured { .. } => "sandbox_not_configured",
            Self::BrowserNotConfigured { .. } => "browser_not_configured",
            Self::AgentNotAllowed(_) => "agent_not_allowed",
            Self::WebSearchNotConfigured(_) => "web_search_not_configured",
            Self::KeyReused(_) => "idempotency_key_reused",
            Self::KeyInUse => "idempotency_key_in_use",
            Self::ExecutionIsTerminal(_) => "execution_is_terminal",
            Self::ExecutionNotEnded(_) => "execution_not_ended",
            Self::ExecutionErased => "execution_erased",
            Self::SessionBusy(_) => "session_busy",
            Self::SessionFull => "session_full",
            Self::TooManyMessages { .. } => "too_many_messages",
            Self::TooManySessions { .. } => "too_many_sessions",
            Self::SessionBudgetSpent => "session_budget_spent",
            Self::Schedule(error) => error.code(),
            Self::Project(error) => error.code(),
            Self::Webhook(error) => error.code(),
            Self::Key(error) => error.code(),
            Self::ExecutionNotFailed(_) => "execution_not_failed",
            Self::NotReleasable(_) => "not_releasable",
            Self::SelfApproval => "self_approval",
            Self::CrossSite => "cross_site",
            Self::InvalidSignature => "invalid_signature",
            Self::InvalidButton => "invalid_button",
            Self::StaleHash => "stale_hash",
            Self::AlreadyDecided(_) => "already_decided",
            Self::ToolResultsRefused(_) => "tool_results_refused",
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
    pub(crate) fn detail(&self) -> String {
        match self {
            Self::Unauthenticated => "send an API key: `Authorization: Bearer lh_…`".into(),
            Self::InvalidApiKey => "the API key is unknown, revoked or expired".into(),
            Self::MissingScope(scope) => format!("the API key lacks the scope `{scope}`"),
            Self::NotFound(what) => format!("{what} not found"),
            Self::NoSuchRoute => "there is nothing at this path".into(),
            Self::MethodNotAllowed => "this path has no such method".into(),
            Self::UnsupportedMediaType => "send `Content-Type: application/json`".into(),
            Self::UnsupportedFileType(why) => why.clone(),
            Self::FileQuotaExceeded => "the quota of files is used up; delete some".into(),
            Self::FileStoreUnavailable => "the store of files does not answer; try again".into(),
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
            Self::SandboxNotConfigured { tool } => {
                format!("the tool `{tool}` needs a sandbox, and none is configured (setting sandbox.url)")
            }
            Self::BrowserNotConfigured { tool } => {
                format!("the tool `{tool}` needs a browser, and none is configured (setting browser.program)")
            }
            Self::AgentNotAllowed(key) => format!("policy does not let you execute the agent `{key}`"),
            Self::WebSearchNotConfigured(agent) => format!(
                "the agent `{agent}` has the tool `web_search`, and no search service is configured (setting \
                 tools.web_search.backend)"
            ),
            Self::KeyReused(_) => "the Idempotency-Key was used for a different request".into(),
            Self::ExecutionNotEnded(id) => format!("execution {id} has not ended; cancel it first"),
            Self::ExecutionErased => "the texts of the execution were erased".into(),
            Self::SessionFull => "the session has as many messages or bytes as it may; begin another".into(),
            Self::KeyInUse => "another request under the same Idempotency-Key is under way; try again".into(),
            Self::SessionBusy(id) => format!("execution {id} answers another message of the session"),
            Self::TooManyMessages { max } => format!("{max} messages of the session wait for their turn already"),
            Self::SessionBudgetSpent => "the session's budget is spent; raise it, or begin another session".into(),
            Self::Schedule(error) => error.to_string(),
            Self::Project(error) => error.to_string(),
            Self::Webhook(error) => error.to_string(),
            Self::Key(error) => error.to_string(),
            Self::TooManySessions { max } => format!("{max} sessions with this agent run already, as many as may"),
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
            Self::CrossSite => "a page of another site sent this request; send it from the page itself".into(),
            Self::InvalidSignature => {
                "the channel is gone, or its signing secret did not sign the request in the last five minutes".into()
            }
            Self::InvalidButton => "the button is not one of ours, or was changed".into(),
            Self::StaleHash => "the hash is not the current one; look again before you decide".into(),
            Self::ToolResultsRefused(_) => "nothing was stored, as some results are refused; see `errors`".into(),
            Self::AlreadyDecided(how) => format!("there is nothing to decide any more: {how}"),
            Self::InvalidRetrieval(why)
            | Self::IndexConflict(why)
            | Self::RetrievalNotConfigured(why)
            | Self::RetrievalUnavailable(why) => why.clone(),
            Self::TooManyStreams => "this server follows as many event streams as it may".into(),
            Self::Refused => "the database refused a value of the request".into(),
            Self::Busy => "too many requests of this kind are under way; try again".into(),
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
        let (Self::KeyReused(Some(id)) | Self::NotReleasable(Refused::Before(id) | Refused::CanaryRuns(id))) = self
        else {
            return None;
        };
        Some(*id)
    }

    #[expect(clippy::too_many_lines, reason = "one line for each error")]
    fn violations(&self) -> Vec<Violation> {
        match self {
            Self::InvalidRequest(all) | Self::InvalidInput(all) | Self::ToolResultsRefused(all) => {
                all.iter().take(MAX_VIOLATIONS).cloned().collect()
            }
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
            Self::SandboxNotConfigured { .. } => vec![Violation::new("/tools", "needs a sandbox")],
            Self::BrowserNotConfigured { .. } => vec![Violation::new("/tools", "needs a browser")],
            Self::KeyReused(_)
            | Self::NotReleasable(_)
            | Self::Unauthenticated
            | Self::InvalidApiKey
            | Self::MissingScope(_)
            | Self::NotFound(_)
            | Self::NoSuchRoute
            | Self::MethodNotAllowed
            | Self::UnsupportedMediaType
            | Self::UnsupportedFileType(_)
            | Self::FileQuotaExceeded
            | Self::FileStoreUnavailable
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
            | Self::WebSearchNotConfigured(_)
            | Self::ExecutionIsTerminal(_)
            | Self::ExecutionNotFailed(_)
            | Self::ExecutionNotEnded(_)
            | Self::ExecutionErased
            | Self::SessionBusy(_)
            | Self::KeyInUse
            | Self::SessionFull
            | Self::TooManyMessages { .. }
            | Self::TooManySessions { .. }
            | Self::SessionBudgetSpent
            | Self::Schedule(_)
            | Self::Project(_)
            | Self::Webhook(_)
            | Self::Key(_)
            | Self::SelfApproval
            | Self::CrossSite
            | Self::InvalidSignature
            | Self::InvalidButton
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

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status(), Json(self.problem())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self.status() {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
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
        let of_source = |source: &'static str| {
            let body = source.split("fn code").nth(1).and_then(|rest| rest.split("fn detail").next()).unwrap();
            body.split("=> \"").skip(1).filter_map(|rest| rest.split('"').next())
        };
        let sources = [
            include_str!("error.rs"),
            include_str!("routes/keys/error.rs"),
            include_str!("routes/projects/error.rs"),
            include_str!("routes/schedules/error.rs"),
            include_str!("routes/webhooks/error.rs"),
        ];
        let codes: BTreeSet<&str> = sources.into_iter().flat_map(of_source).collect();
        let guide = include_str!("../../../docs/reference/api.md");
        let table = guide.split("## Errors").nth(1).and_then(|rest| rest.split("## Events").next()).unwrap();
        let rows = table.lines().filter_map(|line| line.split(" | `").nth(1)?.split('`').next());
        assert_eq!(rows.collect::<BTreeSet<_>>(), codes);
        assert!(codes.len() > 20);
    }
}
