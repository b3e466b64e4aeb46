//! The nine codes an execution of the contract fails with, each with its HTTP status, stored state and message.

use longhaul_sdk::{Failure, FailureClass, FailureCode};
use serde_json::{Map, Value};

use super::ContractStatus;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $http:literal, $class:ident, $message:literal;)*) => {
        /// Why an execution of the contract did not succeed. The set is closed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ExecCode {
            $($(#[$doc])* $name,)*
        }

        impl ExecCode {
            /// Every code, in the order of the contract.
            pub const ALL: [Self; 9] = [$(Self::$name),*];

            /// The text on the wire and in `failure_code`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// The status of an answer that tells it.
            #[must_use]
            pub fn http_status(self) -> u16 {
                match self { $(Self::$name => $http),* }
            }

            /// The class it is stored with. None of them is retried unless the agent says so.
            #[must_use]
            pub fn class(self) -> FailureClass {
                match self { $(Self::$name => FailureClass::$class),* }
            }

            /// What it says where nobody knows anything better.
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
    RuntimeProfileBlocked = "EXEC_RUNTIME_PROFILE_BLOCKED", 403, Permanent, "Agent requires internet access but the runtime profile is not online";
    /// There is no such agent.
    AgentNotFound = "EXEC_AGENT_NOT_FOUND", 404, Permanent, "Agent not found";
    /// The agent has no such version, or no longer.
    AgentVersionNotFound = "EXEC_AGENT_VERSION_NOT_FOUND", 404, Permanent, "Agent version not found";
    /// The model is none of the binding's, or the agent's default model is unknown.
    ModelNotAllowed = "EXEC_MODEL_NOT_ALLOWED", 403, Permanent, "Model is not allowed";
    /// A tool of the agent cannot be used: unknown, unsupported, not for this profile, without its capability; or the model
    /// called one that the agent does not have.
    ToolNotAllowed = "EXEC_TOOL_NOT_ALLOWED", 403, Permanent, "Tool is not allowed";
    /// A dependency did not answer in time.
    Timeout = "EXEC_TIMEOUT", 504, Transient, "Execution timed out";
    /// A dependency could not be reached, or said that it is down.
    UpstreamUnavailable = "EXEC_UPSTREAM_UNAVAILABLE", 503, Transient, "Upstream LLM/tool dependency unavailable";
    /// Everything else.
    InternalError = "EXEC_INTERNAL_ERROR", 500, Permanent, "Execution failed internally";
}

impl ExecCode {
    /// Reads a stored code back; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == text)
    }

    /// The state of an execution that failed with it: what policy refuses is `blocked`.
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

    /// The code under which a caller of the contract sees a failure that is none of the nine.
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

    /// The same as a stored failure code.
    #[must_use]
    pub fn failure_code(self) -> FailureCode {
        // Cannot fail: the texts are letters and underscores.
        FailureCode::custom(self.as_str()).unwrap_or(FailureCode::INTERNAL_ERROR)
    }
}

/// A failure of the contract: its code, what it says, and `details`, an object.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecFailure {
    /// One of the nine.
    pub code: ExecCode,
    /// For people; never holds a secret, a prompt or a completion.
    pub message: String,
    /// Facts for machines; may be empty.
    pub details: Map<String, Value>,
}

impl ExecFailure {
    /// With the code's own message and no details.
    #[must_use]
    pub fn new(code: ExecCode) -> Self {
        Self::with_message(code, code.message())
    }

    /// With a message that says more.
    #[must_use]
    pub fn with_message(code: ExecCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Map::new() }
    }

    /// With one more fact.
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
    fn blocked_is_what_answers_403() {
        for code in ExecCode::ALL {
            assert_eq!(code.http_status() == 403, code.state() == ContractStatus::Blocked, "{}", code.as_str());
        }
    }

    #[test]
    fn other_failures_are_seen_under_one_of_the_nine() {
        for code in ExecCode::ALL {
            assert_eq!(ExecCode::of_failure(code.as_str()), code);
            assert_eq!(code.failure_code().as_str(), code.as_str());
        }
        assert_eq!(ExecCode::of_failure("deadline_exceeded"), ExecCode::Timeout);
        assert_eq!(ExecCode::of_failure("provider_down"), ExecCode::UpstreamUnavailable);
        assert_eq!(ExecCode::of_failure("crash_loop"), ExecCode::InternalError);
    }
}
