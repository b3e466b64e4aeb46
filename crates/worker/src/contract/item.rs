//! Items of the contract record's call lists, before a step stores them.

use longhaul_shared::domain::{contract::CallList, contract_steps::NotedCall};
use serde::Serialize;
use serde_json::value::RawValue;

/// An item of the record without its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Noted {
    list: CallList,
    /// The item's JSON text, with keys in the contract's order.
    item: String,
}

impl Noted {
    /// Serialises the item of a call.
    pub(crate) fn new(list: CallList, item: &impl Serialize) -> Self {
        // Items are structs of texts, numbers and JSON, which always serialise.
        Self { list, item: serde_json::to_string(item).unwrap_or_else(|_| "null".to_owned()) }
    }

    /// Adds the item's position.
    pub(crate) fn at(self, turn: u32, index: u32) -> NotedCall {
        let item = RawValue::from_string(self.item).unwrap_or_else(|_| RawValue::NULL.to_owned());
        NotedCall { turn, index, list: self.list, item }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_shared::domain::contract::ModelCall;

    use super::*;

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
