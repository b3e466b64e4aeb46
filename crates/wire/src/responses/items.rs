//! Items: those of an answer, and the list of those of a request.

use longhaul_domain::ToolCall;
use serde_json::{Value, json};

use super::fault::brief;
use crate::{Fault, Wanted};

/// Entries of a page, unless the query says another number, and at most.
const PAGE: (usize, usize) = (20, 100);
/// Prefix of the id of a request for an approval.
const APPROVAL: &str = "mcpr_";

/// A message of an answer. Its one part is a text.
pub(super) fn message(id: &str, status: &str, text: &str, phase: Option<&str>) -> Value {
    let mut item = json!({
        "type": "message",
        "id": id,
        "status": status,
        "role": "assistant",
        "content": [output_text(text)],
    });
    if let (Some(item), Some(phase)) = (item.as_object_mut(), phase) {
        item.insert("phase".to_owned(), json!(phase));
    }
    item
}

/// A part that is a text. `logprobs` is there because OpenAI's SDKs require it.
pub(super) fn output_text(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// A call that the caller runs.
pub(super) fn function_call(id: &str, call: &ToolCall, arguments: &str, status: &str) -> Value {
    json!({
        "type": "function_call",
        "id": id,
        "call_id": call.id,
        "name": call.name,
        "arguments": arguments,
        "status": status,
    })
}

/// A call that waits for an approval.
pub(super) fn approval_request(wanted: &Wanted) -> Value {
    json!({
        "type": "mcp_approval_request",
        "id": format!("{APPROVAL}{}", wanted.request_id.replace('-', "")),
        "arguments": wanted.call.arguments,
        "name": wanted.call.name,
        "server_label": "longhaul",
    })
}

/// The id of the request, as 32 hexadecimal digits, that an approval names; `None` if it is not one of ours.
#[must_use]
pub fn approval_request_of(id: &str) -> Option<&str> {
    let digits = id.strip_prefix(APPROVAL)?;
    (digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(digits)
}

/// Readable thoughts of the model; `summary` is their text if the request asks for it.
pub(super) fn reasoning(id: &str, summary: Option<&str>, content: Option<&str>) -> Value {
    let parts: Vec<Value> = summary.map(summary_text).into_iter().collect();
    let mut item = json!({ "type": "reasoning", "id": id, "summary": parts, "status": "completed" });
    if let (Some(item), Some(content)) = (item.as_object_mut(), content) {
        item.insert("encrypted_content".to_owned(), json!(content));
    }
    item
}

/// Thoughts that are not told yet.
pub(super) fn reasoning_begun(id: &str) -> Value {
    json!({ "type": "reasoning", "id": id, "summary": [], "status": "in_progress" })
}

pub(super) fn summary_text(text: &str) -> Value {
    json!({ "type": "summary_text", "text": text })
}

/// A query for a page of items.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageQuery {
    /// 1 to 100, 20 if absent.
    pub limit: Option<usize>,
    /// Id of the last item of the page before.
    pub after: Option<String>,
    /// True from the first item on; the wire's default is from the last.
    pub is_ascending: bool,
}

/// A page of the items of a request, in the shape of `input_items`.
///
/// # Errors
/// The limit is out of bounds, or no item has the id `after`.
pub fn page(items: &[Value], query: &PageQuery) -> Result<Value, Fault> {
    let (default, max) = PAGE;
    let limit = query.limit.unwrap_or(default);
    if !(1..=max).contains(&limit) {
        return Err(Fault::invalid("limit", format!("`limit` has to be from 1 to {max}.")));
    }
    let mut ordered: Vec<&Value> = items.iter().collect();
    if !query.is_ascending {
        ordered.reverse();
    }
    let id_of = |item: &Value| item.get("id").and_then(Value::as_str).map(str::to_owned);
    let start = match &query.after {
        None => 0,
        Some(after) => {
            let at = ordered.iter().position(|item| id_of(item).as_ref() == Some(after));
            let message = || format!("The response has no input item `{}`.", brief(after));
            at.ok_or_else(|| Fault::invalid("after", message()))? + 1
        }
    };
    let data: Vec<&Value> = ordered.iter().skip(start).take(limit).copied().collect();
    Ok(json!({
        "object": "list",
        "first_id": data.first().and_then(|item| id_of(item)),
        "last_id": data.last().and_then(|item| id_of(item)),
        "has_more": start + data.len() < ordered.len(),
        "data": data,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(page: &Value) -> Vec<&str> {
        page["data"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
    }

    #[test]
    fn pages_follow_each_other_in_both_orders() {
        let items: Vec<Value> = (0..5).map(|n| json!({ "type": "message", "id": format!("m{n}") })).collect();
        let newest = page(&items, &PageQuery { limit: Some(2), ..PageQuery::default() }).unwrap();
        assert_eq!((ids(&newest), &newest["has_more"]), (vec!["m4", "m3"], &json!(true)));
        let after = Some(newest["last_id"].as_str().unwrap().to_owned());
        let next = page(&items, &PageQuery { limit: Some(3), after, ..PageQuery::default() }).unwrap();
        assert_eq!((ids(&next), &next["has_more"]), (vec!["m2", "m1", "m0"], &json!(false)));
        let oldest = page(&items, &PageQuery { is_ascending: true, ..PageQuery::default() }).unwrap();
        assert_eq!((ids(&oldest).first(), &oldest["last_id"]), (Some(&"m0"), &json!("m4")));
        assert_eq!(page(&[], &PageQuery::default()).unwrap()["first_id"], Value::Null);
    }

    #[test]
    fn odd_pages_are_refused() {
        for query in [
            PageQuery { limit: Some(0), ..PageQuery::default() },
            PageQuery { limit: Some(101), ..PageQuery::default() },
            PageQuery { after: Some("x".into()), ..PageQuery::default() },
        ] {
            assert!(page(&[], &query).is_err(), "{query:?}");
        }
    }

    #[test]
    fn approvals_name_requests_of_this_server_alone() {
        let hex = "019a2c3e5b7f7d10a1b2c3d4e5f60718";
        assert_eq!(approval_request_of(&format!("mcpr_{hex}")), Some(hex));
        for other in [hex, "mcpr_", "mcpr_682d498e3f", "mcpr_é"] {
            assert_eq!(approval_request_of(other), None, "{other}");
        }
    }
}
