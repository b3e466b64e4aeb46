//! Errors of the API: problem+json (RFC 9457) with a stable `code`. This file has those that any route can answer; an
//! area keeps its own beside its routes, as an [`AreaError`]. Causes are logged where an error is made, once, and never
//! returned. docs/reference/api.md lists the codes; a test compares both.

use std::sync::Arc;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use longhaul_domain::ExecutionId;
use longhaul_store::{StoreError, tenants::api_keys::Scope};

pub(crate) use crate::problem::{Problem, Violation};

/// Maximum number of violations in a response.
pub(crate) const MAX_VIOLATIONS: usize = 20;
pub(crate) type ApiResult<T> = Result<T, ApiError>;

/// An error of one area. Its text is the detail of the problem.
pub(crate) trait AreaError: std::error::Error + Send + Sync + 'static {
    /// The stable code, which is part of the API.
    fn code(&self) -> &'static str;

    fn status(&self) -> StatusCode;

    fn violations(&self) -> Vec<Violation> {
        Vec::new()
    }

    /// The other execution that caused the conflict.
    fn execution_id(&self) -> Option<ExecutionId> {
        None
    }
}

/// An error that a caller sees.
#[derive(Debug, Clone, thiserror::Error, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum ApiError {
    #[error("send an API key: `Authorization: Bearer lh_…`")]
    Unauthenticated,
    #[error("the API key is unknown, revoked or expired")]
    InvalidApiKey,
    #[error("the API key lacks the scope `{0}`")]
    MissingScope(Scope),
    #[error("a page of another site sent this request; send it from the page itself")]
    CrossSite,
    #[error("{0} not found")]
    NotFound(&'static str),
    #[error("there is nothing at this path")]
    NoSuchRoute,
    #[error("this path has no such method")]
    MethodNotAllowed,
    #[error("send `Content-Type: application/json`")]
    UnsupportedMediaType,
    #[error("the body is larger than {limit_bytes} bytes")]
    PayloadTooLarge { limit_bytes: usize },
    #[error("the body did not arrive in time")]
    RequestTimeout,
    #[error("the body is not JSON: {0}")]
    MalformedJson(String),
    #[error("the request is invalid; see `errors`")]
    InvalidRequest(Vec<Violation>),
    #[error("{path} contains the character U+0000, which cannot be stored")]
    InputContainsNul { path: String },
    #[error("the database refused a value of the request")]
    RefusedValues,
    #[error("the hash is not the current one; look again before you decide")]
    StaleHash,
    #[error("too many requests of this kind are under way; try again")]
    Busy,
    #[error("this server follows as many event streams as it may")]
    TooManyStreams,
    #[error("the service cannot reach its database; try again")]
    Unavailable,
    #[error("something went wrong on our side; the request id helps to find it")]
    #[strum(serialize = "internal_error")]
    Internal,
    #[error("{0}")]
    Area(Arc<dyn AreaError>),
}

impl ApiError {
    /// Shorthand for one violation.
    pub(crate) fn invalid(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::InvalidRequest(vec![Violation::new(path, message)])
    }

    /// The error as one of the area `E`.
    pub(crate) fn area<E: AreaError>(&self) -> Option<&E> {
        let Self::Area(error) = self else { return None };
        let error: &(dyn std::error::Error + 'static) = &**error;
        error.downcast_ref()
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Unauthenticated | Self::InvalidApiKey => StatusCode::UNAUTHORIZED,
            Self::MissingScope(_) | Self::CrossSite => StatusCode::FORBIDDEN,
            Self::NotFound(_) | Self::NoSuchRoute => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::PayloadTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::MalformedJson(_) => StatusCode::BAD_REQUEST,
            Self::InvalidRequest(_) | Self::InputContainsNul { .. } | Self::RefusedValues => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Self::StaleHash => StatusCode::CONFLICT,
            Self::Busy | Self::TooManyStreams | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Area(error) => error.status(),
        }
    }

    /// The problem body, for a whole response or for one item of a batch.
    pub(crate) fn problem(&self) -> Problem {
        let status = self.status();
        let (code, mut errors, execution_id) = if let Self::Area(error) = self {
            (error.code(), error.violations(), error.execution_id())
        } else {
            (self.into(), self.violations(), None)
        };
        errors.truncate(MAX_VIOLATIONS);
        Problem {
            r#type: format!("urn:longhaul:error:{code}"),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            code: code.to_owned(),
            detail: self.to_string(),
            errors: (!errors.is_empty()).then_some(errors),
            execution_id: execution_id.map(|id| id.to_string()),
        }
    }

    /// Violations of an error of any route.
    fn violations(&self) -> Vec<Violation> {
        match self {
            Self::InvalidRequest(all) => all.clone(),
            Self::InputContainsNul { path } => vec![Violation::new(path.clone(), "contains the character U+0000")],
            Self::Unauthenticated
            | Self::InvalidApiKey
            | Self::MissingScope(_)
            | Self::CrossSite
            | Self::NotFound(_)
            | Self::NoSuchRoute
            | Self::MethodNotAllowed
            | Self::UnsupportedMediaType
            | Self::PayloadTooLarge { .. }
            | Self::RequestTimeout
            | Self::MalformedJson(_)
            | Self::RefusedValues
            | Self::StaleHash
            | Self::Busy
            | Self::TooManyStreams
            | Self::Unavailable
            | Self::Internal
            | Self::Area(_) => Vec::new(),
        }
    }
}

impl<E: AreaError> From<E> for ApiError {
    fn from(error: E) -> Self {
        Self::Area(Arc::new(error))
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
                Self::RefusedValues
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
