//! The scripted model: an in-process [`ChatModel`] that computes its reply from the conversation with a
//! minijinja program, the agent's `model.script` (docs/guide/scripted-model.md).
//!
//! It serves demonstrations, tests and benchmarks without a model key. Equal conversations get equal replies. A
//! program without template syntax costs one map lookup per call. Replies arrive in one piece, and the network
//! is never used.

mod helpers;
mod program;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use longhaul_domain::ToolCall;
use longhaul_queue::model_calls::StatedLimits;
use longhaul_sdk::spec::ModelSpec;
use quick_cache::sync::Cache;

use self::program::{Answer, AnswerCall, Program};
use super::{
    ChatModel, Clocks, EventSink, FinishReason, Message, ModelError, ModelReply, ModelRequest, ReplyEvent, Usage,
    answer::Answer as ErrorAnswer, types::estimate_tokens,
};

/// Default name of its provider and model; also the metric label.
pub const NAME: &str = "scripted";

/// Compiled programs cached. Agents are few.
const MAX_PROGRAMS: usize = 512;

#[derive(Debug)]
pub struct ScriptedModel {
    provider: String,
    clocks: Clocks,
    programs: Cache<String, Arc<Program>>,
}

impl ScriptedModel {
    /// Returns a scripted model with the name of its provider.
    #[must_use]
    pub fn new(provider: impl Into<String>, clocks: Clocks) -> Self {
        Self { provider: provider.into(), clocks, programs: Cache::new(MAX_PROGRAMS) }
    }

    /// Compiles a program without running it.
    ///
    /// # Errors
    /// The program does not compile, or is a constant that is not a reply.
    pub fn check(script: &str) -> Result<(), ModelError> {
        Program::compile(script).map(drop)
    }

    fn program(&self, script: &str) -> Result<Arc<Program>, ModelError> {
        if let Some(program) = self.programs.get(script) {
            return Ok(program);
        }
        let program = Arc::new(Program::compile(script)?);
        self.programs.insert(script.to_owned(), Arc::clone(&program));
        Ok(program)
    }
}

#[async_trait]
impl ChatModel for ScriptedModel {
    fn provider(&self) -> &str {
        &self.provider
    }

    fn model_name<'a>(&'a self, spec: &'a ModelSpec) -> &'a str {
        spec.name.as_deref().unwrap_or(NAME)
    }

    async fn complete(&self, request: ModelRequest<'_>, events: EventSink<'_>) -> Result<ModelReply, ModelError> {
        let input_tokens = request.messages.iter().map(|message| message.estimated_tokens()).sum::<u64>();
        if request.context_tokens.is_some_and(|window| input_tokens > u64::from(window)) {
            let answer = ErrorAnswer { code: Some("context_length_exceeded".into()), ..ErrorAnswer::default() };
            return Err(ModelError::ContextTooLong { answer });
        }
        let answer = match &request.model.script {
            Some(script) => self.program(script)?.answer(&request).await?,
            None => echo(request.messages),
        };
        if let Some(latency) = answer.latency {
            self.wait(latency, &request).await?;
        }
        let name = self.model_name(request.model).to_owned();
        let (answer, is_cut) = within(answer, request.max_output_tokens);
        let reply = reply(answer, turn(request.messages), name, input_tokens, events);
        Ok(if is_cut { ModelReply { finish: FinishReason::Length, ..reply } } else { reply })
    }
}

impl ScriptedModel {
    /// Sleeps for the program's `latency_ms`, under the total timeout like any other call.
    async fn wait(&self, latency: Duration, request: &ModelRequest<'_>) -> Result<(), ModelError> {
        let total = self.clocks.at(request.model.effort).total;
        tokio::time::sleep(latency.min(total)).await;
        if latency > total { Err(ModelError::TotalTimeout { after: total }) } else { Ok(()) }
    }
}

/// Number of the requested reply: existing replies plus one.
fn turn(messages: &[Arc<Message>]) -> usize {
    1 + messages.iter().filter(|message| matches!(message.as_ref(), Message::Assistant { .. })).count()
}

/// The answer without a program: the last user message, as `{"response": …}`.
fn echo(messages: &[Arc<Message>]) -> Answer {
    let last = messages.iter().rev().find(|message| matches!(message.as_ref(), Message::User { .. }));
    let text =
        serde_json::json!({ "response": last.map_or_else(Default::default, |message| message.text()) }).to_string();
    Answer { text, ..Answer::default() }
}

/// Truncates the answer to a budget's reply limit. Returns true if it was truncated.
fn within(mut answer: Answer, limit: Option<u32>) -> (Answer, bool) {
    let Some(limit) = limit.and_then(|tokens| usize::try_from(tokens).ok()?.checked_mul(4)) else {
        return (answer, false);
    };
    let (calls, mut left) = (answer.calls.len(), limit.saturating_sub(answer.text.len()));
    let size = |call: &AnswerCall| call.name.len() + call.arguments.len();
    let kept = answer.calls.iter().take_while(|call| left.checked_sub(size(call)).map(|rest| left = rest).is_some());
    let kept = kept.count();
    answer.calls.truncate(kept);
    let is_cut = kept < calls || answer.text.len() > limit;
    answer.text.truncate(answer.text.floor_char_boundary(limit));
    (answer, is_cut)
}

fn reply(answer: Answer, turn: usize, model: String, input_tokens: u64, events: EventSink<'_>) -> ModelReply {
    if !answer.text.is_empty() {
        events(ReplyEvent::TextDelta(answer.text.clone()));
    }
    let calls: Vec<ToolCall> = answer
        .calls
        .into_iter()
        .enumerate()
        .map(|(index, call)| ToolCall {
            id: format!("call_{turn}_{index}"),
            name: call.name,
            arguments: call.arguments,
        })
        .collect();
    for (index, call) in calls.iter().enumerate() {
        events(ReplyEvent::CallStarted { index, id: call.id.clone(), name: call.name.clone() });
        events(ReplyEvent::CallCompleted { index, call: call.clone() });
    }
    let written: usize = calls.iter().map(|call| call.name.len() + call.arguments.len()).sum();
    let usage = Usage {
        input_tokens: Some(input_tokens),
        output_tokens: Some(estimate_tokens(answer.text.len() + written)),
        ..Usage::default()
    };
    let finish = if calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
    let message = Message::Assistant { text: answer.text, calls, native: None };
    ModelReply {
        message,
        finish,
        unfinished_call: None,
        usage,
        model: Some(model),
        request_id: None,
        stated: StatedLimits::default(),
    }
}
