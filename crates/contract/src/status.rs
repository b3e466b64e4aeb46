//! Status of an execution in the contract.

use longhaul_domain::ExecutionStatus;
use longhaul_domain::named;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use super::ExecCode;

named!(ContractStatus);

/// Status of an execution in the contract.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ContractStatus {
    /// Not claimed by a worker yet.
    Queued,
    /// Claimed at least once; running or waiting.
    Running,
    /// Ended with a result.
    Succeeded,
    /// Ended without a result.
    Failed,
    /// Ended by policy.
    Blocked,
    /// Cancelled by a caller.
    Cancelled,
}

/// Failure code of a cancelled execution.
pub(crate) const CANCELLED: &str = "cancelled";

impl ContractStatus {
    /// Maps a stored status.
    #[must_use]
    pub fn of(status: ExecutionStatus, failure_code: Option<&str>) -> Self {
        match status {
            ExecutionStatus::Pending => Self::Queued,
            ExecutionStatus::InProgress => Self::Running,
            ExecutionStatus::Finished => Self::Succeeded,
            ExecutionStatus::Failed => match failure_code {
                Some(CANCELLED) => Self::Cancelled,
                Some(code) => ExecCode::of_failure(code).state(),
                None => Self::Failed,
            },
        }
    }
}

impl ExecCode {
    /// Contract status of an execution that failed with this code. Policy codes map to `blocked`.
    #[must_use]
    pub fn state(self) -> ContractStatus {
        match self {
            Self::PolicyDenied | Self::RuntimeProfileBlocked | Self::ModelNotAllowed | Self::ToolNotAllowed => {
                ContractStatus::Blocked
            }
            Self::AgentNotFound
            | Self::AgentVersionNotFound
            | Self::Timeout
            | Self::UpstreamUnavailable
            | Self::InternalError => ContractStatus::Failed,
        }
    }
}
