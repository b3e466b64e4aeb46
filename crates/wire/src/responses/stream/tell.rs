//! Events of items: each is begun, told and done before the next.

use longhaul_domain::ToolCall;
use serde_json::{Value, json};

use super::{COMMENTARY, Message, Stream, Thoughts};
use crate::{Frame, responses::items};

impl Stream {
    /// Tells more of the open message, which is opened if there is none.
    pub(super) fn tell(&mut self, turn: Option<u32>, text: &str) {
        if self.open.is_none() {
            let id = self.item_id("msg");
            let mut item = items::message(&id, "in_progress", "", self.announced_phase());
            item["content"] = json!([]);
            let index = self.add(item);
            self.open = Some(Message { id: id.clone(), turn, text: String::new(), is_whole: false, thoughts: None });
            let part = items::output_text("");
            let at = json!({ "item_id": id, "output_index": index, "content_index": 0, "part": part });
            self.emit("response.content_part.added", at);
        }
        let index = self.last_index();
        let Some(open) = &mut self.open else { return };
        open.text.push_str(text);
        if !text.is_empty() {
            let delta = json!({
                "item_id": open.id,
                "output_index": index,
                "content_index": 0,
                "delta": text,
                "logprobs": [],
            });
            self.emit("response.output_text.delta", delta);
        }
    }

    pub(super) fn close(&mut self, status: &str, phase: &str) {
        let Some(open) = self.open.take() else { return };
        let index = self.last_index();
        let at = |more: (&str, Value)| {
            let mut members = json!({ "item_id": open.id, "output_index": index, "content_index": 0 });
            members[more.0] = more.1;
            members
        };
        let mut done = at(("text", json!(open.text)));
        done["logprobs"] = json!([]);
        self.emit("response.output_text.done", done);
        self.emit("response.content_part.done", at(("part", items::output_text(&open.text))));
        self.finish(index, items::message(&open.id, status, &open.text, Some(phase)));
        if let Some(thoughts) = open.thoughts {
            self.tell_thoughts(&thoughts);
        }
    }

    pub(super) fn tell_call(&mut self, call: &ToolCall) {
        let id = self.item_id("fc");
        let index = self.add(items::function_call(&id, call, "", "in_progress"));
        let arguments = &call.arguments;
        if !arguments.is_empty() {
            let delta = json!({ "item_id": id, "output_index": index, "delta": arguments });
            self.emit("response.function_call_arguments.delta", delta);
        }
        let done = json!({ "item_id": id, "output_index": index, "name": call.name, "arguments": arguments });
        self.emit("response.function_call_arguments.done", done);
        self.finish(index, items::function_call(&id, call, arguments, "completed"));
    }

    pub(super) fn tell_thoughts(&mut self, thoughts: &Thoughts) {
        let (text, content) = (thoughts.text.as_str(), thoughts.content.as_deref());
        let id = self.item_id("rs");
        let index = self.add(items::reasoning_begun(&id));
        let is_wanted = self.header.echo.pointer("/reasoning/summary").is_some_and(Value::is_string);
        if !is_wanted {
            self.finish(index, items::reasoning(&id, None, content));
            return;
        }
        let at = |name: &str, value: Value| {
            let mut members = json!({ "item_id": id, "output_index": index, "summary_index": 0 });
            members[name] = value;
            members
        };
        self.emit("response.reasoning_summary_part.added", at("part", items::summary_text("")));
        self.emit("response.reasoning_summary_text.delta", at("delta", json!(text)));
        self.emit("response.reasoning_summary_text.done", at("text", json!(text)));
        self.emit("response.reasoning_summary_part.done", at("part", items::summary_text(text)));
        self.finish(index, items::reasoning(&id, Some(text), content));
    }

    /// The phase of a message that is not over. SDKs parse a message's text as the structured answer as soon as it is
    /// told, unless it is a commentary: where the answer has a form, a message is one until its end says otherwise.
    pub(super) fn announced_phase(&self) -> Option<&'static str> {
        let form = self.header.echo.pointer("/text/format/type").and_then(Value::as_str);
        form.is_some_and(|form| form != "text").then_some(COMMENTARY)
    }

    fn item_id(&self, prefix: &str) -> String {
        let response = self.header.id.strip_prefix("resp_").unwrap_or(&self.header.id);
        format!("{prefix}_{response}_{}", self.progress.output.len())
    }

    pub(super) fn last_index(&self) -> usize {
        self.progress.output.len().saturating_sub(1)
    }

    /// Adds an item to the output; returns its index.
    pub(super) fn add(&mut self, item: Value) -> usize {
        let index = self.progress.output.len();
        self.emit("response.output_item.added", json!({ "output_index": index, "item": item }));
        self.progress.output.push(item);
        index
    }

    pub(super) fn finish(&mut self, index: usize, item: Value) {
        self.emit("response.output_item.done", json!({ "output_index": index, "item": item }));
        if let Some(slot) = self.progress.output.get_mut(index) {
            *slot = item;
        }
    }

    pub(super) fn emit_response(&mut self, event: &'static str) {
        let response = self.object();
        self.emit(event, json!({ "response": response }));
    }

    fn emit(&mut self, event: &'static str, mut members: Value) {
        members["type"] = json!(event);
        members["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        self.frames.push(Frame { event: Some(event), data: members.to_string() });
    }
}
