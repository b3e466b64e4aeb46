//! Errors of definitions and agents that a request names to run them.

use axum::http::StatusCode;
use strum::{IntoStaticStr, VariantNames};

use crate::error::{AreaError, Violation};

#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum CatalogError {
    #[error("there is no definition `{0}`")]
    UnknownDefinition(String),
    #[error("there is no agent `{0}`")]
    UnknownAgent(String),
    #[error("`{of}` has no version {version}")]
    UnknownVersion { of: String, version: i32 },
    #[error("version {version} of `{of}` was removed")]
    VersionRemoved { of: String, version: i32 },
    #[error("policy does not let you execute the agent `{0}`")]
    AgentNotAllowed(String),
    #[error("the tool `{tool}` needs a sandbox, and none is configured (setting sandbox.url)")]
    SandboxNotConfigured { tool: String },
    #[error("the tool `{tool}` needs a browser, and none is configured (setting browser.program)")]
    BrowserNotConfigured { tool: String },
    #[error(
        "the agent `{0}` has the tool `web_search`, and no search service is configured (setting \
         tools.web_search.backend)"
    )]
    WebSearchNotConfigured(String),
}

impl AreaError for CatalogError {
    fn code(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::AgentNotAllowed(_) => StatusCode::FORBIDDEN,
            Self::UnknownDefinition(_)
            | Self::UnknownAgent(_)
            | Self::UnknownVersion { .. }
            | Self::VersionRemoved { .. }
            | Self::SandboxNotConfigured { .. }
            | Self::BrowserNotConfigured { .. }
            | Self::WebSearchNotConfigured(_) => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }

    fn violations(&self) -> Vec<Violation> {
        match self {
            Self::SandboxNotConfigured { .. } => vec![Violation::new("/tools", "needs a sandbox")],
            Self::BrowserNotConfigured { .. } => vec![Violation::new("/tools", "needs a browser")],
            Self::UnknownDefinition(_)
            | Self::UnknownAgent(_)
            | Self::UnknownVersion { .. }
            | Self::VersionRemoved { .. }
            | Self::AgentNotAllowed(_)
            | Self::WebSearchNotConfigured(_) => Vec::new(),
        }
    }
}
