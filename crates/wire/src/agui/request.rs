//! The body of an AG-UI request (`RunAgentInput`).

use serde_json::Value;

use super::messages;
use crate::{
    Asked, Choice, Fault, Format, FunctionTool, Item, ModelName, Sampling, approvals,
    members::{self, MAX_PARTS, Members, Node},
    parameters,
};

/// A request of `/v1/agui/{agent}`.
#[derive(Debug, Clone, PartialEq)]
pub struct AguiRequest {
    /// Its entries end with the answers of `resume`; its instructions hold the context.
    pub asked: Asked,
    pub thread_id: String,
    pub run_id: String,
    pub parent_run_id: Option<String>,
    /// Answers to what an earlier run of the thread asked.
    pub resume: Vec<Resume>,
    /// Description and value.
    pub context: Vec<(String, String)>,
    /// The shared state, as sent. Agents of Longhaul have none.
    pub state: Option<Value>,
    pub forwarded_props: Option<Value>,
    /// The messages as sent, which a snapshot repeats.
    pub messages: Vec<Value>,
}

/// The answer to an interrupt.
#[derive(Debug, Clone, PartialEq)]
pub struct Resume {
    pub interrupt_id: String,
    /// True if the user dismissed it.
    pub is_cancelled: bool,
    pub payload: Option<Value>,
}

/// Parses a request to `agent`, an agent's key, perhaps with a version (`key@version`).
///
/// # Errors
/// The first member that is wrong or not supported.
pub fn read(body: &[u8], agent: &str) -> Result<AguiRequest, Fault> {
    let body = members::body(body)?;
    let body = Members::of(&body);
    let model_text = format!("agent:{agent}");
    let Ok(model) = model_text.parse::<ModelName>();
    let given = body.need("messages")?.entries(members::MAX_MESSAGES)?;
    let mut items = messages::read(&given)?;
    let mut resume = Vec::new();
    for node in body.entries("resume", MAX_PARTS)? {
        let (entry, item) = resumed(&node)?;
        resume.push(entry);
        items.push(item);
    }
    if items.is_empty() {
        return Err(body.fault("messages", "must hold at least one message."));
    }
    let context = body.entries("context", MAX_PARTS)?.iter().map(context).collect::<Result<Vec<_>, _>>()?;
    let asked = Asked {
        model,
        model_text,
        instructions: instructions(&context),
        items,
        tools: tools(&body)?,
        choice: Choice::Auto,
        format: Format::Text,
        sampling: Sampling::default(),
        stream: true,
        max_tool_calls: None,
        metadata: std::collections::BTreeMap::new(),
    };
    Ok(AguiRequest {
        asked,
        thread_id: body.need_id("threadId")?.to_owned(),
        run_id: body.need_id("runId")?.to_owned(),
        parent_run_id: body.read("parentRunId", |node| Ok(node.id()?.to_owned()))?,
        resume,
        context,
        state: body.get("state").map(|node| node.value.clone()),
        forwarded_props: body.get("forwardedProps").map(|node| node.value.clone()),
        messages: given.iter().map(|node| node.value.clone()).collect(),
    })
}

fn context(node: &Node<'_>) -> Result<(String, String), Fault> {
    let entry = node.members()?;
    Ok((entry.need_text("description")?.to_owned(), entry.need_text("value")?.to_owned()))
}

/// The context as instructions; none if there is none.
fn instructions(context: &[(String, String)]) -> Option<String> {
    let lines = context.iter().map(|(description, value)| format!("- {description}: {value}"));
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| format!("Context that the application gives:\n{}", lines.join("\n")))
}

fn tools(body: &Members<'_>) -> Result<Vec<FunctionTool>, Fault> {
    parameters::functions(body, "parameters", Ok)
}

fn resumed(node: &Node<'_>) -> Result<(Resume, Item), Fault> {
    let entry = node.members()?;
    let interrupt_id = entry.need_id("interruptId")?.to_owned();
    let is_cancelled = entry.need("status")?.one_of(&["resolved", "cancelled"])? == "cancelled";
    let payload = entry.get("payload");
    let item = match approvals::request_id(&interrupt_id) {
        Some(request_id) if is_cancelled => Item::Approval { request_id, approve: false, reason: None },
        Some(request_id) => decision(request_id, &entry)?,
        None => Item::Result {
            call_id: interrupt_id.clone(),
            name: None,
            text: match (is_cancelled, payload.as_ref().map(|node| node.value)) {
                (true, _) => "The user dismissed the question.".into(),
                (false, None) => String::new(),
                (false, Some(Value::String(text))) => text.clone(),
                (false, Some(value)) => value.to_string(),
            },
            files: Vec::new(),
            is_error: is_cancelled,
        },
    };
    let payload = payload.map(|node| node.value.clone());
    Ok((Resume { interrupt_id, is_cancelled, payload }, item))
}

/// Front ends send a bare boolean, `approve` or `approved`.
fn decision(request_id: String, entry: &Members<'_>) -> Result<Item, Fault> {
    let value = entry.get("payload").map_or(&Value::Null, |node| node.value);
    let member = value.get("approve").or_else(|| value.get("approved"));
    let approve = value.as_bool().or_else(|| member.and_then(Value::as_bool));
    let reason = value.get("reason").and_then(Value::as_str).map(str::to_owned);
    match approve {
        Some(approve) => Ok(Item::Approval { request_id, approve, reason }),
        None => Err(entry.fault("payload", r#"must be like {"approve": true, "reason": "…"}."#)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::Part;

    fn read_with(members: &Value) -> Result<AguiRequest, Fault> {
        let mut body = json!({ "threadId": "t", "runId": "r", "state": {}, "context": [], "tools": [],
            "forwardedProps": {}, "messages": [{ "id": "1", "role": "user", "content": "hi" }] });
        for (name, value) in members.as_object().unwrap() {
            body[name] = value.clone();
        }
        read(body.to_string().as_bytes(), "a@2")
    }

    #[test]
    fn input_of_a_client_is_read() {
        let request = read_with(&json!({
            "parentRunId": "p", "context": [{ "description": "page", "value": "home" }],
            "tools": [{ "name": "f", "description": "d", "parameters": { "type": "object" } }],
        }))
        .unwrap();
        assert_eq!(request.asked.model, ModelName::Agent { key: "a".into(), version: Some(2) });
        assert_eq!(request.asked.items, [Item::User(vec![Part::Text("hi".into())])]);
        assert!(request.asked.instructions.unwrap().ends_with("- page: home"));
        assert_eq!((request.parent_run_id.as_deref(), request.messages.len()), (Some("p"), 1));
        assert!(request.asked.stream && request.state.is_some());
    }

    #[test]
    fn resume_answers_questions_and_approvals() {
        let approval = "appr_0192f0aa111172228333444455556666";
        let resume = json!([
            { "interruptId": approval, "status": "resolved", "payload": { "approved": true } },
            { "interruptId": approval, "status": "cancelled" },
            { "interruptId": "call_1", "status": "resolved", "payload": { "answer": 1 } },
            { "interruptId": "call_2", "status": "cancelled" },
        ]);
        let request = read_with(&json!({ "messages": [], "resume": resume })).unwrap();
        let items = &request.asked.items;
        assert!(matches!(&items[0], Item::Approval { approve: true, .. }));
        assert!(matches!(&items[1], Item::Approval { approve: false, .. }));
        assert!(matches!(&items[2], Item::Result { text, is_error: false, .. } if text == r#"{"answer":1}"#));
        assert!(matches!(&items[3], Item::Result { is_error: true, .. }));
        let resume = json!([{ "interruptId": approval, "status": "resolved" }]);
        let fault = read_with(&json!({ "resume": resume })).unwrap_err();
        assert_eq!(fault.param.as_deref(), Some("resume[0].payload"));
    }

    #[test]
    fn wrong_members_are_refused_by_name() {
        for (name, value) in [
            ("threadId", json!("")),
            ("runId", json!(1)),
            ("messages", json!([])),
            ("messages", json!(null)),
            ("tools", json!({})),
            ("context", json!("x")),
            ("resume", json!({})),
        ] {
            assert_eq!(read_with(&json!({ name: value })).unwrap_err().param.as_deref(), Some(name), "{name}");
        }
    }

    fn odd() -> impl Strategy<Value = Value> {
        let words =
            prop::sample::select(vec!["text", "user", "tool", "assistant", "resolved", "data", "image", "binary"]);
        let leaf = prop_oneof![Just(json!(null)), Just(json!(-1)), words.prop_map(|word| json!(word))];
        leaf.prop_recursive(4, 20, 3, |inner| {
            let names = ["type", "source", "name", "content", "role", "text", "value", "status", "toolCalls"];
            let name = prop::sample::select(names.to_vec());
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(name.prop_map(str::to_owned), inner, 0..4)
                    .prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn odd_values_give_faults_and_no_panics(name in prop::sample::select(vec!["messages", "tools", "context",
            "resume", "threadId", "state"]), value in odd()) {
            if let Err(fault) = read_with(&json!({ name: value })) {
                prop_assert!(!fault.message.is_empty());
            }
        }
    }
}
