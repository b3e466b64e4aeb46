//! Compression: replaces the middle of a conversation that exceeds the model's window with a summary written by
//! the model.

use std::sync::Arc;

use longhaul_llm::Message;
use longhaul_sdk::{Failure, FailureClass, FailureCode, Step};
use longhaul_shared::domain::{cut, message::BYTES_PER_TOKEN};
use longhaul_store::history::journal::{JournalStep, StepKind, StepUsage};
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
    number, identifier, decision and open question that later work may need; leave out everything else. Answer with the \
    summary alone.";
/// Text before a summary in the transcript.
const PREFACE: &str = "[Earlier messages were replaced by this summary]\n";
/// Maximum bytes of one message in the summary's prompt.
const MAX_EXCERPT_BYTES: usize = 8 * 1024;

/// The body of a compression step.
#[derive(Debug, Serialize, Deserialize)]
struct CompressionBody {
    from: usize,
    to: usize,
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
        }
        Ok(())
    }

    /// Replaces the middle of the transcript with a summary. Keeps the last `said` messages: the next turn
    /// appends them, and a replay expects them there. `cause` is the model's context-limit failure, if there was
    /// one.
    ///
    /// # Errors
    /// `context_limit_exceeded` if the model refused the length and no compression is left or possible; the failure
    /// of the summary call.
    pub(crate) async fn compress(&mut self, agent: &Agent, said: usize, cause: Option<Failure>) -> Step<()> {
        let window = u64::from(agent.config.limits.context_tokens);
        let range = self.transcript.messages.compressible(window, said);
        let Some(range) = range.filter(|_| self.transcript.compressions < agent.retry.max_compressions) else {
            // The estimate alone fails nothing: the model decides if the conversation is too long.
            let Some(cause) = cause else { return Ok(()) };
            return Err(
                Failure { class: FailureClass::Permanent, code: FailureCode::CONTEXT_LIMIT_EXCEEDED, ..cause }.into()
            );
        };
        let text = excerpts(&self.transcript.messages.all()[range.clone()], (window / 2) as usize * BYTES_PER_TOKEN);
        let messages = [Arc::new(Message::system(INSTRUCTION)), Arc::new(Message::user(text))];
        let key = hash_parts(&[b"compression", self.transcript.messages.chain()]);
        let aside = Aside { key: &key, chain: self.transcript.messages.chain(), messages: &messages };
        let Asked { call, came_to, took } =
            self.writer.ask_aside(agent, aside, || format!("compressing {} messages", range.len())).await?;
        let route = &agent.routes[call.route];
        let (summary, usage) = match came_to {
            Ok(reply) => {
                self.writer.settle(route, &key, Took::Counted(reply.usage));
                (reply.message.text().into_owned(), self.writer.step_usage(route, reply.usage))
            }
            // Even the excerpts are too long: a note with the number of messages left out replaces the summary.
            Err(error) if error.class() == FailureClass::ContextLimit => {
                self.writer.settle(route, &key, Took::Nothing);
                (format!("{} earlier messages were left out.", range.len()), StepUsage::default())
            }
            Err(error) => {
                self.writer.settle(route, &key, Took::by_failure(&error));
                let failure = error.to_failure();
                return Err(self.writer.call_failed(agent, Some(&call), &error, failure).await);
            }
        };
        let summary = Message::user(format!("{PREFACE}{summary}"));
        let (hash, bytes) = message_bytes(&summary)?;
        let step =
            self.writer.step(StepKind::Compression, key, &CompressionBody { from: range.start, to: range.end })?;
        self.writer.pending.steps.push(JournalStep {
            name: Some(route.model.model_name(&route.spec).to_owned()),
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
}

/// The messages as text, each cut to its share, all within `max_bytes`.
fn excerpts(messages: &[Arc<Message>], max_bytes: usize) -> String {
    let mut text = String::new();
    for message in messages {
        let calls: String =
            message.calls().iter().map(|call| format!("\n→ {}({})", call.name, call.arguments)).collect();
        let whole = format!("{}: {}{calls}\n\n", message.role(), message.text());
        text.push_str(&cut(&whole, MAX_EXCERPT_BYTES));
    }
    cut(&text, max_bytes.max(MAX_EXCERPT_BYTES)).into_owned()
}
