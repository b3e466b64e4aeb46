//! The record of an execution in the contract: eleven keys, always all present, in this order; and the body of an
//! error.

use chrono::{DateTime, SecondsFormat, Utc};
use longhaul_domain::{ExecutionStatus, RuntimeProfile, noted::CallList};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, value::RawValue};

use super::{CallItem, ContractStatus, ExecCode, status::CANCELLED};

/// Formats a time as in the contract: six fractional digits, `+00:00`.
#[must_use]
pub fn timestamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, false)
}

/// Calls of a run, by list.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[schemars(rename = "AgentExecutionCalls")]
pub struct Calls {
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub tool_calls: Vec<Box<RawValue>>,
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub embedding_calls: Vec<Box<RawValue>>,
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub retrieval_calls: Vec<Box<RawValue>>,
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub model_calls: Vec<Box<RawValue>>,
}

impl Calls {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { tool_calls, embedding_calls, retrieval_calls, model_calls } = self;
        [tool_calls, embedding_calls, retrieval_calls, model_calls].into_iter().all(Vec::is_empty)
    }
}

impl FromIterator<CallItem> for Calls {
    fn from_iter<I: IntoIterator<Item = CallItem>>(items: I) -> Self {
        let mut calls = Self::default();
        for CallItem { list, item } in items {
            let list = match list {
                CallList::ToolCalls => &mut calls.tool_calls,
                CallList::EmbeddingCalls => &mut calls.embedding_calls,
                CallList::RetrievalCalls => &mut calls.retrieval_calls,
                CallList::ModelCalls => &mut calls.model_calls,
            };
            list.push(item);
        }
        calls
    }
}

/// Result of a successful run.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "AgentExecutionResult")]
pub struct ResultView {
    pub output_text: String,
    #[serde(flatten)]
    pub calls: Calls,
}

/// Error of an unsuccessful run.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "AgentExecutionFailure")]
pub struct RecordedError {
    /// One of the nine codes, or `cancelled`.
    pub code: String,
    /// Message for people.
    pub message: String,
    /// Facts and calls. Omitted if empty.
    #[serde(skip_serializing_if = "ErrorDetails::is_empty")]
    pub details: ErrorDetails,
}

/// Facts and calls of an unsuccessful run.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[schemars(rename = "AgentExecutionDetails")]
pub struct ErrorDetails {
    /// Facts of the failure.
    #[serde(flatten)]
    pub facts: Map<String, Value>,
    /// Calls made before the failure.
    #[serde(skip_serializing_if = "Calls::is_empty")]
    pub calls: Calls,
}

impl ErrorDetails {
    fn is_empty(&self) -> bool {
        self.facts.is_empty() && self.calls.is_empty()
    }
}

/// The record of an execution.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "AgentExecution")]
pub struct ExecutionView {
    pub id: String,
    #[schemars(with = "ContractStatus")]
    pub status: &'static str,
    /// Agent, as requested.
    pub agent_ref: String,
    /// Version of the agent; `v1` if unknown.
    pub agent_version: String,
    /// Managed model id.
    pub model_ref: Option<String>,
    #[schemars(with = "RuntimeProfile")]
    pub runtime_profile: &'static str,
    /// Time of acceptance.
    pub created_at: String,
    /// Time of the first claim.
    pub started_at: Option<String>,
    pub finished_at: Option<String>,
    /// Set if the execution succeeded.
    pub result: Option<ResultView>,
    /// Set if the execution failed.
    pub error: Option<RecordedError>,
}

/// The stored data from which a record is made.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub id: String,
    /// Stored status.
    pub status: ExecutionStatus,
    /// Agent, as requested.
    pub agent_ref: String,
    /// Version of the agent, as the record shows it.
    pub agent_version: String,
    /// Managed model id, if a call or the request names one.
    pub model_ref: Option<String>,
    pub runtime_profile: RuntimeProfile,
    /// Time of acceptance.
    pub created_at: DateTime<Utc>,
    /// Time of the first claim.
    pub started_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
    /// Answer, if finished.
    pub output_text: Option<String>,
    /// Stored failure code, if failed.
    pub failure_code: Option<String>,
    /// Message for people, if failed.
    pub failure_summary: Option<String>,
    /// Facts, if failed.
    pub failure_detail: Map<String, Value>,
    pub calls: Calls,
    /// True if the agent has tools, used or not. Not part of the record.
    pub has_tools: bool,
}

impl Recorded {
    /// Returns code, message and facts of a failure in the terms of the contract. A failure outside the nine codes
    /// gets the default message of the code it maps to, with its own code among the facts.
    #[must_use]
    pub fn failure(&self) -> Option<(String, String, Map<String, Value>)> {
        let stored = self.failure_code.as_deref()?;
        if stored == CANCELLED {
            return Some((CANCELLED.to_owned(), "Execution was cancelled".to_owned(), Map::new()));
        }
        let code = ExecCode::of_failure(stored);
        if ExecCode::parse(stored).is_some() {
            let message = self.failure_summary.clone().unwrap_or_else(|| code.message().to_owned());
            return Some((stored.to_owned(), message, self.failure_detail.clone()));
        }
        let facts = Map::from_iter([("failure_code".to_owned(), Value::from(stored))]);
        Some((code.as_str().to_owned(), code.message().to_owned(), facts))
    }

    /// Builds the record.
    #[must_use]
    pub fn view(self) -> ExecutionView {
        let status = ContractStatus::of(self.status, self.failure_code.as_deref());
        let error = self.failure();
        let (result, error) = match (self.status, error) {
            (ExecutionStatus::Finished, _) => {
                (Some(ResultView { output_text: self.output_text.unwrap_or_default(), calls: self.calls }), None)
            }
            (ExecutionStatus::Failed, Some((code, message, facts))) => {
                let details = ErrorDetails { facts, calls: self.calls };
                (None, Some(RecordedError { code, message, details }))
            }
            (ExecutionStatus::Failed, None) | (ExecutionStatus::Pending | ExecutionStatus::InProgress, _) => {
                (None, None)
            }
        };
        ExecutionView {
            id: self.id,
            status: status.as_str(),
            agent_ref: self.agent_ref,
            agent_version: self.agent_version,
            model_ref: self.model_ref,
            runtime_profile: self.runtime_profile.as_str(),
            created_at: timestamp(self.created_at),
            started_at: self.started_at.map(timestamp),
            finished_at: self.finished_at.map(timestamp),
            result,
            error,
        }
    }
}

/// Body of every error response: `{"error", "message"[, "details"]}`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "AgentExecutionError")]
pub struct ErrorBody {
    /// Stable code.
    pub error: String,
    /// Message for people.
    pub message: String,
    /// Facts. Absent if the request was refused before anything was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Map<String, Value>>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn facts_of_an_error_keep_long_numbers() {
        let facts = serde_json::from_str(r#"{"limit":12345678901234567890123,"share":1.10}"#).unwrap();
        let details = ErrorDetails { facts, ..ErrorDetails::default() };
        let written = serde_json::to_string(&details).unwrap();
        assert_eq!(written, r#"{"limit":12345678901234567890123,"share":1.10}"#);
    }

    fn recorded(status: ExecutionStatus) -> Recorded {
        let at = DateTime::from_timestamp(1_767_225_600, 0).unwrap();
        Recorded {
            id: "execution-uuid".into(),
            status,
            agent_ref: "agent.alpha".into(),
            agent_version: "v1".into(),
            model_ref: Some("model.default".into()),
            runtime_profile: RuntimeProfile::Offline,
            created_at: at,
            started_at: Some(at),
            finished_at: Some(at),
            output_text: Some("hi".into()),
            failure_code: None,
            failure_summary: None,
            failure_detail: Map::new(),
            calls: Calls::default(),
            has_tools: false,
        }
    }

    #[test]
    fn finished_record_has_eleven_ordered_keys() {
        let text = serde_json::to_string(&recorded(ExecutionStatus::Finished).view()).unwrap();
        let expected = concat!(
            r#"{"id":"execution-uuid","status":"succeeded","agent_ref":"agent.alpha","agent_version":"v1","#,
            r#""model_ref":"model.default","runtime_profile":"offline","#,
            r#""created_at":"2026-01-01T00:00:00.000000+00:00","#,
            r#""started_at":"2026-01-01T00:00:00.000000+00:00","finished_at":"2026-01-01T00:00:00.000000+00:00","#,
            r#""result":{"output_text":"hi","tool_calls":[],"embedding_calls":[],"retrieval_calls":[],"#,
            r#""model_calls":[]},"error":null}"#,
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn failed_record_keeps_calls_and_omits_empty_details() {
        let mut of = Recorded { failure_code: Some("EXEC_TIMEOUT".into()), ..recorded(ExecutionStatus::Failed) };
        let view = serde_json::to_value(of.clone().view()).unwrap();
        assert_eq!(view["error"], json!({"code": "EXEC_TIMEOUT", "message": "Execution timed out"}));
        of.failure_detail = Map::from_iter([("provider_slug".to_owned(), json!("p"))]);
        of.calls.model_calls.push(RawValue::from_string("{\"b\":1}".into()).unwrap());
        let view = serde_json::to_value(of.view()).unwrap();
        let calls = json!({"tool_calls": [], "embedding_calls": [], "retrieval_calls": [], "model_calls": [{"b": 1}]});
        assert_eq!(view["error"]["details"], json!({"provider_slug": "p", "calls": calls}));
        assert_eq!((&view["status"], &view["result"]), (&json!("failed"), &Value::Null));
    }

    #[test]
    fn contract_states_derive_from_the_stored_status() {
        use ExecutionStatus::{Failed, Finished, InProgress, Pending};
        let table = [
            (Pending, None, "queued"),
            (InProgress, None, "running"),
            (Finished, None, "succeeded"),
            (Failed, Some("EXEC_POLICY_DENIED"), "blocked"),
            (Failed, Some("EXEC_INTERNAL_ERROR"), "failed"),
            (Failed, Some("crash_loop"), "failed"),
            (Failed, Some("cancelled"), "cancelled"),
        ];
        for (status, code, word) in table {
            assert_eq!(ContractStatus::of(status, code).as_str(), word);
        }
    }
}
