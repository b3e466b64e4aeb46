//! A run as a stream of AG-UI events.
//!
//! Invariants, which clients check: `RUN_STARTED` is first; a message or a call that was started ends before the run
//! does; nothing follows the end; absent members are left out, never null.

use longhaul_domain::ToolCall;
use serde_json::{Value, json};

use super::shown::Shown;
use crate::{
    Broken, End, Frame, Moment, Render, Reply, Runner, Tokens, Wanted, WantedKind,
    answer::{failure, is_same},
    approvals,
};

/// The version of the protocol that `RUN_STARTED` declares.
const PROTOCOL_VERSION: &str = "1.0";

/// The facts that a stream states beside its moments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Id of the execution: 32 hexadecimal digits.
    pub id: String,
    pub thread_id: String,
    /// The client's id of the run.
    pub run_id: String,
    pub parent_run_id: Option<String>,
}

/// The events, built from the moments of a run.
#[derive(Debug, Clone)]
pub struct Stream {
    header: Header,
    shown: Shown,
    turn: u32,
    /// Messages that the turn has opened in vain.
    void: u32,
    /// The text of the open message; empty if none is open.
    told: String,
    /// The text of the last reply that had one.
    last_text: String,
    /// Ids of the calls that workers run: as the model wrote them, and as shown.
    calls: Vec<(String, String)>,
    results: usize,
    tokens: Option<Tokens>,
    /// The last frame.
    end: Option<Frame>,
}

impl Stream {
    #[must_use]
    pub fn new(header: Header) -> Self {
        Self {
            header,
            shown: Shown::default(),
            turn: 0,
            void: 0,
            told: String::new(),
            last_text: String::new(),
            calls: Vec::new(),
            results: 0,
            tokens: None,
            end: None,
        }
    }

    /// The frames before the first moment.
    #[must_use]
    pub fn begin(&self) -> Vec<Frame> {
        let mut started = self.event("RUN_STARTED");
        started["protocolVersion"] = json!(PROTOCOL_VERSION);
        if let Some(parent) = &self.header.parent_run_id {
            started["parentRunId"] = json!(parent);
        }
        vec![frame(&started)]
    }

    /// The frames that a moment adds.
    pub fn push(&mut self, moment: &Moment) -> Vec<Frame> {
        let mut frames = Vec::new();
        if self.is_over() {
            return frames;
        }
        match moment {
            Moment::Started => {}
            Moment::Text { turn, text, .. } => {
                self.enter(*turn, &mut frames);
                self.tell(text, &mut frames);
            }
            Moment::Void { turn } => {
                self.enter(*turn, &mut frames);
                self.discard(&mut frames);
            }
            Moment::Reply(reply) => self.reply(reply, &mut frames),
            Moment::Result { call_id, text, is_error, .. } => {
                let shown = self.shown_id(call_id);
                self.results += 1;
                let id = format!("res_{}_{}", self.header.id, self.results);
                frames.push(frame(&json!({ "type": "TOOL_CALL_RESULT", "messageId": id, "toolCallId": shown,
                    "content": text })));
                self.shown.result(&id, &shown, text, *is_error);
            }
            Moment::Waits(wanted) => self.wait(wanted, &mut frames),
            Moment::Over(end) => self.over(end, &mut frames),
        }
        frames
    }

    /// True if nothing follows.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// The frames for a client that comes back after the moments pushed so far: the whole conversation, of which
    /// `before` is what the request held. Void texts are not in it.
    #[must_use]
    pub fn reconnect(&self, before: &[Value]) -> Vec<Frame> {
        let messages: Vec<&Value> = before.iter().chain(self.shown.messages()).collect();
        let mut frames = self.begin();
        frames.push(frame(&json!({ "type": "MESSAGES_SNAPSHOT", "messages": messages })));
        if !self.told.is_empty() {
            frames.extend([self.text_start(), self.text_content(&self.told)]);
        }
        frames.extend(self.end.clone());
        frames
    }

    fn enter(&mut self, turn: u32, frames: &mut Vec<Frame>) {
        if turn != self.turn {
            self.close(frames);
            (self.turn, self.void) = (turn, 0);
        }
    }

    fn tell(&mut self, text: &str, frames: &mut Vec<Frame>) {
        if text.is_empty() {
            return;
        }
        if self.told.is_empty() {
            frames.push(self.text_start());
        }
        frames.push(self.text_content(text));
        self.told.push_str(text);
    }

    /// Ends the open message. It counts.
    fn close(&mut self, frames: &mut Vec<Frame>) {
        if !self.told.is_empty() {
            let id = self.message_id();
            frames.push(frame(&json!({ "type": "TEXT_MESSAGE_END", "messageId": id })));
            self.shown.text(&id, &self.told);
            self.told.clear();
        }
    }

    /// Ends the open message. What the turn tells next is another one.
    fn discard(&mut self, frames: &mut Vec<Frame>) {
        if !self.told.is_empty() {
            frames.push(frame(&json!({ "type": "TEXT_MESSAGE_END", "messageId": self.message_id() })));
            self.told.clear();
            self.void += 1;
        }
    }

    fn reply(&mut self, reply: &Reply, frames: &mut Vec<Frame>) {
        self.enter(reply.turn, frames);
        self.tokens = Some(self.tokens.unwrap_or_default().plus(reply.tokens));
        if !reply.text.starts_with(&self.told) {
            self.discard(frames);
        }
        let rest = reply.text.get(self.told.len()..).unwrap_or_default();
        self.tell(rest, frames);
        self.close(frames);
        if !reply.text.is_empty() {
            self.last_text.clone_from(&reply.text);
        }
        let parent = self.message_id();
        for call in reply.calls.iter().filter(|call| call.by == Runner::Worker) {
            let own = &call.call.id;
            // An id is unique in its reply only.
            let is_new = self.calls.iter().all(|(_, shown)| shown != own);
            let shown = if is_new { own.clone() } else { format!("{own}_t{}", reply.turn) };
            self.calls.push((own.clone(), shown.clone()));
            self.call(&parent, &shown, &call.call, frames);
        }
    }

    /// The id under which a call of a worker is shown; its own, if it was shown in an earlier answer.
    fn shown_id(&self, call_id: &str) -> String {
        let found = self.calls.iter().rev().find(|(own, _)| own == call_id);
        found.map_or_else(|| call_id.to_owned(), |(_, shown)| shown.clone())
    }

    fn call(&mut self, parent: &str, id: &str, call: &ToolCall, frames: &mut Vec<Frame>) {
        frames.push(frame(&json!({ "type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": call.name,
            "parentMessageId": parent })));
        if !call.arguments.is_empty() {
            frames.push(frame(&json!({ "type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": call.arguments })));
        }
        frames.push(frame(&json!({ "type": "TOOL_CALL_END", "toolCallId": id })));
        self.shown.call(parent, id, call);
    }

    fn wait(&mut self, wanted: &[Wanted], frames: &mut Vec<Frame>) {
        self.close(frames);
        let parent = self.shown.parent(format!("{}_wait", self.message_id()));
        let (mut pending, mut interrupts) = (Vec::new(), Vec::new());
        for wanted in wanted {
            match wanted.kind {
                WantedKind::Result => {
                    self.call(&parent, &wanted.call.id, &wanted.call, frames);
                    pending.push(wanted.call.id.as_str());
                }
                WantedKind::Answer => {
                    self.call(&parent, &wanted.call.id, &wanted.call, frames);
                    interrupts.push(question(&wanted.call));
                }
                WantedKind::Approval => interrupts.push(self.approval(wanted)),
            }
        }
        let outcome = match (interrupts.is_empty(), pending.is_empty()) {
            (false, _) => json!({ "type": "interrupt", "interrupts": interrupts }),
            (true, false) => json!({ "type": "success", "pendingToolCallIds": pending }),
            (true, true) => json!({ "type": "success" }),
        };
        self.finish(&outcome, frames);
    }

    fn approval(&self, wanted: &Wanted) -> Value {
        let call = &wanted.call;
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!(call.arguments));
        let mut interrupt = json!({
            "id": approvals::call_id(&wanted.request_id),
            "reason": "tool_call",
            "message": format!("The tool {} waits for an approval.", call.name),
            "responseSchema": {
                "type": "object",
                "properties": { "approve": { "type": "boolean" }, "reason": { "type": "string" } },
                "required": ["approve"],
            },
            "metadata": { "tool": call.name, "arguments": arguments },
        });
        if self.calls.iter().any(|(own, _)| *own == call.id) {
            interrupt["toolCallId"] = json!(self.shown_id(&call.id));
        }
        interrupt
    }

    fn over(&mut self, end: &End, frames: &mut Vec<Frame>) {
        if let End::Finished { output } = end
            && !output.is_empty()
            && !is_same(&self.last_text, output)
        {
            self.enter(self.turn.wrapping_add(1), frames);
            self.tell(output, frames);
        }
        self.close(frames);
        match end {
            End::Finished { .. } | End::Cut => self.finish(&json!({ "type": "success" }), frames),
            End::Cancelled => self.finish(&json!({ "type": "cancelled" }), frames),
            End::Failed { code, .. } => {
                let message = failure(end).map(|fault| fault.message).unwrap_or_default();
                let mut error = json!({ "type": "RUN_ERROR", "message": message, "code": code });
                self.count(&mut error);
                self.last(frame(&error), frames);
            }
        }
    }

    fn finish(&mut self, outcome: &Value, frames: &mut Vec<Frame>) {
        let mut finished = self.event("RUN_FINISHED");
        finished["outcome"] = outcome.clone();
        self.count(&mut finished);
        self.last(frame(&finished), frames);
    }

    fn last(&mut self, end: Frame, frames: &mut Vec<Frame>) {
        frames.push(end.clone());
        self.end = Some(end);
    }

    /// Adds the tokens, if any reply has counted them.
    fn count(&self, event: &mut Value) {
        if let Some(tokens) = self.tokens {
            event["usage"] = json!([{
                "inputTokens": tokens.input,
                "outputTokens": tokens.output,
                "totalTokens": tokens.input.saturating_add(tokens.output),
                "cachedInputTokens": tokens.cached,
                "cacheWriteInputTokens": tokens.cache_write,
            }]);
        }
    }

    fn event(&self, kind: &str) -> Value {
        json!({ "type": kind, "threadId": self.header.thread_id, "runId": self.header.run_id })
    }

    fn message_id(&self) -> String {
        format!("msg_{}_{}_{}", self.header.id, self.turn, self.void)
    }

    fn text_start(&self) -> Frame {
        frame(&json!({ "type": "TEXT_MESSAGE_START", "messageId": self.message_id(), "role": "assistant" }))
    }

    fn text_content(&self, delta: &str) -> Frame {
        frame(&json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": self.message_id(), "delta": delta }))
    }
}

/// The interrupt for a question to the user.
fn question(call: &ToolCall) -> Value {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
    let mut interrupt = json!({ "id": call.id, "reason": "input_required", "toolCallId": call.id });
    if let Some(question) = arguments.get("question").and_then(Value::as_str) {
        interrupt["message"] = json!(question);
    }
    interrupt
}

fn frame(event: &Value) -> Frame {
    Frame { event: None, data: event.to_string() }
}

/// Clients of AG-UI take events alone.
impl Render for Stream {
    fn begin(&mut self) -> Vec<Frame> {
        Self::begin(self)
    }

    fn push(&mut self, moment: &Moment, _: i64) -> Result<Vec<Frame>, Broken> {
        Ok(Self::push(self, moment))
    }

    fn object(&self) -> Value {
        Value::Null
    }

    fn is_over(&self) -> bool {
        Self::is_over(self)
    }

    fn failure_is_told(&self) -> bool {
        true
    }

    fn tells_results(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
