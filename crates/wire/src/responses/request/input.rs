//! The input of a request: a text, or a list of items.

use longhaul_domain::{ToolCall, message::NativeBlocks};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::parts;
use crate::{
    Fault, Item, Part,
    fault::brief,
    members::{MAX_ID, MAX_MESSAGES, Members, Node},
    responses::{carried, compact, items},
};

/// Characters of the reason of a decision.
const MAX_REASON: usize = 2_000;

/// The items of the input, and the same items as `input_items` lists them.
pub(super) fn read(body: &Members<'_>) -> Result<(Vec<Item>, Vec<Value>), Fault> {
    let mut reader = Reader::default();
    match body.get("input") {
        None => {}
        Some(Node { value: Value::String(text), .. }) => {
            let content = json!([{ "type": "input_text", "text": text }]);
            reader.items.push(Item::User(vec![Part::Text(text.clone())]));
            reader.list("message", None, json!({ "role": "user", "content": content, "status": "completed" }));
        }
        Some(node) => {
            for item in node.entries(MAX_MESSAGES)? {
                reader.read(&item.members()?)?;
            }
        }
    }
    reader.settle();
    Ok((reader.items, reader.listed))
}

#[derive(Default)]
struct Reader {
    items: Vec<Item>,
    listed: Vec<Value>,
    /// Blocks of the reply at hand, which a reasoning item carries.
    carried: Option<NativeBlocks>,
}

impl Reader {
    fn read(&mut self, item: &Members<'_>) -> Result<(), Fault> {
        let kind = item.text("type")?;
        let is_of_reply = match kind {
            Some("function_call" | "reasoning") => true,
            _ => item.get("role").is_some_and(|role| role.value == "assistant"),
        };
        if !is_of_reply {
            self.settle();
        }
        match kind {
            Some("message") => self.message(item),
            None if item.get("role").is_some() => self.message(item),
            None => Err(item.missing("type")),
            Some("function_call") => self.call(item),
            Some("function_call_output") => self.result(item),
            Some("mcp_approval_response") => self.approval(item),
            Some("compaction" | "compaction_summary") => self.compaction(item),
            Some("reasoning") => {
                self.settle();
                self.carried = item.text("encrypted_content")?.and_then(carried::blocks_of);
                self.list("reasoning", item.bounded("id", MAX_ID)?, Value::Object(item.map.clone()));
                Ok(())
            }
            // A request for an approval comes back with an answer's other items; the run has its own record.
            Some(kind @ "mcp_approval_request") => {
                self.list(kind, item.bounded("id", MAX_ID)?, Value::Object(item.map.clone()));
                Ok(())
            }
            Some("item_reference") => {
                let instead = "send the item itself, or continue the response with `previous_response_id`.";
                Err(item.need("type")?.unsupported(instead))
            }
            Some(_) => Err(item.need("type")?.unsupported("send messages, function calls and their outputs.")),
        }
    }

    /// Ends a reply: it gets the blocks that were carried beside it, if they say the same.
    fn settle(&mut self) {
        let Some(blocks) = self.carried.take() else { return };
        if let Some(Item::Assistant { text, calls, native }) = self.items.last_mut()
            && native.is_none()
            && carried::fits(&blocks, text, calls)
        {
            *native = Some(blocks);
        }
    }

    fn message(&mut self, item: &Members<'_>) -> Result<(), Fault> {
        let role = item.need("role")?.one_of(&["user", "assistant", "system", "developer"])?;
        let content = item.need("content")?;
        let (read, shown) = match role {
            "user" => {
                let (parts, shown) = parts::read(&content, "input_text")?;
                (Item::User(parts), shown)
            }
            "assistant" => {
                let (text, shown) = parts::text_only(&content, "output_text")?;
                (Item::Assistant { text, calls: Vec::new(), native: None }, shown)
            }
            _ => {
                let (text, shown) = parts::text_only(&content, "input_text")?;
                (Item::System(text), shown)
            }
        };
        match (role, shown.is_empty()) {
            // A message without text comes back with an answer of which a turn was void.
            ("assistant", true) => {}
            (_, true) => return Err(content.fault("must hold at least one part.")),
            (_, false) => self.items.push(read),
        }
        let id = item.bounded("id", MAX_ID)?;
        self.list("message", id, json!({ "role": role, "content": shown, "status": "completed" }));
        Ok(())
    }

    /// A call belongs to the reply before it: a model's text and its calls are one message for every provider.
    fn call(&mut self, item: &Members<'_>) -> Result<(), Fault> {
        let call_id = item.need_id("call_id")?;
        let name = item.need_id("name")?;
        let arguments = item.need_text("arguments")?;
        let call = ToolCall { id: call_id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() };
        match self.items.last_mut() {
            Some(Item::Assistant { calls, .. }) => calls.push(call),
            _ => self.items.push(Item::Assistant { text: String::new(), calls: vec![call], native: None }),
        }
        let shown = json!({ "call_id": call_id, "name": name, "arguments": arguments, "status": "completed" });
        self.list("function_call", item.bounded("id", MAX_ID)?, shown);
        Ok(())
    }

    fn result(&mut self, item: &Members<'_>) -> Result<(), Fault> {
        let call_id = item.need_id("call_id")?;
        let name = item.bounded("name", MAX_ID)?;
        let output = item.need("output")?;
        let (parts, content) = parts::read(&output, "input_text")?;
        let mut texts = Vec::new();
        let mut files = Vec::new();
        for part in parts {
            match part {
                Part::Text(text) => texts.push(text),
                Part::File(file) => files.push(file),
            }
        }
        let output = if output.value.is_string() { output.value.clone() } else { json!(content) };
        self.items.push(Item::Result {
            call_id: call_id.to_owned(),
            name: name.map(str::to_owned),
            text: texts.join("\n"),
            files,
            is_error: false,
        });
        let shown = json!({ "call_id": call_id, "output": output, "status": "completed" });
        self.list("function_call_output", item.bounded("id", MAX_ID)?, shown);
        Ok(())
    }

    fn approval(&mut self, item: &Members<'_>) -> Result<(), Fault> {
        let id = item.need_id("approval_request_id")?;
        let Some(request_id) = items::approval_request_of(id) else {
            let message = format!(
                "is `{}`, which is no approval request of this server: send the id of an `mcp_approval_request`.",
                brief(id)
            );
            return Err(item.fault("approval_request_id", message));
        };
        let approve = item.need("approve")?.flag()?;
        let reason = item.bounded("reason", MAX_REASON)?;
        self.items.push(Item::Approval {
            request_id: request_id.to_owned(),
            approve,
            reason: reason.map(str::to_owned),
        });
        let shown = json!({ "approval_request_id": id, "approve": approve, "reason": reason });
        self.list("mcp_approval_response", item.bounded("id", MAX_ID)?, shown);
        Ok(())
    }

    fn compaction(&mut self, item: &Members<'_>) -> Result<(), Fault> {
        let content = item.need_text("encrypted_content")?;
        let Some(summary) = compact::summary_of(content) else {
            let message = "was made by another server: send the messages that it stands for.";
            return Err(item.fault("encrypted_content", message));
        };
        self.items.push(Item::System(format!("Summary of the conversation so far:\n\n{summary}")));
        self.list("compaction", item.bounded("id", MAX_ID)?, json!({ "encrypted_content": content }));
        Ok(())
    }

    /// Lists an item under its own id, or under one made of its position and content: the same for every reader.
    fn list(&mut self, kind: &str, id: Option<&str>, shown: Value) {
        let Value::Object(mut shown) = shown else { return };
        let id = match id.filter(|id| !id.is_empty()) {
            Some(id) => id.to_owned(),
            None => derived_id(kind, self.listed.len(), &shown),
        };
        shown.insert("type".to_owned(), json!(kind));
        shown.insert("id".to_owned(), json!(id));
        self.listed.push(Value::Object(shown));
    }
}

fn derived_id(kind: &str, nth: usize, shown: &Map<String, Value>) -> String {
    let prefix = match kind {
        "message" => "msg",
        "function_call" => "fc",
        "function_call_output" => "fco",
        "compaction" => "cmp",
        "reasoning" => "rs",
        _ => "item",
    };
    let mut hash = Sha256::new();
    hash.update(nth.to_string());
    for (name, value) in shown {
        hash.update(format!("\n{name}\t{value}"));
    }
    let digest = hex::encode(hash.finalize());
    format!("{prefix}_{}", digest.get(..32).unwrap_or(&digest))
}
