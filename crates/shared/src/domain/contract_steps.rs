//! What the steps of a contract execution hold for its record: the calls it lists, and the model it asked.
//!
//! A step's body is JSON text; beside what its kind says, it may have the members of `StepBody`. A call is noted once, in the step
//! that holds its result: of a failed one too, in the spent step. Items are kept byte for byte, since the order of their keys is the
//! contract's.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::contract::{CallItem, CallList};

/// A call of the record, with its place among the others: calls that end in another order are listed in that of their places.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NotedCall {
    /// The turn it belongs to, from 1; 0 for what comes before the first.
    pub turn: u32,
    /// Its place in that turn.
    pub index: u32,
    /// Its list.
    pub list: CallList,
    /// The item, as the record shows it.
    pub item: Box<RawValue>,
}

/// The model that a run was resolved to; in the body of its prompt step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedModel {
    /// The managed id.
    pub model_ref: String,
    /// What the provider calls it: a resumed run asks the same.
    pub provider_model: String,
}

/// The part of a step's body that is read here.
#[derive(Debug, Default, Deserialize)]
struct StepBody {
    #[serde(default)]
    contract_calls: Vec<NotedCall>,
    #[serde(default)]
    contract_model: Option<NotedModel>,
}

/// What a journal says for the record.
#[derive(Debug, Clone, Default)]
pub struct Gathered {
    /// Every call, in order.
    pub calls: Vec<CallItem>,
    /// The managed model.
    pub model_ref: Option<String>,
}

/// Reads the bodies of an execution's steps, in the order of the steps and decoded (`store::body`). A body of another shape says
/// nothing.
#[must_use]
pub fn gather<'a>(bodies: impl IntoIterator<Item = &'a [u8]>) -> Gathered {
    let mut noted = Vec::new();
    let mut model_ref = None;
    for body in bodies {
        let body: StepBody = serde_json::from_slice(body).unwrap_or_default();
        noted.extend(body.contract_calls);
        model_ref = body.contract_model.map(|model| model.model_ref).or(model_ref);
    }
    // Stable: what shares a place stays in the order in which it was recorded.
    noted.sort_by_key(|call| (call.turn, call.index));
    let calls = noted.into_iter().map(|call| CallItem { list: call.list, item: call.item }).collect();
    Gathered { calls, model_ref }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_stand_in_the_order_of_their_places_byte_for_byte() {
        let bodies: [&[u8]; 4] = [
            br#"{"tools":[],"contract_model":{"model_ref":"m","provider_model":"p"}}"#,
            br#"{"contract_calls":[{"turn":1,"index":1,"list":"tool_calls","item":{"b":1,"a":1e2}}]}"#,
            br#"{"contract_calls":[{"turn":1,"index":0,"list":"tool_calls","item":{"first":true}},{"turn":0,"index":0,"list":"embedding_calls","item":[]}]}"#,
            b"no JSON",
        ];
        let Gathered { calls, model_ref } = gather(bodies);
        assert_eq!(model_ref.as_deref(), Some("m"));
        let listed: Vec<_> = calls.iter().map(|call| (call.list, call.item.get())).collect();
        assert_eq!(
            listed,
            [
                (CallList::EmbeddingCalls, "[]"),
                (CallList::ToolCalls, r#"{"first":true}"#),
                (CallList::ToolCalls, r#"{"b":1,"a":1e2}"#),
            ]
        );
    }
}
