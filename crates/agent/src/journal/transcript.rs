//! What a model request is composed of: the messages, those for the next turn, and the values that calls can read.
//!
//! The final output as a call is held back with the results beside it until the validators have judged it, so that
//! the transcript has them in call order. A resume follows the recorded messages even if the code now says something
//! else (core-rules 7), and reports the difference.

use std::sync::Arc;

use longhaul_domain::ToolCall;
use longhaul_llm::Message;
use longhaul_references::{CallWrite, Path, PlannedCall, StateLimits, StateLog, StateWrite, value_of};
use longhaul_sdk::{Step, ToolScratchpad};
use longhaul_store::history::journal::{Hash, JournalStep, MessageBytes};
use serde_json::{Value, json};

use super::{Agent, Journal, call_record::Answered, detached::DETACHED_FAILED, message_bytes, recorded_message};
use crate::messages::Messages;

/// The conversation of one execution.
pub struct Transcript {
    pub(super) messages: Messages,
    /// User messages for the next turn.
    pub(super) said: Vec<UserMessage>,
    pub(super) output: Option<OpenOutput>,
    /// Compressions since the last reply.
    pub(super) compressions: u32,
    /// The model's context window in tokens, as far as it was learned.
    pub(super) window: Option<u64>,
    /// State written by the calls so far.
    pub(crate) state: StateLog,
    pub(crate) scratchpad: Arc<ToolScratchpad>,
}

/// A user message for the next turn.
#[derive(Debug)]
pub(super) struct UserMessage {
    pub(super) text: String,
    by: Speaker,
}

impl UserMessage {
    pub(super) fn into_message(self) -> Message {
        match self.by {
            Speaker::Definition => Message::user(self.text),
            Speaker::Loop => Message::notice(self.text),
        }
    }
}

/// Source of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaker {
    /// The definition's code: the same on every resume, unless the code changed.
    Definition,
    /// Longhaul itself.
    Loop,
}

/// An output submitted by the model, with the results of the other calls of its tick.
#[derive(Debug)]
pub(super) struct OpenOutput {
    call: ToolCall,
    before: Vec<Answered>,
    after: Vec<Answered>,
    is_readable: bool,
    /// A validator's refusal.
    feedback: Option<String>,
}

impl Transcript {
    /// An empty transcript, which `Journal::open` gives the execution's input.
    pub(super) fn new() -> Self {
        Self {
            messages: Messages::default(),
            said: Vec::new(),
            output: None,
            compressions: 0,
            window: None,
            state: StateLog::new(Value::Null, None, StateLimits { value_bytes: 0, total_bytes: 0 }),
            scratchpad: Arc::default(),
        }
    }

    /// The messages so far.
    pub(crate) fn messages(&self) -> impl Iterator<Item = &Message> + Clone {
        self.messages.all().iter().map(|message| &**message)
    }

    /// Adds a message. The returned bytes belong in the step that appends it.
    pub(super) fn append(&mut self, message: Message) -> Step<MessageBytes> {
        let (hash, bytes) = message_bytes(&message)?;
        self.messages.push(message, hash);
        Ok(bytes)
    }

    pub(super) fn replay_appends(&mut self, step: &JournalStep) -> Step<()> {
        for bytes in &step.appends {
            let (message, hash) = recorded_message(bytes)?;
            self.replay_message(message, hash);
        }
        Ok(())
    }

    /// Appends the results of a tick in call order, not in the order of completion, so that a replay builds the
    /// same transcript and scratchpad. Later calls can read them as `†calls.<id>`.
    pub(crate) fn close_tick(&mut self, agent: &Agent, answers: Vec<Answered>) {
        for answered in answers {
            self.push_answer(agent.config.references, answered);
        }
    }

    pub(super) fn push_answer(&mut self, is_readable: bool, answered: Answered) {
        for (tool, value) in answered.scratchpad {
            self.scratchpad.record(tool, value);
        }
        if let Message::Tool { call_id, text, is_error: false, .. } = &answered.message
            && is_readable
        {
            self.state.finish_call(call_id, answered.value.unwrap_or_else(|| value_of(text)));
        }
        self.messages.push(answered.message, answered.hash);
    }

    /// Writes a result into the state; does nothing if the call has no destination. `chosen` is the tool's choice
    /// among the call's destinations.
    pub(super) fn write(
        &mut self,
        tick: u32,
        call: &ToolCall,
        planned: &PlannedCall,
        chosen: Option<&str>,
        value: Value,
    ) -> Result<Vec<StateWrite>, String> {
        let Some(destination) = planned.destination() else { return Ok(Vec::new()) };
        let chosen = chosen.map(str::parse::<Path>).transpose();
        let chosen = chosen.map_err(|error| format!("the tool named a place for its result that is none: {error}"))?;
        let write = CallWrite {
            tick,
            call_id: call.id.clone(),
            instance: planned.instance().cloned(),
            paths: destination.choose(chosen.as_ref())?,
            method: planned.method(),
            value,
        };
        self.state.write(write).map_err(|error| error.to_string())
    }

    /// Adds a notice to the next turn.
    pub(crate) fn say(&mut self, message: &str) {
        self.said.push(UserMessage { text: message.to_owned(), by: Speaker::Loop });
    }

    /// Adds a user message from the definition's code to the next turn.
    pub(crate) fn say_own(&mut self, message: &str) {
        self.said.push(UserMessage { text: message.to_owned(), by: Speaker::Definition });
    }

    /// Records a validator's refusal of the open output, if there is one.
    pub(super) fn refuse_output(&mut self, feedback: Option<&str>) {
        if let Some(open) = &mut self.output {
            open.feedback = feedback.map(str::to_owned);
        }
    }

    /// The feedback as the output call's result; `None` if the output was not a call.
    pub(super) fn output_result(&self, feedback: &str) -> Option<Message> {
        let open = self.output.as_ref()?;
        let (call_id, name) = (open.call.id.clone(), open.call.name.clone());
        Some(Message::Tool { call_id, name, text: feedback.to_owned(), files: Vec::new(), is_error: true })
    }

    /// The result of an open output that the conversation continues after: its refusal, or `accepted`.
    pub(super) fn unanswered_output(&self) -> Option<Message> {
        let open = self.output.as_ref()?;
        if let Some(feedback) = &open.feedback {
            return self.output_result(feedback);
        }
        let (call_id, name) = (open.call.id.clone(), open.call.name.clone());
        Some(Message::Tool {
            call_id,
            name,
            text: json!({ "status": "accepted" }).to_string(),
            files: Vec::new(),
            is_error: false,
        })
    }

    /// Appends `result` with the held results, and returns its bytes for the next step.
    pub(super) fn settle_output(&mut self, result: Message) -> Step<MessageBytes> {
        let (hash, bytes) = message_bytes(&result)?;
        self.replay_message(result, hash);
        Ok(bytes)
    }

    /// Appends a message; the result of an open output takes the held results with it.
    pub(super) fn replay_message(&mut self, message: Message, hash: Hash) {
        let is_result = matches!(&message, Message::Tool { .. });
        let Some(OpenOutput { before, after, is_readable, .. }) = self.output.take_if(|_| is_result) else {
            self.messages.push(message, hash);
            return;
        };
        for answered in before {
            self.push_answer(is_readable, answered);
        }
        self.messages.push(message, hash);
        for answered in after {
            self.push_answer(is_readable, answered);
        }
    }
}

impl Journal {
    /// Holds the results of a tick whose call at `index` is the output, until validators have judged it.
    pub(crate) fn hold_output(&mut self, agent: &Agent, call: ToolCall, mut others: Vec<Answered>, index: usize) {
        let after = others.split_off(index.min(others.len()));
        let is_readable = agent.config.references;
        self.writer.open_calls.clear();
        self.transcript.output = Some(OpenOutput { call, before: others, after, is_readable, feedback: None });
    }

    /// Compares the definition's messages before this turn with the recorded ones, and reports a difference.
    /// Ignores Longhaul's own messages: one resume may find a detached failure earlier than another.
    pub(super) fn check_said(&mut self, step: &JournalStep) -> Step<()> {
        let (own, notices): (Vec<UserMessage>, Vec<UserMessage>) =
            std::mem::take(&mut self.transcript.said).into_iter().partition(|said| said.by == Speaker::Definition);
        let messages = step.appends.iter().map(recorded_message).collect::<Step<Vec<_>>>()?;
        let is_notice =
            |text: &str| text.starts_with(DETACHED_FAILED) || notices.iter().any(|notice| notice.text == text);
        let recorded = messages.iter().filter_map(|(message, _)| match message {
            Message::User { .. } if !is_notice(&message.text()) => Some(message.text()),
            Message::User { .. }
            | Message::Notice { .. }
            | Message::System { .. }
            | Message::Given { .. }
            | Message::Assistant { .. }
            | Message::Tool { .. } => None,
        });
        // The shared steps of a fork belong to another input.
        if !self.writer.scope.is_fork && !recorded.eq(own.iter().map(|said| said.text.as_str())) {
            self.writer.diverged(json!({ "turn": self.writer.turns, "part": "message" }));
        }
        Ok(())
    }
}
