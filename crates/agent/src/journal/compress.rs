//! Compression: replaces the middle of a conversation that exceeds the model's window with a summary written by
//! the model.

use std::{ops::Range, sync::Arc, time::Duration};

use longhaul_domain::{cut, message::BYTES_PER_TOKEN};
use longhaul_llm::Message;
use longhaul_sdk::{Failure, FailureClass, FailureCode, Step};
use longhaul_store::history::journal::{Hash, JournalStep, StepKind, StepUsage};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Agent, Journal,
    aside::{Aside, Asked},
    budget::Took,
    message_bytes, preview, read_body, recorded_message,
};
use crate::messages::hash_parts;

const INSTRUCTION: &str = "You compress the middle of a conversation between an agent and its tools. Keep every fact, \
    number, identifier, decision and open question that later work may need; leave out everything else. Answer with \
    the summary alone.";
/// Text before a summary in the transcript.
const PREFACE: &str = "[Earlier messages were replaced by this summary]\n";
/// Divisor of a window that was too large by an unknown part.
const SHRINK: u64 = 2;
/// Divisor of the excerpts of a summary that was refused for its length.
const SHRINK_EXCERPTS: usize = 4;
/// Smallest window that is assumed, in tokens.
const MIN_WINDOW: u64 = 256;
/// Maximum bytes of one message in the summary's prompt.
const MAX_EXCERPT_BYTES: usize = 8 * 1024;
/// Least bytes of one.
const MIN_EXCERPT_BYTES: usize = 256;

/// The body of a compression step.
#[derive(Debug, Serialize, Deserialize)]
struct CompressionBody {
    from: usize,
    to: usize,
    /// The window that was learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<u64>,
}

impl Journal {
    /// Applies the recorded compressions before the next turn.
    pub(super) fn replay_compressions(&mut self) -> Step<()> {
        while let Some(step) = self.replay.next_if(StepKind::Compression) {
            let body: CompressionBody = read_body(&step)?;
            let summary = step.appends.first().ok_or_else(|| super::corrupt(&"a compression without a summary"))?;
            let (summary, hash) = recorded_message(summary)?;
            self.transcript.messages.replace(body.from..body.to, &summary, hash);
            self.transcript.compressions += 1;
            self.transcript.window = body.window.or(self.transcript.window);
        }
        Ok(())
    }

    /// The model's context window in tokens: what was learned of it, or the agent's setting.
    pub(super) fn window(&self, agent: &Agent) -> u64 {
        let set = u64::from(agent.config.limits.context_tokens);
        self.transcript.window.map_or(set, |learned| learned.min(set))
    }

    /// Learns from a refusal that the model's window is smaller. `told` is what the provider says of it.
    pub(crate) fn learn_window(&mut self, agent: &Agent, told: Option<u64>) {
        let (known, sent) = (self.window(agent), self.transcript.messages.tokens());
        // Without a number, or if this one was respected, the tokens are denser than they were estimated.
        let learned = told.filter(|told| *told < known).unwrap_or(known.min(sent) / SHRINK);
        self.transcript.window = Some(learned.max(MIN_WINDOW));
    }

    /// Replaces the middle of the transcript with a summary. Keeps the last `said` messages: the next turn
    /// appends them, and a replay expects them there. `cause` is the model's context-limit failure, if there was
    /// one.
    ///
    /// # Errors
    /// `context_limit_exceeded` if the model refused the length and no compression is left or possible; the failure
    /// of the summary call.
    pub(crate) async fn compress(&mut self, agent: &Agent, said: usize, cause: Option<Failure>) -> Step<()> {
        let window = self.window(agent);
        let range = self.transcript.messages.compressible(window, said);
        // By the estimate alone, only what makes the rest fit is worth a call of the model.
        let is_worth =
            |range: &Range<usize>| cause.is_some() || self.transcript.messages.tokens_without(range) <= window;
        let range = range.filter(is_worth);
        let is_left = |max: u32| self.transcript.compressions < max;
        let Some(range) = range.filter(|_| agent.retry.max_compressions.is_none_or(is_left)) else {
            // The estimate alone fails nothing: the model decides if the conversation is too long.
            let Some(cause) = cause else { return Ok(()) };
            return Err(
                Failure { class: FailureClass::Permanent, code: FailureCode::CONTEXT_LIMIT_EXCEEDED, ..cause }.into()
            );
        };
        let Summary { text: summary, key, name, usage, took } = self.summarise(agent, &range, window).await?;
        let summary = Message::user(format!("{PREFACE}{summary}"));
        let (hash, bytes) = message_bytes(&summary)?;
        let body = CompressionBody { from: range.start, to: range.end, window: self.transcript.window };
        let step = self.writer.step(StepKind::Compression, key, &body)?;
        self.writer.pending.steps.push(JournalStep {
            name: Some(name),
            appends: vec![bytes],
            preview: Some(preview(&summary.text())),
            usage,
            took,
            ..step
        });
        self.writer.event("compressed", json!({ "messages": range.len(), "turn": self.writer.turns }));
        self.transcript.messages.replace(range, &summary, hash);
        self.transcript.compressions += 1;
        self.writer.flush().await
    }

    /// Has the model summarise messages, of which it is shown less until it takes the request. What does not fit at all
    /// is replaced by a note of how many messages were left out.
    async fn summarise(&mut self, agent: &Agent, range: &Range<usize>, window: u64) -> Step<Summary> {
        let mut room = (window / 2) as usize * BYTES_PER_TOKEN;
        loop {
            let text = excerpts(&self.transcript.messages.all()[range.clone()], room);
            let messages = [Arc::new(Message::system(INSTRUCTION)), Arc::new(Message::user(text))];
            let chain = self.transcript.messages.chain();
            let key = hash_parts(&[b"compression", chain, &room.to_be_bytes()]);
            let aside = Aside { key: &key, chain, messages: &messages };
            let Asked { call, came_to, took } =
                self.writer.ask_aside(agent, aside, || format!("compressing {} messages", range.len())).await?;
            let route = &agent.routes[call.route];
            let name = route.model.model_name(&route.spec).to_owned();
            match came_to {
                Ok(reply) => {
                    self.writer.settle(route, &key, Took::Counted(reply.usage));
                    let (text, usage) = (reply.message.text().into_owned(), self.writer.step_usage(route, reply.usage));
                    return Ok(Summary { text, key, name, usage, took });
                }
                Err(error) if error.class() == FailureClass::ContextLimit => {
                    self.writer.settle(route, &key, Took::Nothing);
                    self.learn_window(agent, error.window());
                    room /= SHRINK_EXCERPTS;
                    if room < MIN_EXCERPT_BYTES {
                        let text = format!("{} earlier messages were left out.", range.len());
                        return Ok(Summary { text, key, name, usage: StepUsage::default(), took });
                    }
                }
                Err(error) => {
                    self.writer.settle(route, &key, Took::by_failure(&error));
                    let failure = error.to_failure();
                    return Err(self.writer.call_failed(agent, Some(&call), &error, failure).await);
                }
            }
        }
    }
}

/// A summary of messages, and the call that made it.
struct Summary {
    text: String,
    key: Hash,
    name: String,
    usage: StepUsage,
    took: Duration,
}

/// The messages as text, each cut to its share, all within `max_bytes`.
fn excerpts(messages: &[Arc<Message>], max_bytes: usize) -> String {
    let mut text = String::new();
    let share = (max_bytes / messages.len().max(1)).clamp(MIN_EXCERPT_BYTES, MAX_EXCERPT_BYTES);
    for message in messages {
        let calls: String =
            message.calls().iter().map(|call| format!("\n→ {}({})", call.name, call.arguments)).collect();
        let whole = format!("{}: {}{calls}\n\n", message.role(), message.text());
        text.push_str(&cut(&whole, share));
    }
    cut(&text, max_bytes).into_owned()
}
