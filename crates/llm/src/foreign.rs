//! Parameters that a request names in the words of another format than its model's (`ModelSpec::extra`): those that
//! both formats have are translated, and those that this one refuses are left out.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::{Value, json};

type Extra = BTreeMap<String, Value>;

/// Parameters of chat completions that the messages format refuses.
const NOT_IN_MESSAGES: [&str; 12] = [
    "frequency_penalty",
    "logit_bias",
    "min_p",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "repetition_penalty",
    "safety_identifier",
    "seed",
    "user",
    "verbosity",
];

/// True if a reply may hold one call only, in the words of either format.
pub(crate) fn is_serial(extra: &Extra) -> bool {
    extra.get("parallel_tool_calls") == Some(&Value::Bool(false))
        || extra.get("disable_parallel_tool_use") == Some(&Value::Bool(true))
}

/// The parameters for the messages format, which has [`is_serial`] within `tool_choice`.
pub(crate) fn for_messages(extra: &Extra) -> Cow<'_, Extra> {
    let is_foreign = |(name, value): (&String, &Value)| match name.as_str() {
        "stop" | "parallel_tool_calls" | "disable_parallel_tool_use" => true,
        "service_tier" => !matches!(value.as_str(), None | Some("auto" | "standard_only")),
        name => NOT_IN_MESSAGES.contains(&name),
    };
    if !extra.iter().any(is_foreign) {
        return Cow::Borrowed(extra);
    }
    let mut own: Extra =
        extra.iter().filter(|of| !is_foreign(*of)).map(|(name, value)| (name.clone(), value.clone())).collect();
    if let Some(stop) = extra.get("stop") {
        let texts = if stop.is_string() { json!([stop]) } else { stop.clone() };
        own.entry("stop_sequences".into()).or_insert(texts);
    }
    Cow::Owned(own)
}

/// The parameters for chat completions. Servers other than OpenAI's have a `thinking` of their own.
pub(crate) fn for_chat(extra: &Extra, has_tools: bool, is_openai: bool) -> Cow<'_, Extra> {
    let is_foreign = |(name, value): (&String, &Value)| match name.as_str() {
        "stop_sequences" | "disable_parallel_tool_use" => true,
        "service_tier" => value == "standard_only",
        "thinking" => is_openai || value["type"] == "adaptive" || value.get("budget_tokens").is_some(),
        _ => false,
    };
    if !extra.iter().any(is_foreign) {
        return Cow::Borrowed(extra);
    }
    let mut own: Extra =
        extra.iter().filter(|of| !is_foreign(*of)).map(|(name, value)| (name.clone(), value.clone())).collect();
    if let Some(texts) = extra.get("stop_sequences") {
        own.entry("stop".into()).or_insert(texts.clone());
    }
    if has_tools && extra.get("disable_parallel_tool_use") == Some(&Value::Bool(true)) {
        own.entry("parallel_tool_calls".into()).or_insert(Value::Bool(false));
    }
    Cow::Owned(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extra(members: Value) -> Extra {
        serde_json::from_value(members).unwrap()
    }

    #[test]
    fn chat_parameters_become_those_of_messages() {
        let given = extra(json!({ "stop": "a", "seed": 1, "top_p": 0.5, "parallel_tool_calls": false, "user": "u",
            "service_tier": "priority" }));
        assert!(is_serial(&given));
        assert_eq!(*for_messages(&given), extra(json!({ "stop_sequences": ["a"], "top_p": 0.5 })));
        let own = extra(json!({ "top_k": 3, "thinking": { "type": "enabled", "budget_tokens": 9 } }));
        assert!(matches!(for_messages(&own), Cow::Borrowed(_)) && !is_serial(&own));
    }

    #[test]
    fn messages_parameters_become_those_of_chat() {
        let given = extra(json!({ "stop_sequences": ["a"], "disable_parallel_tool_use": true, "top_p": 0.5,
            "thinking": { "type": "enabled", "budget_tokens": 9 }, "service_tier": "standard_only" }));
        let expected = json!({ "stop": ["a"], "parallel_tool_calls": false, "top_p": 0.5 });
        assert_eq!(*for_chat(&given, true, false), extra(expected));
        assert_eq!(*for_chat(&given, false, false), extra(json!({ "stop": ["a"], "top_p": 0.5 })));
        let own = extra(json!({ "thinking": { "type": "disabled" } }));
        assert_eq!(*for_chat(&own, true, false), own);
        assert!(for_chat(&own, true, true).is_empty());
    }
}
