//! Reply limits set by agents, and settings for which a reply limit does not bound the cost.

use longhaul_sdk::spec::ModelSpec;
use serde_json::Value;

use super::ModelError;

/// The providers' names for the reply limit. In `extra` they replace `max_output_tokens`.
pub(super) const LIMIT_FIELDS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// Fields of `extra` that let a call cost more than prompt and reply limit at the configured prices: several
/// replies, other models, tools and searches run by the provider, other units or prices.
const UNBOUNDED_FIELDS: [&str; 17] = [
    "audio",
    "background",
    "best_of",
    "container",
    "context_management",
    "inference_geo",
    "mcp_servers",
    "modalities",
    "models",
    "plugins",
    "prediction",
    "route",
    "search_parameters",
    "service_tier",
    "speed",
    "web_search",
    "web_search_options",
];

/// The reply limit, in tokens, sent for these settings: the smallest one if `extra` names several.
///
/// # Errors
/// A limit in `extra` is not a positive number of tokens.
pub fn reply_limit(spec: &ModelSpec) -> Result<Option<u32>, ModelError> {
    let mut limits = Vec::new();
    for field in LIMIT_FIELDS {
        let Some(value) = spec.extra.get(field).filter(|value| !value.is_null()) else { continue };
        let limit = value.as_u64().filter(|limit| *limit > 0).and_then(|limit| u32::try_from(limit).ok());
        limits.push(
            limit.ok_or_else(|| ModelError::InvalidSettings {
                what: format!("`extra.{field}` is no number of tokens"),
            })?,
        );
    }
    Ok(limits.into_iter().min().or(spec.max_output_tokens))
}

/// Returns a field of `extra` that leaves the cost of a call unbounded, if there is one.
pub fn unbounded_field(spec: &ModelSpec) -> Option<&'static str> {
    let is_set =
        |field: &&str| spec.extra.get(*field).is_some_and(|value| !value.is_null() && *value != Value::Bool(false));
    UNBOUNDED_FIELDS.into_iter().find(is_set)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(own: Option<u32>, extra: Value) -> ModelSpec {
        ModelSpec { max_output_tokens: own, extra: serde_json::from_value(extra).unwrap(), ..ModelSpec::default() }
    }

    #[test]
    fn limits_in_extra_replace_the_agents_own() {
        let limit = |own, extra| reply_limit(&spec(own, extra));
        assert_eq!(limit(None, json!({})).unwrap(), None);
        assert_eq!(limit(Some(5), json!({ "max_tokens": null, "seed": 1 })).unwrap(), Some(5));
        assert_eq!(limit(Some(5), json!({ "max_tokens": 9 })).unwrap(), Some(9));
        assert_eq!(limit(None, json!({ "max_tokens": 9, "max_completion_tokens": 7 })).unwrap(), Some(7));
        for odd in [json!(0), json!(-1), json!(1.5), json!("9"), json!(5_000_000_000_u64)] {
            assert!(limit(Some(5), json!({ "max_tokens": odd })).is_err(), "{odd}");
        }
    }

    #[test]
    fn extras_that_multiply_the_cost_have_no_bound() {
        assert_eq!(
            unbounded_field(&spec(None, json!({ "seed": 1, "top_k": 3, "best_of": null, "background": false }))),
            None
        );
        assert_eq!(
            unbounded_field(&spec(None, json!({ "seed": 1, "web_search_options": {} }))),
            Some("web_search_options")
        );
    }
}
