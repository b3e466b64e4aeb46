//! "did you mean": the known name that is most like one that the API does not know.

use longhaul_shared::nearest::nearest as nearest_name;
use serde_json::Value;

use crate::client::{Client, ClientError};

/// Most names that are compared.
const MAX_NAMES: usize = 10_000;

/// Kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Agent,
    Definition,
}

impl Kind {
    /// The list of the API that has all names.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Agent => "/v1/agents",
            Self::Definition => "/v1/definitions",
        }
    }

    /// Returns true if the error says that there is nothing of this name.
    fn is_unknown(self, error: &ClientError) -> bool {
        let code = match self {
            Self::Agent => "unknown_agent",
            Self::Definition => "unknown_definition",
        };
        matches!(error, ClientError::Problem(problem) if problem.code() == code || problem.code() == "not_found")
    }
}

/// Adds the nearest name to an error about an unknown one. The error is returned as it is if none is near, or if the
/// key may not list the names.
pub async fn nearest(client: &Client, kind: Kind, asked: &str, mut error: ClientError) -> ClientError {
    if !kind.is_unknown(&error) {
        return error;
    }
    let known = client.all(kind.path(), &[("limit", "200")], "items").await.unwrap_or_default();
    let names = known.iter().take(MAX_NAMES).filter_map(|item| item["key"].as_str());
    if let (Some(name), ClientError::Problem(problem)) = (nearest_name(asked, names), &mut error) {
        problem.add_hint(&format!("did you mean `{name}`?"));
    }
    error
}

/// The definition and the agent that a body names.
pub async fn nearest_of_body(client: &Client, body: &Value, mut error: ClientError) -> ClientError {
    for (kind, field) in [(Kind::Definition, "definition"), (Kind::Agent, "agent")] {
        if let Some(asked) = body[field].as_str() {
            error = nearest(client, kind, asked, error).await;
        }
    }
    error
}
