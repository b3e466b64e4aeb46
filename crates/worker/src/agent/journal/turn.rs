//! One model call: replayed from the record, or asked once under its own idempotency key and committed before anyone looks.

use std::time::{Duration, Instant};

use longhaul_sdk::{Failure, FailureClass, FailureCode, Step, StepError};
use longhaul_shared::{
    store::journal::{Hash, JournalStep, StepKind, StepState, StepUsage},
    telemetry::{
        metrics::{self, ModelOutcome, TokenKind},
        trace,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tracing::Instrument;

use super::{Agent, Journal, preview, read_body};
use crate::{
    agent::transcript::hash_parts,
    llm::{FinishReason, Message, ModelError, ModelReply, ModelRequest, ToolCall, ToolChoice, Usage},
    probe::Point,
};

/// What the loop needs of a reply.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    /// Identifies the turn; the keys of its calls build on it.
    pub(crate) key: Hash,
    /// Its text.
    pub(crate) text: String,
    /// Its calls, in order.
    pub(crate) calls: Vec<ToolCall>,
    /// The last call, when the reply was cut inside it: it must not run.
    pub(crate) unfinished_call: Option<usize>,
}

/// The body of a turn step.
#[derive(Debug, Serialize, Deserialize)]
struct TurnBody {
    provider: String,
    finish: FinishReason,
    #[serde(default)]
    unfinished_call: Option<usize>,
    usage: Usage,
    model: Option<String>,
    request_id: Option<String>,
}

/// The body of a turn that failed.
#[derive(Debug, Serialize)]
struct FailedTurnBody<'a> {
    provider: &'a str,
    failure: &'a str,
    detail: Option<&'a serde_json::Value>,
}

impl Journal {
    /// The next turn: from the record, or asked now.
    ///
    /// # Errors
    /// An interrupt, or the failure of the model call.
    pub(crate) async fn turn(&mut self, agent: &Agent) -> Step<Turn> {
        self.replay_compressions()?;
        self.turns += 1;
        if let Some(step) = self.replay(StepKind::Turn) {
            self.said.clear();
            return self.replay_turn(agent, &step);
        }
        let mut said = Vec::new();
        for message in std::mem::take(&mut self.said) {
            said.push(self.append(Message::user(message))?);
        }
        if self.transcript.tokens() > u64::from(agent.config.limits.context_tokens) {
            self.compress(agent, said.len(), None).await?;
        }
        loop {
            match self.ask(agent, &said).await {
                Err(StepError::Failed(failure)) if failure.class == FailureClass::ContextLimit => {
                    self.compress(agent, said.len(), Some(failure)).await?;
                }
                other => return other,
            }
        }
    }

    fn replay_turn(&mut self, agent: &Agent, step: &JournalStep) -> Step<Turn> {
        let body: TurnBody = read_body(step)?;
        let (reply, said) = step.appends.split_last().ok_or_else(|| super::corrupt(&"a turn without a reply"))?;
        for hash in said {
            let message = self.stored_message(hash)?;
            self.transcript.push(message, *hash);
        }
        let expected = self.turn_key(agent)?;
        if expected != step.key {
            self.diverged(json!({ "turn": self.turns }));
        }
        let message = self.stored_message(reply)?;
        let turn = Turn {
            key: step.key,
            text: message.text().to_owned(),
            calls: message.calls().to_vec(),
            unfinished_call: body.unfinished_call,
        };
        self.transcript.push(message, *reply);
        Ok(turn)
    }

    /// What is asked: model, tools and every message so far.
    fn turn_key(&self, agent: &Agent) -> Step<Hash> {
        let model = serde_json::to_vec(&agent.config.model).map_err(|error| super::corrupt(&error))?;
        let tools = serde_json::to_vec(agent.toolbox.specs()).map_err(|error| super::corrupt(&error))?;
        Ok(hash_parts(&[b"turn", agent.model.provider().as_bytes(), &model, &tools, self.transcript.chain()]))
    }

    async fn ask(&mut self, agent: &Agent, said: &[Hash]) -> Step<Turn> {
        let key = self.turn_key(agent)?;
        let span = tracing::info_span!(
            "turn",
            otel.kind = "client",
            execution.id = %self.id,
            turn.number = self.turns,
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = agent.model.provider(),
            gen_ai.request.model = agent.model.model_name(&agent.config.model),
            gen_ai.response.model = tracing::field::Empty,
            gen_ai.usage.input_tokens = tracing::field::Empty,
            gen_ai.usage.output_tokens = tracing::field::Empty,
            failure.code = tracing::field::Empty,
        );
        self.control.may_launch().await?;
        self.at(Point::BeforeTurn).await;
        let started = Instant::now();
        let reply = self.complete(agent, &key).instrument(span.clone()).await;
        let took = started.elapsed();
        self.at(Point::TurnAnswered).await;
        match reply {
            Ok(reply) => {
                observe(agent, &span, &reply, took);
                self.record_turn(agent, key, said, reply, took).await
            }
            Err(error) => {
                let failure = error.to_failure();
                span.record("failure.code", failure.code.as_str());
                metrics::model_call(agent.model.provider(), outcome(&error), took);
                Err(self.record_failed_turn(agent, key, failure, took).await)
            }
        }
    }

    async fn complete(&self, agent: &Agent, key: &Hash) -> Result<ModelReply, ModelError> {
        let idempotency_key = self.idempotency_key(key);
        let traceparent = trace::current_traceparent();
        let request = ModelRequest {
            model: &agent.config.model,
            messages: self.transcript.messages(),
            tools: agent.toolbox.specs(),
            tool_choice: ToolChoice::Auto,
            idempotency_key: &idempotency_key,
            traceparent: traceparent.as_deref(),
            context_tokens: Some(agent.config.limits.context_tokens),
        };
        agent.model.complete(request, &mut |_| {}).await
    }

    /// The same for every repetition of the same request, another one once an answer to it was spent.
    pub(super) fn idempotency_key(&self, key: &Hash) -> String {
        hex::encode(hash_parts(&[self.id.0.as_bytes(), key, &self.occurrence(key).to_be_bytes()]))
    }

    async fn record_turn(
        &mut self,
        agent: &Agent,
        key: Hash,
        said: &[Hash],
        reply: ModelReply,
        took: Duration,
    ) -> Step<Turn> {
        let turn = Turn {
            key,
            text: reply.message.text().to_owned(),
            calls: reply.message.calls().to_vec(),
            unfinished_call: reply.unfinished_call,
        };
        let body = TurnBody {
            provider: agent.model.provider().to_owned(),
            finish: reply.finish.clone(),
            unfinished_call: reply.unfinished_call,
            usage: reply.usage,
            model: reply.model,
            request_id: reply.request_id,
        };
        let step = self.step(StepKind::Turn, key, &body)?;
        let seq = step.seq;
        let reply_hash = self.append(reply.message)?;
        let is_cut = reply.finish == FinishReason::Length && turn.calls.is_empty();
        self.pending.steps.push(JournalStep {
            name: Some(agent.model.model_name(&agent.config.model).to_owned()),
            appends: said.iter().copied().chain([reply_hash]).collect(),
            preview: Some(preview(&turn.text)),
            usage: usage(reply.usage),
            took,
            ..step
        });
        self.pending.turns += 1;
        self.event(
            "turn",
            json!({
                "turn": self.turns, "model": body.model, "calls": turn.calls.len(), "finish": body.finish,
                "input_tokens": reply.usage.input_tokens, "output_tokens": reply.usage.output_tokens,
                "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            }),
        );
        self.flush().await?;
        self.at(Point::TurnRecorded).await;
        if is_cut {
            self.blamed = Some(seq);
            let summary = "the model's reply was cut at its output limit";
            return Err(Failure::new(FailureClass::LlmError, FailureCode::MODEL_OUTPUT_TRUNCATED, summary).into());
        }
        Ok(turn)
    }

    /// A failure the model's side answered with is spent at once, so that the next request is another one; where no answer came
    /// the next request carries the same key, and a gateway may still have the answer.
    async fn record_failed_turn(&mut self, agent: &Agent, key: Hash, failure: Failure, took: Duration) -> StepError {
        match failure.class {
            FailureClass::LlmError | FailureClass::Permanent => {}
            FailureClass::Transient
            | FailureClass::ToolError
            | FailureClass::ContextLimit
            | FailureClass::HumanRejected => return failure.into(),
        }
        let body = FailedTurnBody {
            provider: agent.model.provider(),
            failure: &failure.summary,
            detail: failure.detail.as_ref(),
        };
        let recorded = self.step(StepKind::Turn, key, &body).map(|step| JournalStep {
            state: StepState::Spent,
            name: Some(agent.model.model_name(&agent.config.model).to_owned()),
            failure_code: Some(failure.code.to_string()),
            took,
            ..step
        });
        match recorded {
            Ok(step) => self.pending.steps.push(step),
            Err(error) => return error,
        }
        self.pending.turns += 1;
        match self.flush().await {
            Ok(()) => failure.into(),
            Err(error) => error,
        }
    }
}

fn observe(agent: &Agent, span: &tracing::Span, reply: &ModelReply, took: Duration) {
    let provider = agent.model.provider();
    metrics::model_call(provider, ModelOutcome::Ok, took);
    if let Some(model) = &reply.model {
        span.record("gen_ai.response.model", model.as_str());
    }
    if let Some(count) = reply.usage.input_tokens {
        span.record("gen_ai.usage.input_tokens", count);
        metrics::tokens(provider, TokenKind::Input, count);
    }
    if let Some(count) = reply.usage.output_tokens {
        span.record("gen_ai.usage.output_tokens", count);
        metrics::tokens(provider, TokenKind::Output, count);
    }
    if let Some(count) = reply.usage.cached_tokens {
        metrics::tokens(provider, TokenKind::CachedInput, count);
    }
}

fn outcome(error: &ModelError) -> ModelOutcome {
    match error.class() {
        FailureClass::Transient => ModelOutcome::Transient,
        FailureClass::LlmError => ModelOutcome::LlmError,
        FailureClass::ContextLimit => ModelOutcome::ContextLimit,
        FailureClass::ToolError | FailureClass::Permanent | FailureClass::HumanRejected => ModelOutcome::Permanent,
    }
}

pub(super) fn usage(usage: Usage) -> StepUsage {
    let tokens = |count: Option<u64>| count.map(|count| i32::try_from(count).unwrap_or(i32::MAX));
    StepUsage {
        input_tokens: tokens(usage.input_tokens),
        output_tokens: tokens(usage.output_tokens),
        cached_tokens: tokens(usage.cached_tokens),
        cost: None,
    }
}
