//! The execution as the contract shows it: eleven keys, always all present, in this order; and the body of an error.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::{Map, Value, value::RawValue};

use super::{CallItem, CallList, ExecCode, RuntimeProfile};
use crate::domain::{ExecutionStatus, status::named};

named! {
    /// The six words of the contract.
    ContractStatus {
        /// No worker has had it yet.
        Queued = "queued",
        /// Some worker has it, or had it and it waits.
        Running = "running",
        /// It has a result.
        Succeeded = "succeeded",
        /// It ended without one.
        Failed = "failed",
        /// Policy ended it.
        Blocked = "blocked",
        /// Somebody ended it.
        Cancelled = "cancelled",
    }
}

/// The failure code of an execution that was cancelled.
const CANCELLED: &str = "cancelled";

impl ContractStatus {
    /// The view of a stored status.
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

/// A time as the contract writes it: six digits, `+00:00`.
#[must_use]
pub fn timestamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, false)
}

/// The calls of a run, by list.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Calls {
    /// Tools.
    pub tool_calls: Vec<Box<RawValue>>,
    /// Embeddings.
    pub embedding_calls: Vec<Box<RawValue>>,
    /// Retrieval.
    pub retrieval_calls: Vec<Box<RawValue>>,
    /// The model.
    pub model_calls: Vec<Box<RawValue>>,
}

impl Calls {
    /// Whether there are none.
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

/// What a run came to.
#[derive(Debug, Clone, Serialize)]
pub struct ResultView {
    /// The answer.
    pub output_text: String,
    /// How it came about.
    #[serde(flatten)]
    pub calls: Calls,
}

/// Why a run came to nothing.
#[derive(Debug, Clone, Serialize)]
pub struct RecordedError {
    /// One of the nine, or `cancelled`.
    pub code: String,
    /// For people.
    pub message: String,
    /// Facts, and the calls that were made; left out when there are none.
    #[serde(skip_serializing_if = "ErrorDetails::is_empty")]
    pub details: ErrorDetails,
}

/// See [`RecordedError::details`].
#[derive(Debug, Clone, Default, Serialize)]
pub struct ErrorDetails {
    /// As the failure gave them.
    #[serde(flatten)]
    pub facts: Map<String, Value>,
    /// What was done before it failed.
    #[serde(skip_serializing_if = "Calls::is_empty")]
    pub calls: Calls,
}

impl ErrorDetails {
    fn is_empty(&self) -> bool {
        self.facts.is_empty() && self.calls.is_empty()
    }
}

/// The record.
#[derive(Debug, Clone, Serialize)]
pub struct ExecutionView {
    /// Its id.
    pub id: String,
    /// One of the six words.
    pub status: &'static str,
    /// The agent, as asked for.
    pub agent_ref: String,
    /// Its version; `v1` when unknown.
    pub agent_version: String,
    /// The managed model.
    pub model_ref: Option<String>,
    /// `online` or `offline`.
    pub runtime_profile: &'static str,
    /// When it was accepted.
    pub created_at: String,
    /// When a worker first had it.
    pub started_at: Option<String>,
    /// When it ended.
    pub finished_at: Option<String>,
    /// Of one that succeeded.
    pub result: Option<ResultView>,
    /// Of one that did not.
    pub error: Option<RecordedError>,
}

/// A stored execution, as far as its record says it.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Its id.
    pub id: String,
    /// As stored.
    pub status: ExecutionStatus,
    /// The agent, as asked for.
    pub agent_ref: String,
    /// As the record says it.
    pub agent_version: String,
    /// The managed model, where a call or the request names one.
    pub model_ref: Option<String>,
    /// Its profile.
    pub runtime_profile: RuntimeProfile,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// When a worker first had it.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// The answer of one that finished.
    pub output_text: Option<String>,
    /// Of one that failed: as stored.
    pub failure_code: Option<String>,
    /// Of one that failed: for people.
    pub failure_summary: Option<String>,
    /// Of one that failed: facts.
    pub failure_detail: Map<String, Value>,
    /// The calls it made.
    pub calls: Calls,
    /// Whether its agent has tools, used or not; the record does not say.
    pub has_tools: bool,
}

impl Recorded {
    /// The code of a failure as the contract says it, and what is told with it. A failure that is none of the nine is told with
    /// the code's own message, and its own code among the facts.
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

    /// The record.
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

/// The body of every error: `{"error", "message"[, "details"]}`.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorBody {
    /// A stable code.
    pub error: String,
    /// For people.
    pub message: String,
    /// Facts; refusals of what was never stored have none.
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
    fn a_finished_one_has_eleven_keys_in_order() {
        let text = serde_json::to_string(&recorded(ExecutionStatus::Finished).view()).unwrap();
        let expected = concat!(
            r#"{"id":"execution-uuid","status":"succeeded","agent_ref":"agent.alpha","agent_version":"v1","#,
            r#""model_ref":"model.default","runtime_profile":"offline","created_at":"2026-01-01T00:00:00.000000+00:00","#,
            r#""started_at":"2026-01-01T00:00:00.000000+00:00","finished_at":"2026-01-01T00:00:00.000000+00:00","#,
            r#""result":{"output_text":"hi","tool_calls":[],"embedding_calls":[],"retrieval_calls":[],"model_calls":[]},"error":null}"#,
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn a_failed_one_keeps_its_calls_and_leaves_empty_details_out() {
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
    fn states_are_views_of_the_stored_one() {
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
