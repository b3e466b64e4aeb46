//! The record's data in the steps of an execution: calls to list, and the requested model.
//!
//! A step's body is JSON text and may have the members of `StepBody` beside those of its kind
//! (`longhaul_domain::noted`).

use longhaul_domain::noted::{NotedCall, NotedModel};
use serde::Deserialize;

use super::CallItem;

/// The members of a step's body that this module reads.
#[derive(Debug, Default, Deserialize)]
struct StepBody {
    #[serde(default)]
    contract_calls: Vec<NotedCall>,
    #[serde(default)]
    contract_model: Option<NotedModel>,
}

/// Data for the record, collected from a journal.
#[derive(Debug, Clone, Default)]
pub struct Gathered {
    /// All calls, ordered by turn and index.
    pub calls: Vec<CallItem>,
    /// Managed model id, if a step noted one.
    pub model_ref: Option<String>,
}

/// Collects calls and model from the decoded bodies (`history/body.rs` of the store) of an execution's steps, in step
/// order. A body of another shape is ignored.
#[must_use]
pub fn gather<'a>(bodies: impl IntoIterator<Item = &'a [u8]>) -> Gathered {
    let mut noted = Vec::new();
    let mut model_ref = None;
    for body in bodies {
        let body: StepBody = serde_json::from_slice(body).unwrap_or_default();
        noted.extend(body.contract_calls);
        model_ref = body.contract_model.map(|model| model.model_ref).or(model_ref);
    }
    // The sort is stable: calls with equal positions keep the order in which they were recorded.
    noted.sort_by_key(|call| (call.turn, call.index));
    let calls = noted.into_iter().map(|call| CallItem { list: call.list, item: call.item }).collect();
    Gathered { calls, model_ref }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelCall;
    use longhaul_domain::noted::{CallList, Noted};

    #[test]
    fn calls_keep_their_order_and_bytes() {
        let bodies: [&[u8]; 4] = [
            br#"{"tools":[],"contract_model":{"model_ref":"m","provider_model":"p"}}"#,
            br#"{"contract_calls":[{"turn":1,"index":1,"list":"tool_calls","item":{"b":1,"a":1e2}}]}"#,
            br#"{"contract_calls":[{"turn":1,"index":0,"list":"tool_calls","item":{"first":true}},
                {"turn":0,"index":0,"list":"embedding_calls","item":[]}]}"#,
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

    #[test]
    fn stored_item_keeps_its_bytes() {
        let call = ModelCall {
            provider_slug: Some("vllm-local-gateway".into()),
            provider_key: Some("vllm_local".into()),
            deployment_profile_slug: Some("local-default".into()),
            requested_model: "model.default".into(),
            status_code: 200,
        };
        let noted = Noted::new(CallList::ModelCalls, &call).at(1, 0);
        let text = concat!(
            r#"{"turn":1,"index":0,"list":"model_calls","item":{"provider_slug":"vllm-local-gateway","#,
            r#""provider_key":"vllm_local","deployment_profile_slug":"local-default","#,
            r#""requested_model":"model.default","status_code":200}}"#,
        );
        assert_eq!(serde_json::to_string(&noted).unwrap(), text);
        let back: NotedCall = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
    }
}
