//! One answer of a run, as chat completions and messages tell it: the texts of its turns, then calls, then an end.

use longhaul_domain::{ToolCall, message::NativeFormat};
use serde_json::{Value, json};

use crate::{End, Fault, FaultKind, Moment, Reply, Runner, Tokens, Wanted, WantedKind, approvals};

/// Between the texts of two turns of one answer.
const BETWEEN_TURNS: &str = "\n\n";

/// The facts that an answer states beside its moments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Id of the execution: 32 hexadecimal digits.
    pub id: String,
    /// Unix time in seconds.
    pub created_at: i64,
    /// The model's name, as the request has it.
    pub model: String,
    /// True for one call of a model: its one reply is the answer, and the calls in it are the caller's.
    pub one_call: bool,
    /// Chat completions only: a last chunk states the tokens.
    pub include_usage: bool,
}

/// A part that a moment adds to an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Addition {
    Text(String),
    /// A block of thinking in the wire format of Anthropic.
    Native(Value),
    Call(ToolCall),
    End,
}

/// The state of an answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    one_call: bool,
    /// The texts of the recorded turns, none of them empty.
    texts: Vec<String>,
    /// The blocks of the only reply of a model call.
    pub(crate) native: Option<Vec<Value>>,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) tokens: Tokens,
    pub(crate) is_cut: bool,
    pub(crate) is_over: bool,
    pub(crate) failure: Option<Fault>,
    is_broken: bool,
    has_reply: bool,
    /// True if any text was told before the current turn.
    has_earlier_text: bool,
    /// The text of the current turn, as far as it was told.
    told: String,
    /// Bytes of `told` that the current attempt at the turn has written.
    seen: usize,
    turn: u32,
}

impl Answer {
    pub(crate) fn new(one_call: bool) -> Self {
        Self { one_call, ..Self::default() }
    }

    /// The whole text.
    pub(crate) fn text(&self) -> String {
        self.texts.join(BETWEEN_TURNS)
    }

    /// Takes a moment. The state is right after an error too, for an answer that is told whole.
    ///
    /// # Errors
    /// A stream of the answer is broken; with the failure of the run, if it failed.
    pub(crate) fn push(&mut self, moment: &Moment) -> Result<Vec<Addition>, Option<Fault>> {
        if self.is_over {
            return Ok(Vec::new());
        }
        let mut added = Vec::new();
        let is_told = match moment {
            Moment::Started | Moment::Result { .. } => true,
            Moment::Text { turn, text, .. } => {
                self.enter(*turn);
                self.portion(text, &mut added)
            }
            Moment::Void { turn } => {
                self.enter(*turn);
                self.seen = 0;
                true
            }
            Moment::Reply(reply) => self.reply(reply, &mut added),
            Moment::Waits(wanted) => {
                self.wait(wanted, &mut added);
                true
            }
            Moment::Over(end) => self.end(end, &mut added),
        };
        self.is_broken |= !is_told;
        match (&self.failure, self.is_broken) {
            (None, false) => Ok(added),
            (failure, _) => Err(failure.clone()),
        }
    }

    fn enter(&mut self, turn: u32) {
        if turn != self.turn {
            self.has_earlier_text |= !self.told.is_empty();
            self.told.clear();
            (self.seen, self.turn) = (0, turn);
        }
    }

    /// Takes what follows in the turn's text. False if it contradicts what was told.
    fn portion(&mut self, text: &str, added: &mut Vec<Addition>) -> bool {
        let again = self.told.get(self.seen..).unwrap_or_default();
        let same = again.len().min(text.len());
        if again.as_bytes().get(..same) != text.as_bytes().get(..same) {
            return false;
        }
        self.seen += same;
        self.tell(text.get(same..).unwrap_or_default(), added);
        true
    }

    /// Tells a further part of the current turn's text.
    fn tell(&mut self, text: &str, added: &mut Vec<Addition>) {
        if text.is_empty() {
            return;
        }
        let between = if self.told.is_empty() && self.has_earlier_text { BETWEEN_TURNS } else { "" };
        added.push(Addition::Text(format!("{between}{text}")));
        self.told.push_str(text);
        self.seen = self.told.len();
    }

    fn reply(&mut self, reply: &Reply, added: &mut Vec<Addition>) -> bool {
        self.enter(reply.turn);
        self.tokens = self.tokens.plus(reply.tokens);
        self.is_cut = reply.is_cut;
        self.has_reply = true;
        if !reply.text.is_empty() {
            self.texts.push(reply.text.clone());
        }
        let blocks = self.one_call.then(|| native_blocks(reply)).flatten();
        let is_whole = self.told.is_empty();
        if let (Some(blocks), true) = (&blocks, is_whole) {
            self.tell_blocks(blocks, added);
        }
        let rest = reply.text.strip_prefix(self.told.as_str());
        let Some(rest) = rest.map(str::to_owned) else {
            self.native = blocks;
            self.take_calls(reply, &mut Vec::new());
            return false;
        };
        self.tell(&rest, added);
        if let (Some(blocks), false) = (&blocks, is_whole) {
            added.extend(blocks.iter().filter(|block| text_of(block).is_none()).cloned().map(Addition::Native));
        }
        self.native = blocks;
        self.take_calls(reply, added);
        true
    }

    fn tell_blocks(&mut self, blocks: &[Value], added: &mut Vec<Addition>) {
        for block in blocks {
            match text_of(block) {
                Some(text) => self.tell(text, added),
                None => added.push(Addition::Native(block.clone())),
            }
        }
    }

    fn take_calls(&mut self, reply: &Reply, added: &mut Vec<Addition>) {
        let own = reply.calls.iter().filter(|call| self.one_call && call.by == Runner::Caller);
        let own: Vec<ToolCall> = own.map(|call| call.call.clone()).collect();
        added.extend(own.iter().cloned().map(Addition::Call));
        self.calls.extend(own);
    }

    fn wait(&mut self, wanted: &[Wanted], added: &mut Vec<Addition>) {
        for wanted in wanted {
            let call = match wanted.kind {
                WantedKind::Result | WantedKind::Answer => wanted.call.clone(),
                WantedKind::Approval => approvals::call(wanted),
            };
            added.push(Addition::Call(call.clone()));
            self.calls.push(call);
        }
        self.is_over = true;
        self.is_cut = false;
        added.push(Addition::End);
    }

    fn end(&mut self, end: &End, added: &mut Vec<Addition>) -> bool {
        self.is_over = true;
        match end {
            End::Finished { output } => {
                let last = self.texts.last().map(String::as_str).unwrap_or_default();
                let is_answer = (self.one_call && self.has_reply) || output.is_empty() || is_same(last, output);
                if !is_answer {
                    self.enter(self.turn.wrapping_add(1));
                    self.tell(output, added);
                    self.texts.push(output.clone());
                }
            }
            End::Cut => self.is_cut = true,
            End::Failed { .. } | End::Cancelled => {
                self.failure = failure(end);
                return false;
            }
        }
        added.push(Addition::End);
        true
    }
}

/// True if the output is the text, or the same JSON written otherwise.
pub(crate) fn is_same(text: &str, output: &str) -> bool {
    let json = |text: &str| serde_json::from_str::<Value>(text).ok();
    text.trim() == output.trim() || json(text).is_some_and(|value| Some(value) == json(output))
}

/// The fault of a run that failed.
pub(crate) fn failure(end: &End) -> Option<Fault> {
    let fault = |kind, message: &str, code: &str| {
        Some(Fault { kind, message: message.to_owned(), param: None, code: Some(code.to_owned()) })
    };
    match end {
        End::Finished { .. } | End::Cut => None,
        End::Cancelled => fault(FaultKind::Conflict, "The run was cancelled.", "cancelled"),
        End::Failed { class, code, summary, .. } => {
            let kind = match (class.as_str(), code.as_str()) {
                (_, "context_limit_exceeded" | "files_too_large" | "model_request_refused" | "invalid_definition") => {
                    FaultKind::Invalid
                }
                (_, "budget_exhausted" | "model_quota_exhausted" | "model_rate_limited") => FaultKind::RateLimited,
                ("transient", _) | (_, "provider_down") => FaultKind::Unavailable,
                _ => FaultKind::Internal,
            };
            fault(kind, summary, code)
        }
    }
}

/// The reply's text and thinking in the wire format of Anthropic, if it has such blocks. Their texts are the reply's.
fn native_blocks(reply: &Reply) -> Option<Vec<Value>> {
    let native = reply.native.as_ref().filter(|native| native.format == NativeFormat::Anthropic)?;
    let blocks: Option<Vec<Value>> = native.blocks.iter().map(|block| serde_json::from_str(block).ok()).collect();
    let mut blocks = blocks?;
    // Calls are told by themselves. Requests take no blocks of other kinds back.
    blocks.retain(|block| matches!(kind_of(block), "text" | "thinking" | "redacted_thinking"));
    // A reply's blank texts are not among its blocks.
    if blocks.iter().filter_map(text_of).collect::<String>() != reply.text {
        blocks.retain(|block| text_of(block).is_none());
        blocks.push(json!({ "type": "text", "text": reply.text }));
    }
    Some(blocks)
}

/// The text of a block of text.
pub(crate) fn text_of(block: &Value) -> Option<&str> {
    block.get("text").and_then(Value::as_str).filter(|_| kind_of(block) == "text")
}

/// The member `type` of a block.
pub(crate) fn kind_of(block: &Value) -> &str {
    block.get("type").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests;
