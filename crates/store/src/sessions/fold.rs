//! What an ended execution adds to the transcript of its session. Pure.
//!
//! Whole ticks only: a reply stands with the results of all its calls, in the order of the calls, or not at all,
//! because providers refuse a call without its result.

use std::collections::HashMap;

use longhaul_sdk::ToolEffect;
use longhaul_shared::domain::{ExecutionId, message::Message};
use serde::Deserialize;
use serde_json::Value;

use super::SessionMessage;
use crate::{
    StoreError,
    journal::{JournalStep, StepKind, StepState},
};

/// Begin of the note that tells the model of effects of a message that was withdrawn.
const WITHDRAWN: &str = "[The previous message was withdrawn. These calls had already run: ";

/// A message with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) seq: i32,
    pub(super) bytes: Vec<u8>,
}

impl Entry {
    /// Adds the message to `context`, in the place of those that it replaces.
    pub(super) fn join(self, context: &mut Vec<Self>, replaces: Option<(i32, i32)>) {
        let Some((first, last)) = replaces else { return context.push(self) };
        let place = context.iter().position(|entry| entry.seq == first).unwrap_or(context.len());
        let end = context.iter().position(|entry| entry.seq == last).map_or(place, |end| end + 1);
        context.splice(place..end.max(place), [self]);
    }
}

/// An ended message of a caller.
pub(super) struct Turn<'a> {
    pub(super) execution: ExecutionId,
    /// JSON text of the input, which holds the caller's message.
    pub(super) input: &'a str,
    pub(super) is_rolled_back: bool,
}

/// The transcript under construction.
pub(super) struct Fold {
    /// As the model sees it: recorded compressions name positions in it.
    context: Vec<Entry>,
    last_seq: i32,
    added: Vec<SessionMessage>,
}

/// Members of step bodies that the fold reads.
#[derive(Deserialize)]
struct CompressionBody {
    from: usize,
    to: usize,
}

#[derive(Deserialize)]
struct CallBody {
    effect: Option<ToolEffect>,
}

impl Fold {
    pub(super) fn new(context: Vec<Entry>, last_seq: i32) -> Self {
        Self { context, last_seq, added: Vec::new() }
    }

    /// Number of the last message, and the messages added.
    pub(super) fn finish(self) -> (i32, Vec<SessionMessage>) {
        (self.last_seq, self.added)
    }

    /// Adds what an execution said; of one that was withdrawn, a note of its effects.
    ///
    /// # Errors
    /// A step cannot be read.
    pub(super) fn add(&mut self, turn: &Turn<'_>, steps: &[JournalStep]) -> Result<(), StoreError> {
        let live: Vec<&JournalStep> = steps.iter().filter(|step| step.state == StepState::Live).collect();
        if turn.is_rolled_back {
            return self.note_effects(turn, steps);
        }
        if !live.iter().any(|step| step.kind == StepKind::Prompt) {
            // It ended before its prompt was recorded: the caller's message stays.
            let message = Message::user(message_of(turn.input));
            return self.push(turn, message.to_bytes().map_err(corrupt)?, None);
        }
        let mut steps = live.as_slice();
        while let Some((step, rest)) = steps.split_first() {
            let calls = rest.iter().take_while(|step| step.kind == StepKind::Call).count();
            match step.kind {
                StepKind::Turn => {
                    let Some(messages) = tick(step, &rest[..calls])? else { return Ok(()) };
                    for bytes in messages {
                        self.push(turn, bytes, None)?;
                    }
                    steps = &rest[calls..];
                }
                StepKind::Compression => {
                    let body: CompressionBody = serde_json::from_slice(&step.body).map_err(corrupt)?;
                    let replaced = self.context.get(body.from..body.to).unwrap_or_default();
                    let replaces = replaced.first().zip(replaced.last()).map(|(first, last)| (first.seq, last.seq));
                    for bytes in &step.appends {
                        self.push(turn, bytes.to_vec(), replaces)?;
                    }
                    steps = rest;
                }
                StepKind::Prompt | StepKind::Verdict | StepKind::Correction => {
                    for bytes in &step.appends {
                        self.push(turn, bytes.to_vec(), None)?;
                    }
                    steps = rest;
                }
                StepKind::Retrieval | StepKind::Call => steps = rest,
            }
        }
        Ok(())
    }

    fn note_effects(&mut self, turn: &Turn<'_>, steps: &[JournalStep]) -> Result<(), StoreError> {
        let mut tools = Vec::new();
        for step in steps.iter().filter(|step| step.kind == StepKind::Call && step.state != StepState::Spent) {
            let body: CallBody = serde_json::from_slice(&step.body).map_err(corrupt)?;
            if body.effect.is_some_and(|effect| effect != ToolEffect::ReadOnly) {
                tools.push(step.name.as_deref().unwrap_or_default());
            }
        }
        if tools.is_empty() {
            return Ok(());
        }
        let note = Message::user(format!("{WITHDRAWN}{}]", tools.join(", ")));
        self.push(turn, note.to_bytes().map_err(corrupt)?, None)
    }

    fn push(&mut self, turn: &Turn<'_>, bytes: Vec<u8>, replaces: Option<(i32, i32)>) -> Result<(), StoreError> {
        self.last_seq = self.last_seq.checked_add(1).ok_or_else(|| StoreError::Corrupt("a session is full".into()))?;
        Entry { seq: self.last_seq, bytes: bytes.clone() }.join(&mut self.context, replaces);
        self.added.push(SessionMessage { seq: self.last_seq, execution: turn.execution, bytes, replaces });
        Ok(())
    }
}

/// The messages of a turn and of its calls' results, in the order of the calls; `None` if a result is missing.
fn tick(turn: &JournalStep, calls: &[&JournalStep]) -> Result<Option<Vec<Vec<u8>>>, StoreError> {
    let mut results = HashMap::new();
    for bytes in calls.iter().flat_map(|call| &call.appends) {
        if let Message::Tool { call_id, .. } = Message::from_bytes(bytes).map_err(corrupt)? {
            results.insert(call_id, bytes.to_vec());
        }
    }
    let mut messages: Vec<Vec<u8>> = turn.appends.iter().map(|bytes| bytes.to_vec()).collect();
    for bytes in &turn.appends {
        for call in Message::from_bytes(bytes).map_err(corrupt)?.calls() {
            match results.remove(&call.id) {
                Some(result) => messages.push(result),
                None => return Ok(None),
            }
        }
    }
    Ok(Some(messages))
}

/// The caller's text in an execution's input.
fn message_of(input: &str) -> String {
    let input: Value = serde_json::from_str(input).unwrap_or_default();
    input.get("prompt").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn corrupt(error: serde_json::Error) -> StoreError {
    StoreError::Corrupt(format!("a message of a session cannot be read: {error}"))
}
