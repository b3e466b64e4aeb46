//! The events of a response, made of what happened. Sequence numbers begin at 0 and are dense; an event depends on the
//! header and the moments before it alone, so that a resumed stream has the same bytes.
//!
//! Order: `response.created`, `response.queued` of a background response, `response.in_progress`, the items one after
//! the other, one end, `[DONE]`. The SDKs' helpers refuse a stream that does not begin with `response.created`.

mod tell;

use serde_json::{Value, json};

use super::{
    carried, items,
    object::{self, Header, Progress, Status},
};
use crate::{Broken, End, Frame, Moment, Render, Reply, Runner, Tokens, Wanted, WantedKind};

const COMMENTARY: &str = "commentary";
const FINAL: &str = "final_answer";

/// A response as it happens.
#[derive(Debug, Clone)]
pub struct Stream {
    header: Header,
    progress: Progress,
    /// Events so far.
    sequence: u64,
    is_running: bool,
    /// The message that is being told. It is the last of the output.
    open: Option<Message>,
    last: Option<LastReply>,
    /// Frames of the moment at hand.
    frames: Vec<Frame>,
}

/// A message that is being told.
#[derive(Debug, Clone)]
struct Message {
    id: String,
    turn: Option<u32>,
    text: String,
    /// True once the reply is recorded. The message stays open until what follows says if it was the last.
    is_whole: bool,
    /// Thoughts of the reply, which follow the message when its text was told before they were known.
    thoughts: Option<Thoughts>,
}

/// The readable thoughts of a reply.
#[derive(Debug, Clone)]
struct Thoughts {
    text: String,
    /// The reply in its provider's own blocks, for a caller that sends it back.
    content: Option<String>,
}

/// The last reply, as far as the end of a response depends on it.
#[derive(Debug, Clone)]
struct LastReply {
    text: String,
    has_calls: bool,
    is_cut: bool,
}

impl Stream {
    #[must_use]
    pub fn new(header: Header) -> Self {
        let status = if header.is_background { Status::Queued } else { Status::InProgress };
        let progress =
            Progress { status, output: Vec::new(), tokens: Tokens::default(), error: Value::Null, completed_at: None };
        Self { header, progress, sequence: 0, is_running: false, open: None, last: None, frames: Vec::new() }
    }

    /// The events before anything happened. Empty when they were given before.
    pub fn begin(&mut self) -> Vec<Frame> {
        if self.sequence == 0 {
            self.emit_response("response.created");
            if self.header.is_background {
                self.emit_response("response.queued");
            } else {
                self.run();
            }
        }
        std::mem::take(&mut self.frames)
    }

    /// The events of the next moment, which was at `at` (Unix seconds). Empty once the response is over.
    pub fn push(&mut self, moment: &Moment, at: i64) -> Vec<Frame> {
        if self.is_over() {
            return Vec::new();
        }
        self.frames = self.begin();
        self.run();
        match moment {
            Moment::Started | Moment::Result { .. } => {}
            Moment::Text { turn, offset, text } => self.text(*turn, *offset, text),
            Moment::Void { turn } => {
                if self.open.as_ref().is_some_and(|open| open.turn == Some(*turn)) {
                    self.void();
                }
            }
            Moment::Reply(reply) => self.reply(reply),
            Moment::Waits(wanted) => self.waits(wanted, at),
            Moment::Over(end) => self.over(end, at),
        }
        std::mem::take(&mut self.frames)
    }

    /// The response as it stands.
    #[must_use]
    pub fn object(&self) -> Value {
        let Some(open) = &self.open else { return object::render(&self.header, &self.progress) };
        let mut progress = self.progress.clone();
        if let Some(last) = progress.output.last_mut() {
            *last = items::message(&open.id, "in_progress", &open.text, self.announced_phase());
        }
        object::render(&self.header, &progress)
    }

    #[must_use]
    pub fn is_over(&self) -> bool {
        self.progress.status.is_over()
    }

    fn run(&mut self) {
        if !self.is_running {
            self.is_running = true;
            self.progress.status = Status::InProgress;
            self.emit_response("response.in_progress");
        }
    }

    fn text(&mut self, turn: u32, offset: usize, text: &str) {
        self.close_other(turn);
        let told = self.open.as_ref().map_or(0, |open| open.text.len());
        // A portion that was told before, or its part that was, is not told again.
        let fresh = told.checked_sub(offset).map_or(Some(text), |known| text.get(known..)).unwrap_or_default();
        if !fresh.is_empty() {
            self.tell(Some(turn), fresh);
        }
    }

    fn reply(&mut self, reply: &Reply) {
        self.progress.tokens = self.progress.tokens.plus(reply.tokens);
        self.close_other(reply.turn);
        if self.open.as_ref().is_some_and(|open| !reply.text.starts_with(&open.text)) {
            self.void();
        }
        let mut thoughts = self.thoughts(reply);
        if self.open.is_none()
            && let Some(thoughts) = thoughts.take()
        {
            self.tell_thoughts(&thoughts);
        }
        let told = self.open.as_ref().map_or(0, |open| open.text.len());
        let rest = reply.text.get(told..).unwrap_or_default();
        if !rest.is_empty() {
            self.tell(Some(reply.turn), rest);
        }
        if let Some(open) = &mut self.open {
            open.is_whole = true;
            open.thoughts = thoughts;
        }
        let has_calls = !reply.calls.is_empty();
        if has_calls {
            self.close("completed", COMMENTARY);
        }
        if self.header.one_call {
            for call in reply.calls.iter().filter(|call| call.by == Runner::Caller) {
                self.tell_call(&call.call);
            }
        }
        self.last = Some(LastReply { text: reply.text.clone(), has_calls, is_cut: reply.is_cut });
    }

    /// The thoughts of a reply. Its blocks are given to the caller of one call alone: of a run, they name calls that
    /// the caller never sees.
    fn thoughts(&self, reply: &Reply) -> Option<Thoughts> {
        let native = reply.native.as_ref()?;
        let text = object::thoughts(native)?;
        let content = self.header.one_call.then(|| carried::content_of(native)).flatten();
        Some(Thoughts { text, content })
    }

    fn waits(&mut self, wanted: &[Wanted], at: i64) {
        self.close_as_left();
        for wanted in wanted {
            match wanted.kind {
                WantedKind::Result | WantedKind::Answer => self.tell_call(&wanted.call),
                WantedKind::Approval => {
                    let item = items::approval_request(wanted);
                    let index = self.add(item.clone());
                    self.finish(index, item);
                }
            }
        }
        self.end(Status::Completed, at);
    }

    fn over(&mut self, end: &End, at: i64) {
        let is_cut = self.last.as_ref().is_some_and(|last| last.is_cut);
        self.progress.error = object::error(end);
        match end {
            End::Finished { output } => {
                self.finish_output(output, if is_cut { "incomplete" } else { "completed" });
                self.end(if is_cut { Status::Incomplete } else { Status::Completed }, at);
            }
            End::Cut => {
                self.close("incomplete", FINAL);
                self.end(Status::Incomplete, at);
            }
            End::Failed { .. } => {
                self.close_as_left();
                self.end(Status::Failed, at);
            }
            End::Cancelled => {
                self.close_as_left();
                self.end(Status::Cancelled, at);
            }
        }
    }

    /// Closes the message that tells the output, or tells the output in a message of its own.
    fn finish_output(&mut self, output: &str, status: &str) {
        if let Some(open) = &self.open {
            // Without the record of its reply, a message may lack the end of its text.
            let rest = output.strip_prefix(&open.text).filter(|_| !open.is_whole).map(str::to_owned);
            if rest.is_some() || is_same(&open.text, output) {
                self.tell(None, rest.as_deref().unwrap_or_default());
                self.close(status, FINAL);
                return;
            }
        }
        self.close_or_void();
        let is_told = self
            .last
            .as_ref()
            .is_some_and(|last| is_same(&last.text, output) || (self.header.one_call && last.has_calls));
        if self.progress.output.is_empty() || !(is_told || output.is_empty()) {
            self.tell(None, output);
            self.close(status, FINAL);
        }
    }

    /// Closes a message of another turn, or one whose reply is recorded.
    fn close_other(&mut self, turn: u32) {
        if self.open.as_ref().is_some_and(|open| open.is_whole || open.turn != Some(turn)) {
            self.close_or_void();
        }
    }

    /// Closes a message whose reply is recorded; any other is void, since the run went on without it.
    fn close_or_void(&mut self) {
        if self.open.as_ref().is_some_and(|open| open.is_whole) {
            self.close("completed", COMMENTARY);
        } else {
            self.void();
        }
    }

    /// Closes the message as incomplete, with its text, which readers of the stream have. The object has the item
    /// without the text: SDKs join all texts of a response into its `output_text`, and the turn is told again.
    fn void(&mut self) {
        if self.open.is_none() {
            return;
        }
        let index = self.last_index();
        self.close("incomplete", COMMENTARY);
        if let Some(item) = self.progress.output.get_mut(index) {
            item["content"] = json!([]);
        }
    }

    /// Closes the message that an end follows which is not its own: it is no final answer.
    fn close_as_left(&mut self) {
        let is_whole = self.open.as_ref().is_some_and(|open| open.is_whole);
        self.close(if is_whole { "completed" } else { "incomplete" }, COMMENTARY);
    }

    fn end(&mut self, status: Status, at: i64) {
        self.progress.status = status;
        self.progress.completed_at = (status == Status::Completed).then_some(at);
        self.emit_response(status.event());
        self.frames.push(Frame { event: None, data: "[DONE]".to_owned() });
    }
}

/// True if a text tells the output: the same text, or the same JSON in another spelling.
fn is_same(told: &str, output: &str) -> bool {
    let json = |text: &str| serde_json::from_str::<Value>(text).ok().filter(|json| json.is_object() || json.is_array());
    told.trim() == output.trim() || json(told).is_some_and(|told| json(output) == Some(told))
}

impl Render for Stream {
    fn begin(&mut self) -> Vec<Frame> {
        Self::begin(self)
    }

    fn push(&mut self, moment: &Moment, at: i64) -> Result<Vec<Frame>, Broken> {
        Ok(Self::push(self, moment, at))
    }

    fn object(&self) -> Value {
        Self::object(self)
    }

    fn is_over(&self) -> bool {
        Self::is_over(self)
    }

    fn failure_is_told(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
