//! What an ended execution adds to the transcript of its session. Pure.
//!
//! Whole ticks only: a reply stands with the results of all its calls, in the order of the calls, or not at all,
//! because providers refuse a call without its result. A message that was interrupted is complete as far as it came:
//! its last calls without a result get one that says so.

use std::collections::HashMap;

use longhaul_domain::{
    ExecutionId, input_parts,
    message::{FileRef, Message},
};
use longhaul_sdk::ToolEffect;
use serde::Deserialize;
use serde_json::Value;

use super::erasure::tombstone;
use crate::{
    StoreError,
    history::journal::{JournalStep, StepKind, StepState},
};

/// Begin of the note that tells the model of effects of a message that was withdrawn.
const WITHDRAWN: &str = "[The previous message was withdrawn. These calls had already run: ";
/// Begin of the note about calls of a reply that was cut off before it was recorded.
const CUT_OFF: &str = "[The reply was interrupted. These calls may have run: ";
/// Results of calls that an interrupt left without one.
const NOT_RUN: &str = "[interrupted before it ran]";
const MAY_HAVE_RUN: &str = "[interrupted before its result was recorded; it may have run]";

/// One message of a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionMessage {
    /// Number in the session, from 1.
    pub seq: i32,
    /// Execution that said it.
    pub execution: ExecutionId,
    /// Exact bytes (`domain::message`).
    pub bytes: Vec<u8>,
    /// First and last number of the messages that it stands for, if it is a summary.
    pub replaces: Option<(i32, i32)>,
    /// True if it is a reply that an interrupt cut off.
    pub is_interrupted: bool,
    /// True if its text was erased; the bytes are a tombstone's.
    pub is_erased: bool,
}

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
pub(super) struct Turn {
    pub(super) execution: ExecutionId,
    /// The input, which holds the caller's message.
    pub(super) input: Value,
    /// Files that the message names.
    pub(super) files: Vec<FileRef>,
    pub(super) is_rolled_back: bool,
    /// True if its execution was cancelled.
    pub(super) is_cancelled: bool,
    /// True if that was an interrupt of the session.
    pub(super) is_interrupted: bool,
    /// True if its texts were erased before they became part of the transcript.
    pub(super) is_erased: bool,
    /// True if a message before it was erased while it was answered, so that its summaries are erased.
    pub(super) holds_erased: bool,
}

/// The transcript under construction.
pub(super) struct Fold {
    /// As the model sees it: recorded compressions name positions in it.
    context: Vec<Entry>,
    last_seq: i32,
    added: Vec<SessionMessage>,
}

/// A message by its part in the transcript.
enum Kind {
    Said,
    /// A reply that an interrupt cut off.
    Interrupted,
    /// Stands for the messages of these numbers.
    Summary((i32, i32)),
    /// A tombstone, and what it stands for if it was a summary.
    Erased(Option<(i32, i32)>),
}

/// Members of step bodies that the fold reads.
#[derive(Deserialize)]
struct CompressionBody {
    from: usize,
    to: usize,
}

#[derive(Deserialize)]
struct TurnBody {
    #[serde(default)]
    is_interrupted: bool,
    /// Text of a reply of which only the begin was recorded.
    #[serde(default)]
    text: String,
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
    #[expect(clippy::too_many_lines, reason = "one arm for each kind of step")]
    pub(super) fn add(&mut self, turn: &Turn, steps: &[JournalStep]) -> Result<(), StoreError> {
        if turn.is_rolled_back {
            return self.note_effects(turn, steps.iter(), WITHDRAWN);
        }
        if turn.is_erased {
            // Its journal has tombstones, from which no message can be made.
            return self.push(turn, tombstone(None)?, Kind::Erased(None));
        }
        let counts = |step: &&JournalStep| match step.state {
            StepState::Live => true,
            StepState::Intent => turn.is_cancelled,
            StepState::Spent => false,
        };
        // A judgement about the outputs of children is no part of the conversation.
        let is_said = |step: &&JournalStep| step.kind != StepKind::Aggregation;
        let live: Vec<&JournalStep> = steps.iter().filter(counts).filter(is_said).collect();
        if !live.iter().any(|step| step.kind == StepKind::Prompt) {
            // It ended before its prompt was recorded. The caller's message stays, unless the caller took it back.
            if turn.is_cancelled && !turn.is_interrupted {
                return Ok(());
            }
            let parts = input_parts::parts(&turn.input, &turn.files);
            let parts = parts.map_err(|id| StoreError::Corrupt(format!("file {id} of a message is not attached")))?;
            let message = Message::User { parts };
            return self.push(turn, message.to_bytes().map_err(corrupt)?, Kind::Said);
        }
        let mut steps = live.as_slice();
        // A call that is refused as it is read is recorded before its turn.
        let mut early = HashMap::new();
        while let Some((step, rest)) = steps.split_first() {
            let calls = rest.iter().take_while(|step| step.kind == StepKind::Call).count();
            match step.kind {
                StepKind::Turn => {
                    let body: TurnBody = serde_json::from_slice(&step.body).map_err(corrupt)?;
                    if step.state == StepState::Intent {
                        return self.cut_off(turn, step, &body, &rest[..calls]);
                    }
                    let Some(messages) = tick(step, &rest[..calls], turn.is_cancelled, &mut early)? else {
                        return Ok(());
                    };
                    let reply = step.appends.len().checked_sub(1).filter(|_| body.is_interrupted);
                    for (at, bytes) in messages.into_iter().enumerate() {
                        self.push(turn, bytes, if Some(at) == reply { Kind::Interrupted } else { Kind::Said })?;
                    }
                    steps = &rest[calls..];
                }
                StepKind::Compression => {
                    let body: CompressionBody = serde_json::from_slice(&step.body).map_err(corrupt)?;
                    let replaced = self.context.get(body.from..body.to).unwrap_or_default();
                    let replaces = replaced.first().zip(replaced.last()).map(|(first, last)| (first.seq, last.seq));
                    if turn.holds_erased {
                        self.push(turn, tombstone(None)?, Kind::Erased(replaces))?;
                    } else {
                        for bytes in &step.appends {
                            self.push(turn, bytes.to_vec(), replaces.map_or(Kind::Said, Kind::Summary))?;
                        }
                    }
                    steps = rest;
                }
                StepKind::Prompt | StepKind::Verdict | StepKind::Correction => {
                    for bytes in &step.appends {
                        self.push(turn, bytes.to_vec(), Kind::Said)?;
                    }
                    steps = rest;
                }
                StepKind::Call => {
                    early.extend(results_of(step)?);
                    steps = rest;
                }
                StepKind::Retrieval | StepKind::Aggregation => steps = rest,
            }
        }
        Ok(())
    }

    /// Adds a reply whose worker died after some of its calls had begun, when nothing resumed it.
    fn cut_off(
        &mut self,
        turn: &Turn,
        step: &JournalStep,
        body: &TurnBody,
        calls: &[&JournalStep],
    ) -> Result<(), StoreError> {
        for bytes in &step.appends {
            self.push(turn, bytes.to_vec(), Kind::Said)?;
        }
        if !body.text.is_empty() {
            let reply = Message::assistant(body.text.as_str());
            self.push(turn, reply.to_bytes().map_err(corrupt)?, Kind::Interrupted)?;
        }
        self.note_effects(turn, calls.iter().copied(), CUT_OFF)
    }

    fn note_effects<'a>(
        &mut self,
        turn: &Turn,
        steps: impl Iterator<Item = &'a JournalStep>,
        opening: &str,
    ) -> Result<(), StoreError> {
        let mut tools = Vec::new();
        for step in steps.filter(|step| step.kind == StepKind::Call && step.state != StepState::Spent) {
            let body: CallBody = serde_json::from_slice(&step.body).map_err(corrupt)?;
            if body.effect.is_some_and(|effect| effect != ToolEffect::ReadOnly) {
                tools.push(step.name.as_deref().unwrap_or_default());
            }
        }
        if tools.is_empty() {
            return Ok(());
        }
        let note = Message::user(format!("{opening}{}]", tools.join(", ")));
        self.push(turn, note.to_bytes().map_err(corrupt)?, Kind::Said)
    }

    fn push(&mut self, turn: &Turn, bytes: Vec<u8>, kind: Kind) -> Result<(), StoreError> {
        let (replaces, is_interrupted, is_erased) = match kind {
            Kind::Said => (None, false, false),
            Kind::Interrupted => (None, true, false),
            Kind::Summary(replaced) => (Some(replaced), false, false),
            Kind::Erased(replaced) => (replaced, false, true),
        };
        self.last_seq = self.last_seq.checked_add(1).ok_or_else(|| StoreError::Corrupt("a session is full".into()))?;
        Entry { seq: self.last_seq, bytes: bytes.clone() }.join(&mut self.context, replaces);
        self.added.push(SessionMessage {
            seq: self.last_seq,
            execution: turn.execution,
            bytes,
            replaces,
            is_interrupted,
            is_erased,
        });
        Ok(())
    }
}

/// The results of a call step, by the ids of their calls.
fn results_of(step: &JournalStep) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
    let mut results = Vec::new();
    for bytes in &step.appends {
        if let Message::Tool { call_id, .. } = Message::from_bytes(bytes).map_err(corrupt)? {
            results.push((call_id, bytes.to_vec()));
        }
    }
    Ok(results)
}

/// The messages of a turn and of its calls' results, in the order of the calls; `None` if a result is missing and the
/// execution was not cancelled. `early` has results that were recorded before the turn, and then those of the next.
fn tick(
    turn: &JournalStep,
    calls: &[&JournalStep],
    is_cancelled: bool,
    early: &mut HashMap<String, Vec<u8>>,
) -> Result<Option<Vec<Vec<u8>>>, StoreError> {
    let may_have_run =
        |name: &str| calls.iter().any(|step| step.state == StepState::Intent && step.name.as_deref() == Some(name));
    let mut results = std::mem::take(early);
    for call in calls {
        for (call_id, bytes) in results_of(call)? {
            // Ids are unique within a reply.
            let of = if results.contains_key(&call_id) { &mut *early } else { &mut results };
            of.insert(call_id, bytes);
        }
    }
    let mut messages: Vec<Vec<u8>> = turn.appends.iter().map(|bytes| bytes.to_vec()).collect();
    for bytes in &turn.appends {
        for call in Message::from_bytes(bytes).map_err(corrupt)?.calls() {
            match results.remove(&call.id) {
                Some(result) => messages.push(result),
                None if is_cancelled => {
                    let text = if may_have_run(&call.name) { MAY_HAVE_RUN } else { NOT_RUN };
                    let result = Message::Tool {
                        call_id: call.id.clone(),
                        name: call.name.clone(),
                        text: text.to_owned(),
                        files: Vec::new(),
                        is_error: true,
                    };
                    messages.push(result.to_bytes().map_err(corrupt)?);
                }
                None => return Ok(None),
            }
        }
    }
    early.extend(results);
    Ok(Some(messages))
}

fn corrupt(error: serde_json::Error) -> StoreError {
    StoreError::Corrupt(format!("a message of a session cannot be read: {error}"))
}
