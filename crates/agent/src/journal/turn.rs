//! One model call: replayed from the record, or made once under its idempotency key and committed before anything
//! acts on it.
//!
//! Calls may start while the reply streams. Then the partial turn is recorded first, in the write that holds the
//! intent of the first such call: a turn in state `intent` is a broken reply, never asked for again (core-rules
//! 8).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::channel::mpsc::UnboundedSender;
use longhaul_llm::{
    FinishReason, Message, ModelError, ModelReply, ModelRequest, ReplyEvent, ToolChoice, Usage, estimate_tokens,
    health::{Call, Route},
};
use longhaul_queue::hints::TextDelta;
use longhaul_sdk::{Failure, Step};
use longhaul_shared::{
    domain::ToolCall,
    telemetry::{TRACED, trace},
};
use longhaul_store::journal::{Hash, JournalStep, MessageBytes, StepKind, StepState};
use serde_json::json;
use tracing::Instrument;

use super::{
    Agent, Journal,
    budget::ReplyLimit,
    progress::{Stage, State},
    read_body, recorded_message,
    reply::{BegunTurnBody, TurnBody},
};
use crate::{probe::Point, tool_list::Offer, transcript::hash_parts};

/// A model reply, as the loop needs it.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    /// Step key; the keys of its calls derive from it.
    pub key: Hash,
    pub text: String,
    /// Calls in reply order.
    pub calls: Vec<ToolCall>,
    /// Index of the last call if the reply was cut inside it: it must not run.
    pub(crate) unfinished_call: Option<usize>,
    /// True if the reply broke after a call had started: its calls count, its text is no answer.
    pub(crate) is_broken: bool,
}

#[derive(Debug)]
pub(crate) enum NextTurn {
    Recorded(Turn),
    /// A recorded empty reply.
    Empty,
    /// Not recorded: the model must be asked.
    Ask(Box<PendingTurn>),
}

/// A turn whose reply is awaited.
#[derive(Debug)]
pub struct PendingTurn {
    /// Step key.
    pub key: Hash,
    /// Tools offered.
    pub(super) offer: Offer,
    /// Messages sent for the first time.
    pub said: Vec<MessageBytes>,
    /// Text received so far.
    pub(super) text: String,
    /// Bytes of the text that followers were sent, and when.
    told: (usize, Option<Instant>),
    /// Calls received so far with complete arguments.
    pub(super) calls: Vec<ToolCall>,
    /// Number of those calls in the record.
    pub(super) recorded: usize,
    /// Sequence number of the step, once the turn is partly recorded.
    pub(super) seq: Option<i32>,
    /// Index into the agent's routes.
    pub(super) route: usize,
    /// Reply limit granted by the budget; `None` without a budget.
    pub(super) limit: Option<ReplyLimit>,
    /// Admission of the call; `None` for a replayed turn.
    pub(super) call: Option<Arc<Call>>,
    pub(super) span: tracing::Span,
    pub(super) started: Instant,
}

/// Shortest time between two pieces of a reply that followers are sent.
const TELL_EVERY: Duration = Duration::from_millis(20);

impl PendingTurn {
    /// Adds a stream event to the turn. Returns a call whose arguments are complete.
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

    /// True if the reply was cut at a limit lowered by the budget and has no usable call.
    pub(crate) fn is_cut_by_budget(&self, reply: &ModelReply) -> bool {
        let calls = reply.message.calls().len();
        let has_whole_call = calls > usize::from(reply.unfinished_call.is_some());
        let is_lowered = self.limit.is_some_and(|limit| limit.is_lowered);
        is_lowered && reply.finish == FinishReason::Length && !has_whole_call && !self.is_begun()
    }

    /// True if a call of the reply may have started.
    pub(crate) fn is_begun(&self) -> bool {
        self.seq.is_some()
    }
}

impl Journal {
    /// Sends the followers of a session what the model has written since the last piece: the first piece at once, then
    /// one each [`TELL_EVERY`]. The recorded turn has the rest.
    pub(crate) fn tell(&self, asked: &mut PendingTurn) {
        let (sent, at) = asked.told;
        let is_early = at.is_some_and(|at| at.elapsed() < TELL_EVERY);
        if self.scope.session.is_none() || is_early {
            return;
        }
        let Some(text) = asked.text.get(sent..).filter(|text| !text.is_empty()) else { return };
        let text = text.to_owned();
        self.deps.publisher.text(TextDelta { execution: self.id.0, turn: self.turns, offset: sent, text });
        asked.told = (asked.text.len(), Some(Instant::now()));
    }

    /// The next turn: replayed, or awaiting its reply.
    ///
    /// # Errors
    /// An interrupt, or a record that cannot be read.
    pub(crate) async fn next_turn(&mut self, agent: &Agent, offer: Offer) -> Step<NextTurn> {
        self.replay_compressions()?;
        self.turns += 1;
        if let Some(step) = self.replay(StepKind::Turn) {
            self.check_said(&step)?;
            return self.replay_turn(agent, step, offer);
        }
        let mut said = Vec::new();
        // An output without a refusal gets its result before any other message.
        if let Some(result) = self.unanswered_output() {
            said.push(self.settle_output(result)?);
        }
        for message in std::mem::take(&mut self.said) {
            said.push(self.append(Message::user(message.text))?);
        }
        if self.transcript.tokens() > u64::from(agent.config.limits.context_tokens) {
            self.compress(agent, said.len(), None).await?;
        }
        self.ask(agent, offer, said).await.map(NextTurn::Ask)
    }

    /// Asks the turn again after compressing a conversation that the model found too long.
    ///
    /// # Errors
    /// An interrupt, or `failure` as `context_limit_exceeded` if nothing is left to compress.
    pub(crate) async fn ask_shorter(
        &mut self,
        agent: &Agent,
        asked: Box<PendingTurn>,
        failure: Failure,
    ) -> Step<Box<PendingTurn>> {
        self.compress(agent, asked.said.len(), Some(failure)).await?;
        self.ask(agent, asked.offer, asked.said).await
    }

    /// Asks the turn again for a full reply, because the paid one was cut at a limit lowered by the budget.
    ///
    /// # Errors
    /// An interrupt, also if the budget has no room for a full reply; `budget_exhausted`.
    pub(crate) async fn ask_for_whole(
        &mut self,
        agent: &Agent,
        asked: Box<PendingTurn>,
        cut: ModelReply,
    ) -> Step<Box<PendingTurn>> {
        self.record_cut(agent, &asked, cut)?;
        self.flush().await?;
        self.at(Point::TurnRecorded).await;
        self.ask(agent, asked.offer, asked.said).await
    }

    /// Asks the turn again when the endpoint takes calls.
    ///
    /// # Errors
    /// An interrupt, also if the wait is too long to hold in memory.
    pub(crate) async fn ask_again(&mut self, agent: &Agent, mut asked: Box<PendingTurn>) -> Step<Box<PendingTurn>> {
        // The refused call is over.
        asked.call = None;
        self.ask(agent, asked.offer, asked.said).await
    }

    fn replay_turn(&mut self, agent: &Agent, step: JournalStep, offer: Offer) -> Step<NextTurn> {
        if step.state == StepState::Intent {
            return self.replay_begun_turn(agent, step, offer).map(NextTurn::Recorded);
        }
        let body: TurnBody = read_body(&step)?;
        self.count_turn(body.usage);
        let messages = step.appends.iter().map(recorded_message).collect::<Step<Vec<_>>>()?;
        let is_empty = !matches!(messages.last(), Some((Message::Assistant { .. }, _)));
        let mut reply = None;
        for (message, hash) in messages {
            if matches!(message, Message::Assistant { .. }) {
                let route = self.check_key(agent, &step, offer)?;
                self.note_count(route, offer, body.usage);
                reply = Some(message.clone());
            }
            self.replay_message(message, hash);
        }
        if is_empty {
            self.empty_turns += 1;
            return Ok(NextTurn::Empty);
        }
        self.empty_turns = 0;
        let reply = reply.ok_or_else(|| super::corrupt(&"a turn without a reply"))?;
        Ok(NextTurn::Recorded(Turn {
            key: step.key,
            text: reply.text().into_owned(),
            calls: reply.calls().to_vec(),
            unfinished_call: body.unfinished_call,
            is_broken: body.is_broken,
        }))
    }

    /// Replays a reply that its worker's death cut short. The recorded calls are all there is: those that
    /// started, and those complete before them.
    fn replay_begun_turn(&mut self, agent: &Agent, step: JournalStep, offer: Offer) -> Step<Turn> {
        let body: BegunTurnBody = read_body(&step)?;
        self.replay_appends(&step)?;
        self.check_key(agent, &step, offer)?;
        let calls = self.begun_calls()?;
        let route = self.recorded_route(agent, &step, offer)?.unwrap_or_default();
        let asked = Box::new(PendingTurn {
            key: step.key,
            offer,
            said: step.appends,
            text: body.text,
            told: (0, None),
            calls,
            recorded: 0,
            seq: Some(step.seq),
            route,
            limit: None,
            call: None,
            span: tracing::Span::none(),
            started: Instant::now(),
        });
        self.record_broken(agent, asked, None)
    }

    /// Index of the route whose key matches a recorded turn; `None` if none does, or for a fork.
    fn check_key(&mut self, agent: &Agent, step: &JournalStep, offer: Offer) -> Step<Option<usize>> {
        // A fork has another prompt or model than the turns it shares.
        if self.scope.is_fork {
            return Ok(None);
        }
        let route = self.recorded_route(agent, step, offer)?;
        if route.is_none() {
            self.diverged(json!({ "turn": self.turns }));
        }
        Ok(route)
    }

    /// Records the provider's token count of the transcript that a turn sent, before its reply is appended.
    pub(super) fn note_count(&mut self, route: Option<usize>, offer: Offer, usage: Usage) {
        if let Some((route, tokens)) = route.zip(usage.input_tokens) {
            self.transcript.note_count(route, offer, tokens);
        }
    }

    /// Index of the route whose turn key today equals the recorded one.
    fn recorded_route(&self, agent: &Agent, step: &JournalStep, offer: Offer) -> Step<Option<usize>> {
        for (index, route) in agent.routes.iter().enumerate() {
            if self.turn_key(agent, route, offer)? == step.key {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Hash of the request: model, tools and all messages so far.
    fn turn_key(&self, agent: &Agent, route: &Route, offer: Offer) -> Step<Hash> {
        let model = serde_json::to_vec(&route.spec).map_err(|error| super::corrupt(&error))?;
        let tools = agent.tool_list.shown_bytes(offer);
        Ok(hash_parts(&[b"turn", route.model.provider().as_bytes(), &model, tools, self.transcript.chain()]))
    }

    async fn ask(&mut self, agent: &Agent, offer: Offer, said: Vec<MessageBytes>) -> Step<Box<PendingTurn>> {
        self.control.may_launch().await?;
        let tokens = self.transcript.tokens() + estimate_tokens(agent.tool_list.shown_bytes(offer).len());
        self.stage(agent, Stage::Connecting, State::Running);
        let call = self.admit_call(agent, tokens).await?;
        self.stage(agent, Stage::Connecting, State::Completed);
        let route = &agent.routes[call.route];
        let key = self.turn_key(agent, route, offer)?;
        let span = tracing::info_span!(
            target: TRACED,
            "turn",
            otel.kind = "client",
            execution.id = %self.id,
            // Signed: unsigned numbers are exported as text.
            turn.number = i64::from(self.turns),
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = route.model.provider(),
            gen_ai.request.model = route.model.model_name(&route.spec),
            gen_ai.response.model = tracing::field::Empty,
            gen_ai.usage.input_tokens = tracing::field::Empty,
            gen_ai.usage.output_tokens = tracing::field::Empty,
            error.type = tracing::field::Empty,
            otel.status_code = tracing::field::Empty,
        );
        let limit = Box::pin(self.reserve_turn(agent, call.route, offer, &key)).await?;
        self.stage(agent, Stage::Generating, State::Running);
        self.flush_stages(agent).await?;
        self.about_to(|| format!("asking {} for turn {}", route.model.model_name(&route.spec), self.turns)).await;
        self.at(Point::BeforeTurn).await;
        let (text, calls, recorded, seq) = (String::new(), Vec::new(), 0, None);
        let (route, call) = (call.route, Some(call));
        let started = Instant::now();
        let told = (0, None);
        Ok(Box::new(PendingTurn {
            key,
            offer,
            said,
            text,
            told,
            calls,
            recorded,
            seq,
            route,
            limit,
            call,
            span,
            started,
        }))
    }

    /// Makes the model call. The future borrows nothing of the journal, which records while the reply streams;
    /// stream events go to `sink`, bounded by the reply's size cap.
    pub fn request<'a>(
        &self,
        agent: &'a Agent,
        asked: &PendingTurn,
        sink: UnboundedSender<ReplyEvent>,
    ) -> impl Future<Output = Result<ModelReply, ModelError>> + Send + use<'a> {
        let (idempotency_key, limit) = (self.request_key(asked), asked.limit);
        let messages: Vec<Arc<Message>> = self.transcript.messages().to_vec();
        let (offer, call, route) = (asked.offer, asked.call.clone(), &agent.routes[asked.route]);
        let answer = async move {
            let traceparent = trace::current_traceparent();
            let request = ModelRequest {
                model: &route.spec,
                messages: &messages,
                tools: agent.tool_list.shown(offer),
                tool_choice: match offer {
                    Offer::OutputOnly if !agent.tool_list.has_output() => ToolChoice::None,
                    Offer::All | Offer::OutputOnly => ToolChoice::Auto,
                },
                idempotency_key: &idempotency_key,
                traceparent: traceparent.as_deref(),
                max_output_tokens: limit.map(|limit| limit.tokens),
                context_tokens: Some(agent.config.limits.context_tokens),
                output_schema: agent.native_output_schema.as_ref(),
            };
            // The receiver is dropped only after the attempt has ended.
            route.model.complete(request, &mut |event| drop(sink.unbounded_send(event))).await
        };
        let answer = answer.instrument(asked.span.clone());
        async move {
            // Awaited by value: the future drops its span before the answer is used.
            let came_to = answer.await;
            if let Some(call) = call {
                call.ended(&came_to);
            }
            came_to
        }
    }

    /// Idempotency key of a turn's request. A lowered limit makes it a different request.
    fn request_key(&self, asked: &PendingTurn) -> String {
        let key = self.step_key(&asked.key);
        match asked.limit.filter(|limit| limit.is_lowered) {
            Some(limit) => hex::encode(hash_parts(&[&key, &limit.tokens.to_be_bytes()])),
            None => hex::encode(key),
        }
    }

    /// The same for repetitions of a request; changes once an answer to it is spent.
    pub(super) fn idempotency_key(&self, key: &Hash) -> String {
        hex::encode(self.step_key(key))
    }

    pub(super) fn step_key(&self, key: &Hash) -> Hash {
        hash_parts(&[self.id.0.as_bytes(), key, &self.occurrence(key).to_be_bytes()])
    }
}
