//! The list of models, in one object for the SDKs of OpenAI and of Anthropic.

use chrono::{DateTime, SecondsFormat};
use serde_json::{Value, json};

/// One model: its id and its time of creation, in Unix seconds.
#[must_use]
pub fn one(id: &str, created: i64) -> Value {
    let created_at = DateTime::from_timestamp(created, 0).unwrap_or_default();
    json!({
        "id": id,
        "object": "model",
        "created": created,
        "owned_by": "longhaul",
        "type": "model",
        "display_name": id,
        "created_at": created_at.to_rfc3339_opts(SecondsFormat::Secs, true),
        "max_input_tokens": null,
        "max_tokens": null,
        "capabilities": null,
    })
}

/// One page of models, of which `has_more` says that others follow.
#[must_use]
pub fn list(ids: &[(String, i64)], has_more: bool) -> Value {
    let data: Vec<Value> = ids.iter().map(|(id, created)| one(id, *created)).collect();
    json!({
        "object": "list",
        "data": data,
        "has_more": has_more,
        "first_id": ids.first().map(|(id, _)| id),
        "last_id": ids.last().map(|(id, _)| id),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_serves_both_sdks() {
        let list = list(&[("agent:a".into(), 1_700_000_000), ("m".into(), 0)], false);
        assert_eq!(
            (&list["object"], &list["first_id"], &list["last_id"]),
            (&json!("list"), &json!("agent:a"), &json!("m"))
        );
        let model = &list["data"][0];
        assert_eq!((&model["object"], &model["type"]), (&json!("model"), &json!("model")));
        assert_eq!(model["created_at"], "2023-11-14T22:13:20Z");
        assert_eq!(super::list(&[], false)["first_id"], Value::Null);
    }
}
