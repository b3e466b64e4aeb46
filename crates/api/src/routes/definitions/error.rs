//! Errors of puts of definitions and agents.

use std::net::IpAddr;

use axum::http::StatusCode;
use strum::{IntoStaticStr, VariantNames};

use crate::error::{AreaError, Violation};

#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum DefinitionError {
    #[error("the key `{0}` is built in")]
    KeyReserved(String),
    #[error(
        "the tool server `{server}` is started by a command, which this agent may not (setting tools.mcp.stdio); give \
         it a `url`"
    )]
    CommandNotAllowed { server: String },
    #[error(
        "the tool server `{server}` is to be sent the variable `{name}` of the workers, which this agent may not \
         (setting tools.mcp.secret_variables)"
    )]
    VariableNotAllowed { server: String, name: String },
    #[error(
        "the tool server `{server}` is at {address}, in a private network, which this agent may not reach (setting \
         tools.mcp.private_addresses)"
    )]
    AddressNotAllowed { server: String, address: IpAddr },
}

impl AreaError for DefinitionError {
    fn code(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::KeyReserved(_) => StatusCode::CONFLICT,
            Self::CommandNotAllowed { .. } | Self::VariableNotAllowed { .. } | Self::AddressNotAllowed { .. } => {
                StatusCode::FORBIDDEN
            }
        }
    }

    fn violations(&self) -> Vec<Violation> {
        let (path, message) = match self {
            Self::KeyReserved(_) => return Vec::new(),
            Self::CommandNotAllowed { server } => {
                (format!("/mcp_servers/{server}/command"), "is not allowed for an agent of this owner")
            }
            Self::VariableNotAllowed { server, .. } => (
                format!("/mcp_servers/{server}"),
                "refers to a variable that is not allowed for an agent of this owner",
            ),
            Self::AddressNotAllowed { server, .. } => (
                format!("/mcp_servers/{server}/url"),
                "is in a private network, which is not allowed for an agent of this owner",
            ),
        };
        vec![Violation::new(path, message)]
    }
}
