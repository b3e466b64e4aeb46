//! The nine failure codes of the contract, each with HTTP status, class and message.

use longhaul_sdk::{Failure, FailureClass, FailureCode};
use serde_json::{Map, Value};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $http:literal, $class:ident, $message:literal;)*) => {
        /// Failure code of a contract execution. The set is closed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ExecCode {
            $($(#[$doc])* $name,)*
        }

        impl ExecCode {
            /// All codes, in the order of the contract.
            pub const ALL: [Self; 9] = [$(Self::$name),*];

            /// Text on the wire and in `failure_code`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// HTTP status of a response with this code.
            #[must_use]
            pub fn http_status(self) -> u16 {
                match self { $(Self::$name => $http),* }
            }

            /// Stored failure class. No code is retried unless the agent opts in.
            #[must_use]
            pub fn class(self) -> FailureClass {
                match self { $(Self::$name => FailureClass::$class),* }
            }

            /// Default message.
            #[must_use]
            pub fn message(self) -> &'static str {
                match self { $(Self::$name => $message),* }
            }
        }
    };
}

codes! {
    /// The caller may not execute the agent.
    PolicyDenied = "EXEC_POLICY_DENIED", 403, Permanent, "Execution is denied by policy";
    /// The agent needs the internet and the runtime profile is not `online`.
    RuntimeProfileBlocked = "EXEC_RUNTIME_PROFILE_BLOCKED", 403, Permanent,
    "Agent requires internet access but the runtime profile is not online";
    /// No agent has this id.
    AgentNotFound = "EXEC_AGENT_NOT_FOUND", 404, Permanent, "Agent not found";
    /// The agent does not have this version, or no longer has it.
    AgentVersionNotFound = "EXEC_AGENT_VERSION_NOT_FOUND", 404, Permanent, "Agent version not found";
    /// The model is not among the binding's resources, or the agent's default model is unknown.
    ModelNotAllowed = "EXEC_MODEL_NOT_ALLOWED", 403, Permanent, "Model is not allowed";
    /// A tool of the agent is unknown, of an unsupported transport, not allowed in this profile, or lacks its
    /// capability; or the model called a tool that the agent does not have.
    ToolNotAllowed = "EXEC_TOOL_NOT_ALLOWED", 403, Permanent, "Tool is not allowed";
    /// A dependency did not respond in time.
    Timeout = "EXEC_TIMEOUT", 504, Transient, "Execution timed out";
    /// A dependency could not be reached, or reported that it is down.
    UpstreamUnavailable = "EXEC_UPSTREAM_UNAVAILABLE", 503, Transient, "Upstream LLM/tool dependency unavailable";
    /// Any other failure.
    InternalError = "EXEC_INTERNAL_ERROR", 500, Permanent, "Execution failed internally";
}

impl ExecCode {
    /// Parses a stored code; `None` if unknown.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == text)
    }

    /// Maps any stored failure code to the code shown to callers of the contract.
    #[must_use]
    pub fn of_failure(code: &str) -> Self {
        if let Some(own) = Self::parse(code) {
            return own;
        }
        let is = |known: &[FailureCode]| known.iter().any(|known| known.as_str() == code);
        if is(&[FailureCode::DEADLINE_EXCEEDED, FailureCode::MODEL_TIMEOUT]) {
            return Self::Timeout;
        }
        let unavailable = [
            FailureCode::PROVIDER_DOWN,
            FailureCode::MODEL_UNREACHABLE,
            FailureCode::MODEL_QUOTA_EXHAUSTED,
            FailureCode::TOOL_UNREACHABLE,
        ];
        if is(&unavailable) { Self::UpstreamUnavailable } else { Self::InternalError }
    }

    /// Converts the code to a stored failure code.
    #[must_use]
    pub fn failure_code(self) -> FailureCode {
        // Cannot fail: the texts consist of letters and underscores.
        FailureCode::custom(self.as_str()).unwrap_or(FailureCode::INTERNAL_ERROR)
    }
}

/// A failure of the contract: code, message and details.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecFailure {
    pub code: ExecCode,
    /// Message for people; never holds a secret, a prompt or a completion.
    pub message: String,
    /// Facts for machines. May be empty.
    pub details: Map<String, Value>,
}

impl ExecFailure {
    /// Creates a failure with the code's default message and no details.
    #[must_use]
    pub fn new(code: ExecCode) -> Self {
        Self::with_message(code, code.message())
    }

    /// Creates a failure with its own message and no details.
    #[must_use]
    pub fn with_message(code: ExecCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Map::new() }
    }

    /// Adds a fact to the details.
    #[must_use]
    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }
}

impl From<ExecFailure> for Failure {
    fn from(of: ExecFailure) -> Self {
        let failure = Self::new(of.code.class(), of.code.failure_code(), of.message);
        if of.details.is_empty() { failure } else { failure.with_detail(Value::Object(of.details)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ContractStatus;

    #[test]
    fn every_code_has_its_status_and_state() {
        let table: Vec<_> = ExecCode::ALL.map(|code| (code.as_str(), code.http_status(), code.state().as_str())).into();
        let expected = [
            ("EXEC_POLICY_DENIED", 403, "blocked"),
            ("EXEC_RUNTIME_PROFILE_BLOCKED", 403, "blocked"),
            ("EXEC_AGENT_NOT_FOUND", 404, "failed"),
            ("EXEC_AGENT_VERSION_NOT_FOUND", 404, "failed"),
            ("EXEC_MODEL_NOT_ALLOWED", 403, "blocked"),
            ("EXEC_TOOL_NOT_ALLOWED", 403, "blocked"),
            ("EXEC_TIMEOUT", 504, "failed"),
            ("EXEC_UPSTREAM_UNAVAILABLE", 503, "failed"),
            ("EXEC_INTERNAL_ERROR", 500, "failed"),
        ];
        assert_eq!(table, expected);
    }

    #[test]
    fn codes_of_status_403_are_blocked() {
        for code in ExecCode::ALL {
            assert_eq!(code.http_status() == 403, code.state() == ContractStatus::Blocked, "{}", code.as_str());
        }
    }

    #[test]
    fn other_failures_map_to_contract_codes() {
        for code in ExecCode::ALL {
            assert_eq!(ExecCode::of_failure(code.as_str()), code);
            assert_eq!(code.failure_code().as_str(), code.as_str());
        }
        assert_eq!(ExecCode::of_failure("deadline_exceeded"), ExecCode::Timeout);
        assert_eq!(ExecCode::of_failure("provider_down"), ExecCode::UpstreamUnavailable);
        assert_eq!(ExecCode::of_failure("crash_loop"), ExecCode::InternalError);
    }
}
