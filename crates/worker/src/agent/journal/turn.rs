//! One model call: replayed from the record, or asked once under its own idempotency key and committed before anyone acts on it.
//!
//! Calls may start while the reply still streams. Then the turn is recorded in part first, in the write that holds the intent of
//! the first such call: a turn in state `intent` is a reply that broke, never one to ask for again (core-rules 8).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use longhaul_sdk::{Failure, FailureClass, FailureCode, Step, StepError, ToolSpec};
use longhaul_shared::{
    store::journal::{Hash, JournalStep, StepKind, StepState},
    telemetry::{
        metrics::{self, ModelOutcome, TokenKind},
        trace,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;
use tracing::Instrument;

use super::{Agent, Journal, budget::Took, preview, read_body};
use crate::{
    agent::{menu::Offer, transcript::hash_parts},
    llm::{
        FinishReason, Message, ModelError, ModelReply, ModelRequest, ReplyEvent, ToolCall, ToolChoice, Usage,
        estimate_tokens,
    },
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
    /// The reply broke after a call had started: what there is of it counts, and it is no answer.
    pub(crate) is_broken: bool,
}

/// The next turn.
#[derive(Debug)]
pub(crate) enum NextTurn {
    /// Answered by the record.
    Recorded(Turn),
    /// The model said nothing at all; the record says so.
    Empty,
    /// To be asked.
    Ask(Asked),
}

/// A turn that is being asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Identifies the turn.
    pub(crate) key: Hash,
    /// What the model is offered.
    offer: Offer,
    /// Messages that it sends for the first time.
    pub(crate) said: Vec<Hash>,
    /// The text so far.
    text: String,
    /// The calls so far whose arguments are complete.
    calls: Vec<ToolCall>,
    /// How many of them the record has.
    recorded: usize,
    /// The step, once the turn is recorded in part.
    seq: Option<i32>,
    span: tracing::Span,
    started: Instant,
}

impl Asked {
    /// Takes note of what the model wrote; a call whose arguments are complete is given back.
    pub(crate) fn hear(&mut self, event: ReplyEvent) -> Option<ToolCall> {
        match event {
            ReplyEvent::TextDelta(text) => {
                self.text.push_str(&text);
                None
            }
            ReplyEvent::CallStarted { .. } => None,
            ReplyEvent::CallCompleted { call, .. } => {
                self.calls.push(call.clone());
                Some(call)
            }
        }
    }

    /// Whether a call of it may have started.
    pub(crate) fn is_begun(&self) -> bool {
        self.seq.is_some()
    }
}

/// The body of a turn step.
#[derive(Debug, Serialize, Deserialize)]
struct TurnBody {
    provider: String,
    finish: FinishReason,
    #[serde(default)]
    unfinished_call: Option<usize>,
    #[serde(default)]
    is_broken: bool,
    usage: Usage,
    model: Option<String>,
    request_id: Option<String>,
}

/// The body of a turn that is recorded in part.
#[derive(Debug, Default, Serialize, Deserialize)]
struct BegunTurnBody {
    text: String,
}

/// The body of a turn that failed.
#[derive(Debug, Serialize)]
struct FailedTurnBody<'a> {
    provider: &'a str,
    failure: &'a str,
    detail: Option<&'a serde_json::Value>,
}

impl Journal {
    /// The next turn: from the record, or to be asked now.
    ///
    /// # Errors
    /// An interrupt, or a record that cannot be read.
    pub(crate) async fn next_turn(&mut self, agent: &Agent, offer: Offer) -> Step<NextTurn> {
        self.replay_compressions()?;
        self.turns += 1;
        if let Some(step) = self.replay(StepKind::Turn) {
            self.said.clear();
            return self.replay_turn(agent, step, offer);
        }
        let mut said = Vec::new();
        // An output that nobody refused is answered before anything else is said.
        if let Some(result) = self.unanswered_output() {
            said.push(self.settle_output(result)?);
        }
        for message in std::mem::take(&mut self.said) {
            said.push(self.append(Message::user(message))?);
        }
        if self.transcript.tokens() > u64::from(agent.config.limits.context_tokens) {
            self.compress(agent, said.len(), None).await?;
        }
        self.ask(agent, offer, said).await.map(NextTurn::Ask)
    }

    /// The same turn once more, after the conversation was found too long and compressed.
    ///
    /// # Errors
    /// An interrupt, or what `failure` says when nothing is left to compress.
    pub(crate) async fn ask_shorter(&mut self, agent: &Agent, asked: Asked, failure: Failure) -> Step<Asked> {
        self.compress(agent, asked.said.len(), Some(failure)).await?;
        self.ask(agent, asked.offer, asked.said).await
    }

    fn replay_turn(&mut self, agent: &Agent, step: JournalStep, offer: Offer) -> Step<NextTurn> {
        if step.state == StepState::Intent {
            return self.replay_begun_turn(agent, step, offer).map(NextTurn::Recorded);
        }
        let body: TurnBody = read_body(&step)?;
        self.count_turn(body.usage);
        let messages = step.appends.iter().map(|hash| self.stored_message(hash)).collect::<Step<Vec<_>>>()?;
        let is_empty = !matches!(messages.last(), Some(Message::Assistant { .. }));
        let mut reply = None;
        for (message, hash) in messages.into_iter().zip(&step.appends) {
            if matches!(message, Message::Assistant { .. }) {
                self.check_key(agent, &step, offer)?;
                reply = Some(message.clone());
            }
            self.replay_message(message, *hash);
        }
        if is_empty {
            self.empty_turns += 1;
            return Ok(NextTurn::Empty);
        }
        self.empty_turns = 0;
        let reply = reply.ok_or_else(|| super::corrupt(&"a turn without a reply"))?;
        Ok(NextTurn::Recorded(Turn {
            key: step.key,
            text: reply.text().to_owned(),
            calls: reply.calls().to_vec(),
            unfinished_call: body.unfinished_call,
            is_broken: body.is_broken,
        }))
    }

    /// A reply that was cut by the end of its worker. What was recorded of it is all there is: the calls that had started, and
    /// those complete before them.
    fn replay_begun_turn(&mut self, agent: &Agent, step: JournalStep, offer: Offer) -> Step<Turn> {
        let body: BegunTurnBody = read_body(&step)?;
        for hash in &step.appends {
            let message = self.stored_message(hash)?;
            self.replay_message(message, *hash);
        }
        self.check_key(agent, &step, offer)?;
        let calls = self.begun_calls()?;
        let asked = Asked {
            key: step.key,
            offer,
            said: step.appends,
            text: body.text,
            calls,
            recorded: 0,
            seq: Some(step.seq),
            span: tracing::Span::none(),
            started: Instant::now(),
        };
        self.record_broken(agent, asked, None)
    }

    fn check_key(&mut self, agent: &Agent, step: &JournalStep, offer: Offer) -> Step<()> {
        // A fork has another prompt or model than the turns it shares were asked with.
        if !self.place.is_fork && self.turn_key(agent, offer)? != step.key {
            self.diverged(json!({ "turn": self.turns }));
        }
        Ok(())
    }

    /// What is asked: model, tools and every message so far.
    fn turn_key(&self, agent: &Agent, offer: Offer) -> Step<Hash> {
        let model = serde_json::to_vec(&agent.config.model).map_err(|error| super::corrupt(&error))?;
        let tools = serde_json::to_vec(agent.menu.shown(offer)).map_err(|error| super::corrupt(&error))?;
        Ok(hash_parts(&[b"turn", agent.model.provider().as_bytes(), &model, &tools, self.transcript.chain()]))
    }

    async fn ask(&mut self, agent: &Agent, offer: Offer, said: Vec<Hash>) -> Step<Asked> {
        let key = self.turn_key(agent, offer)?;
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
        self.reserve(agent, &key, self.transcript.tokens() + shown_tokens(agent, offer)).await?;
        self.at(Point::BeforeTurn).await;
        let (text, calls, recorded, seq) = (String::new(), Vec::new(), 0, None);
        Ok(Asked { key, offer, said, text, calls, recorded, seq, span, started: Instant::now() })
    }

    /// The model call itself. It holds nothing of the journal, which goes on recording while the reply streams; what is heard of
    /// the reply goes to `sink`, which a reply's size cap bounds.
    pub(crate) fn request<'a>(
        &self,
        agent: &'a Agent,
        asked: &Asked,
        sink: UnboundedSender<ReplyEvent>,
    ) -> impl Future<Output = Result<ModelReply, ModelError>> + Send + use<'a> {
        let idempotency_key = self.idempotency_key(&asked.key);
        let messages: Vec<Arc<Message>> = self.transcript.messages().to_vec();
        let offer = asked.offer;
        async move {
            let traceparent = trace::current_traceparent();
            let request = ModelRequest {
                model: &agent.config.model,
                messages: &messages,
                tools: agent.menu.shown(offer),
                tool_choice: match offer {
                    Offer::OutputOnly if !agent.menu.has_output() => ToolChoice::None,
                    Offer::All | Offer::OutputOnly => ToolChoice::Auto,
                },
                idempotency_key: &idempotency_key,
                traceparent: traceparent.as_deref(),
                context_tokens: Some(agent.config.limits.context_tokens),
                output_schema: agent.native_output_schema.as_ref(),
            };
            // Nobody listens any more only when the attempt has ended.
            agent.model.complete(request, &mut |event| drop(sink.send(event))).await
        }
        .instrument(asked.span.clone())
    }

    /// The same for every repetition of the same request, another one once an answer to it was spent.
    pub(super) fn idempotency_key(&self, key: &Hash) -> String {
        hex::encode(self.step_key(key))
    }

    pub(super) fn step_key(&self, key: &Hash) -> Hash {
        hash_parts(&[self.id.0.as_bytes(), key, &self.occurrence(key).to_be_bytes()])
    }

    /// Writes down, with the next commit, that calls of the reply start before it has ended: the turn in part. What is new of its
    /// calls is given back, to be recorded with the intent that comes next.
    pub(crate) fn begin_turn(&mut self, asked: &mut Asked) -> Step<Vec<ToolCall>> {
        if asked.seq.is_none() {
            let step = self.step(StepKind::Turn, asked.key, &BegunTurnBody { text: asked.text.clone() })?;
            asked.seq = Some(step.seq);
            self.pending.steps.push(JournalStep { state: StepState::Intent, appends: asked.said.clone(), ..step });
        }
        let new = asked.calls[asked.recorded..].to_vec();
        asked.recorded = asked.calls.len();
        Ok(new)
    }

    /// Records a whole reply, with the next commit.
    ///
    /// # Errors
    /// A reply of nothing but a beginning is a failure.
    pub(crate) async fn record_turn(&mut self, agent: &Agent, asked: &Asked, reply: ModelReply) -> Step<Turn> {
        let took = asked.started.elapsed();
        observe(agent, &asked.span, &reply, took);
        let turn = Turn {
            key: asked.key,
            text: reply.message.text().to_owned(),
            calls: reply.message.calls().to_vec(),
            unfinished_call: reply.unfinished_call,
            is_broken: false,
        };
        let is_cut = reply.finish == FinishReason::Length && turn.calls.is_empty();
        let body = TurnBody {
            provider: agent.model.provider().to_owned(),
            finish: reply.finish,
            unfinished_call: reply.unfinished_call,
            is_broken: false,
            usage: reply.usage,
            model: reply.model,
            request_id: reply.request_id,
        };
        let seq = self.push_turn(agent, asked, body, Some(reply.message), took)?;
        self.empty_turns = 0;
        if is_cut {
            self.blamed = Some(seq);
            self.flush().await?;
            self.at(Point::TurnRecorded).await;
            let summary = "the model's reply was cut at its output limit";
            return Err(Failure::new(FailureClass::LlmError, FailureCode::MODEL_OUTPUT_TRUNCATED, summary).into());
        }
        Ok(turn)
    }

    /// Records, with the next commit, what there is of a reply that broke after calls of it had started: `partial` where the
    /// model's client knows it.
    pub(crate) fn record_broken(&mut self, agent: &Agent, asked: Asked, partial: Option<Message>) -> Step<Turn> {
        let heard = || Message::Assistant { text: asked.text.clone(), calls: asked.calls.clone(), native: None };
        let message = partial.filter(|partial| partial.calls().len() >= asked.calls.len()).unwrap_or_else(heard);
        let turn = Turn {
            key: asked.key,
            text: message.text().to_owned(),
            calls: message.calls().to_vec(),
            unfinished_call: None,
            is_broken: true,
        };
        let body = TurnBody {
            provider: agent.model.provider().to_owned(),
            finish: FinishReason::Other("interrupted".into()),
            unfinished_call: None,
            is_broken: true,
            usage: Usage::default(),
            model: None,
            request_id: None,
        };
        self.push_turn(agent, &asked, body, Some(message), asked.started.elapsed())?;
        self.empty_turns = 0;
        Ok(turn)
    }

    /// Records that the model said nothing, and says so to it. The second time in a row the attempt fails, and the reply that
    /// failed it does not count.
    ///
    /// # Errors
    /// An interrupt, or the failure.
    pub(crate) async fn record_empty(&mut self, agent: &Agent, asked: Asked, error: &ModelError) -> Step<()> {
        if self.empty_turns + 1 >= MAX_EMPTY_TURNS {
            return Err(self.record_failed_turn(agent, asked, error).await);
        }
        self.empty_turns += 1;
        let body = TurnBody {
            provider: agent.model.provider().to_owned(),
            finish: FinishReason::Stop,
            unfinished_call: None,
            is_broken: false,
            usage: Usage::default(),
            model: None,
            request_id: None,
        };
        let took = asked.started.elapsed();
        metrics::model_call(agent.model.provider(), outcome(error), took);
        self.push_turn(agent, &asked, body, None, took)?;
        self.flush().await?;
        self.at(Point::TurnRecorded).await;
        Ok(())
    }

    fn push_turn(
        &mut self,
        agent: &Agent,
        asked: &Asked,
        body: TurnBody,
        reply: Option<Message>,
        took: Duration,
    ) -> Step<i32> {
        let mut step = self.step(StepKind::Turn, asked.key, &body)?;
        if let Some(begun) = asked.seq {
            step.seq = begun;
        }
        let seq = step.seq;
        let (text, calls) = match &reply {
            Some(reply) => (preview(reply.text()), reply.calls().len()),
            None => (String::new(), 0),
        };
        let reply = reply.map(|reply| self.append(reply)).transpose()?;
        self.pending.steps.push(JournalStep {
            name: Some(agent.model.model_name(&agent.config.model).to_owned()),
            appends: asked.said.iter().copied().chain(reply).collect(),
            preview: Some(text),
            usage: self.step_usage(agent, body.usage),
            took,
            ..step
        });
        self.settle(agent, &asked.key, Took::Counted(body.usage));
        self.pending.turns += 1;
        self.count_turn(body.usage);
        self.event(
            "turn",
            json!({
                "turn": self.turns, "model": body.model, "calls": calls, "finish": body.finish,
                "input_tokens": body.usage.input_tokens, "output_tokens": body.usage.output_tokens,
                "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            }),
        );
        Ok(seq)
    }

    /// A failure the model's side answered with is spent at once, so that the next request is another one; where no answer came
    /// the next request carries the same key, and a gateway may still have the answer.
    pub(crate) async fn record_failed_turn(&mut self, agent: &Agent, asked: Asked, error: &ModelError) -> StepError {
        let took = asked.started.elapsed();
        let failure = error.to_failure();
        asked.span.record("failure.code", failure.code.as_str());
        metrics::model_call(agent.model.provider(), outcome(error), took);
        self.settle(agent, &asked.key, Took::by_failure(error));
        let is_answer = match failure.class {
            FailureClass::LlmError | FailureClass::Permanent => true,
            FailureClass::Transient
            | FailureClass::ToolError
            | FailureClass::ContextLimit
            | FailureClass::HumanRejected => false,
        };
        if !is_answer && asked.seq.is_none() {
            return failure.into();
        }
        let body = FailedTurnBody {
            provider: agent.model.provider(),
            failure: &failure.summary,
            detail: failure.detail.as_ref(),
        };
        let recorded = self.step(StepKind::Turn, asked.key, &body).map(|step| JournalStep {
            seq: asked.seq.unwrap_or(step.seq),
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

/// Replies without text or calls, one after the other, that end the attempt.
const MAX_EMPTY_TURNS: u32 = 2;

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

/// Tokens of the tools that a request shows, at four bytes each.
fn shown_tokens(agent: &Agent, offer: Offer) -> u64 {
    let bytes = |spec: &ToolSpec| spec.name.len() + spec.description.len() + spec.parameters.to_string().len();
    estimate_tokens(agent.menu.shown(offer).iter().map(bytes).sum())
}
