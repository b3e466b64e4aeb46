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
use longhaul_domain::ToolCall;
use longhaul_llm::{
    CacheSpan, FinishReason, Message, ModelError, ModelReply, ModelRequest, PromptCache, ReplyEvent, RequestFiles,
    ToolChoice, Usage, estimate_tokens,
    health::{Call, Route},
};
use longhaul_queue::hints::TextDelta;
use longhaul_sdk::Step;
use longhaul_store::history::journal::{Hash, JournalStep, MessageBytes, StepKind, StepState};
use longhaul_telemetry::trace;
use serde_json::json;
use tracing::Instrument;

use super::{
    Agent, Journal, Transcript, Writer,
    budget::ReplyLimit,
    model_telemetry::observe_event,
    portion::{RECORD_EVERY, storable},
    progress::{Stage, State},
    read_body, recorded_message,
    reply_so_far::ReplySoFar,
    turn_body::{BegunTurnBody, EMPTY_NOTICE, TurnBody},
};
use crate::{messages::hash_parts, prepare::tool_list::Offer, probe::Point};

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
    /// True if the provider paused the turn: the next request goes on with it.
    pub(crate) is_paused: bool,
}

impl Turn {
    pub(super) fn of(key: Hash, reply: &Message) -> Self {
        let (text, calls) = (reply.text().into_owned(), reply.calls().to_vec());
        Self { key, text, calls, unfinished_call: None, is_broken: false, is_paused: false }
    }

    /// True if the reply is the output: complete, and without calls.
    pub(crate) fn is_answer(&self) -> bool {
        self.calls.is_empty() && !self.is_broken && !self.is_paused
    }
}

#[derive(Debug)]
pub(crate) enum NextTurn {
    Recorded(Turn),
    /// A recorded reply that is of no use, and what the model is told about it.
    Unusable(String),
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
    pub(super) told: (usize, Option<Instant>),
    /// True if that text is recorded in portions.
    records_text: bool,
    /// Calls received so far with complete arguments.
    pub(super) calls: Vec<ToolCall>,
    /// Number of those calls in the record.
    pub(super) recorded: usize,
    /// Sequence number of the step, once the turn is partly recorded.
    pub(super) seq: Option<i32>,
    /// Index into the agent's routes.
    pub(crate) route: usize,
    /// Reply limit granted by the budget; `None` without a budget.
    pub(super) limit: Option<ReplyLimit>,
    /// Admission of the call; `None` for a replayed turn.
    pub(super) call: Option<Arc<Call>>,
    /// Bytes of the files that the request sends.
    files: Arc<RequestFiles>,
    pub(crate) span: tracing::Span,
    pub(crate) started: Instant,
}

/// Shortest time between two pieces of a reply that followers are sent.
const TELL_EVERY: Duration = Duration::from_millis(20);

impl PendingTurn {
    fn new(key: Hash, offer: Offer, said: Vec<MessageBytes>, route: usize) -> Self {
        Self {
            key,
            offer,
            said,
            text: String::new(),
            told: (0, None),
            records_text: false,
            calls: Vec::new(),
            recorded: 0,
            seq: None,
            route,
            limit: None,
            call: None,
            files: Arc::default(),
            span: tracing::Span::none(),
            started: Instant::now(),
        }
    }

    /// Adds a stream event to the turn. Returns a call whose arguments are complete.
    pub(crate) fn hear(&mut self, event: ReplyEvent) -> Option<ToolCall> {
        match event {
            ReplyEvent::TextDelta(text) => {
                self.text.push_str(&if self.records_text { storable(&text) } else { text });
                None
            }
            ReplyEvent::Begun | ReplyEvent::CallStarted { .. } => None,
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

    /// Time at which followers get the text that came too early after the last piece.
    pub(crate) fn tell_at(&self) -> Option<Instant> {
        let (sent, at) = self.told;
        let period = if self.records_text { RECORD_EVERY } else { TELL_EVERY };
        at.filter(|_| sent < self.text.len()).map(|at| at + period)
    }

    /// True if a call of the reply may have started.
    pub(crate) fn is_begun(&self) -> bool {
        self.seq.is_some()
    }
}

impl Writer {
    /// Sends the followers of a session what the model has written since the last piece: the first piece at once, then
    /// one each [`TELL_EVERY`] at most.
    pub(crate) fn tell(&mut self, asked: &mut PendingTurn) {
        self.follow_reply(asked);
        let (sent, at) = asked.told;
        let is_early = at.is_some_and(|at| at.elapsed() < TELL_EVERY);
        if self.scope.session.is_none() || is_early {
            return;
        }
        let Some(text) = asked.text.get(sent..).filter(|text| !text.is_empty()) else { return };
        let text = text.to_owned();
        self.deps.publisher.text(TextDelta { execution: self.id, turn: self.turns, offset: sent, text });
        asked.told = (asked.text.len(), Some(Instant::now()));
    }

    /// The part of a turn's prompt that other prompts begin with. A conversation without a session and tools usually
    /// ends with its first reply; writing it to a cache costs more than sending it.
    fn cache_span(&self, agent: &Agent) -> CacheSpan {
        // The tools of a single call are its client's, which goes on with the conversation by another call.
        let has_tools = match agent.profile.is_single_call() {
            true => !agent.tool_list.shown(Offer::All).is_empty(),
            false => !agent.toolbox.specs().is_empty(),
        };
        match self.scope.session {
            None if self.turns == 1 && !has_tools => CacheSpan::Instructions,
            None | Some(_) => CacheSpan::Conversation,
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
}

impl Journal {
    /// The next turn: replayed, or awaiting its reply.
    pub(crate) async fn next_turn(&mut self, agent: &Agent, offer: Offer) -> Step<NextTurn> {
        self.replay_compressions()?;
        self.writer.find_portions(agent).await?;
        self.writer.turns += 1;
        if let Some(step) = self.replay.next(StepKind::Turn, &mut self.writer) {
            self.check_said(&step)?;
            return self.replay_turn(agent, step, offer);
        }
        let mut said = Vec::new();
        // An output without a refusal gets its result before any other message.
        if let Some(result) = self.transcript.unanswered_output() {
            said.push(self.transcript.settle_output(result)?);
        }
        for message in std::mem::take(&mut self.transcript.said) {
            said.push(self.transcript.append(message.into_message())?);
        }
        if self.transcript.messages.tokens() > self.window(agent) {
            // What the model has not seen stays: it decides itself if that is too long.
            self.compress(agent, self.transcript.messages.unseen(), None).await?;
        }
        self.ask(agent, offer, said).await.map(NextTurn::Ask)
    }

    /// Asks a turn again, when the endpoint takes calls.
    ///
    /// # Errors
    /// An interrupt, also if the wait is too long to hold in memory or the budget has no room; `budget_exhausted`.
    pub(crate) async fn ask_again(&mut self, agent: &Agent, mut asked: Box<PendingTurn>) -> Step<Box<PendingTurn>> {
        // The call before is over.
        asked.call = None;
        self.ask(agent, asked.offer, asked.said).await
    }

    fn replay_turn(&mut self, agent: &Agent, step: JournalStep, offer: Offer) -> Step<NextTurn> {
        if step.state == StepState::Intent {
            return self.replay_begun_turn(agent, step, offer).map(NextTurn::Recorded);
        }
        let body: TurnBody = read_body(&step)?;
        self.writer.counters.count_turn(body.usage);
        let messages = step.appends.iter().map(recorded_message).collect::<Step<Vec<_>>>()?;
        let is_unusable = !matches!(messages.last(), Some((Message::Assistant { .. }, _)));
        let mut reply = None;
        for (message, hash) in messages {
            if matches!(message, Message::Assistant { .. }) {
                let route = self.check_key(agent, &step, offer)?;
                self.transcript.note_count(route, offer, body.usage);
                reply = Some(message.clone());
            }
            self.transcript.replay_message(message, hash);
        }
        if is_unusable {
            self.writer.counters.unusable_turns += 1;
            return Ok(NextTurn::Unusable(body.notice.unwrap_or_else(|| EMPTY_NOTICE.to_owned())));
        }
        self.writer.counters.unusable_turns = 0;
        self.transcript.compressions = 0;
        let reply = reply.ok_or_else(|| super::corrupt(&"a turn without a reply"))?;
        let (unfinished_call, is_broken) = (body.unfinished_call, body.is_broken);
        let is_paused = body.finish == FinishReason::Paused;
        Ok(NextTurn::Recorded(Turn { unfinished_call, is_broken, is_paused, ..Turn::of(step.key, &reply) }))
    }

    /// Replays a reply that its worker's death cut short. The recorded calls are all there is: those that
    /// started, and those complete before them.
    fn replay_begun_turn(&mut self, agent: &Agent, step: JournalStep, offer: Offer) -> Step<Turn> {
        let body: BegunTurnBody = read_body(&step)?;
        self.transcript.replay_appends(&step)?;
        self.check_key(agent, &step, offer)?;
        let calls = self.replay.begun_calls()?;
        let route = self.transcript.recorded_route(agent, &step, offer)?.unwrap_or_default();
        let (text, seq) = (body.text, Some(step.seq));
        let asked = PendingTurn { text, calls, seq, ..PendingTurn::new(step.key, offer, step.appends, route) };
        self.record_broken(agent, Box::new(asked), None)
    }

    /// Index of the route whose key matches a recorded turn; `None` if none does, or for a fork.
    fn check_key(&mut self, agent: &Agent, step: &JournalStep, offer: Offer) -> Step<Option<usize>> {
        // A fork has another prompt or model than the turns it shares.
        if self.writer.scope.is_fork {
            return Ok(None);
        }
        let route = self.transcript.recorded_route(agent, step, offer)?;
        if route.is_none() {
            self.writer.diverged(json!({ "turn": self.writer.turns }));
        }
        Ok(route)
    }

    async fn ask(&mut self, agent: &Agent, offer: Offer, said: Vec<MessageBytes>) -> Step<Box<PendingTurn>> {
        self.writer.control.may_launch().await?;
        let tokens = self.transcript.messages.tokens() + estimate_tokens(agent.tool_list.shown_bytes(offer).len());
        self.writer.stage(agent, Stage::Connecting, State::Running);
        let call = self.writer.admit_call(agent, self.transcript.messages.chain(), tokens).await?;
        self.writer.stage(agent, Stage::Connecting, State::Completed);
        let route = &agent.routes[call.route];
        let key = self.transcript.turn_key(agent, route, offer)?;
        let span = self.writer.model_span(route, Some(self.writer.turns));
        let files = self.load_files(route).await?;
        let limit = Box::pin(self.reserve_turn(agent, call.route, offer, &files, &key)).await?;
        self.writer.stage(agent, Stage::Generating, State::Running);
        self.writer.flush_stages(agent).await?;
        self.writer
            .about_to(|| format!("asking {} for turn {}", route.model.model_name(&route.spec), self.writer.turns))
            .await;
        // The waits for a permit, the budget and the files may have outlasted the lease.
        self.writer.control.may_launch().await?;
        self.writer.at(Point::BeforeTurn).await;
        let names = (route.model.provider(), route.model.model_name(&route.spec));
        let turn = PendingTurn::new(key, offer, said, call.route);
        let records_text = agent.profile.records_text();
        let asked = Box::new(PendingTurn { limit, files, span, call: Some(call), records_text, ..turn });
        if self.writer.scope.session.is_some() {
            // Followers may have text of an earlier attempt.
            self.writer.deps.publisher.void_reply(self.writer.id);
        }
        self.writer.so_far = self.writer.scope.session.map(|_| ReplySoFar::new(key, asked.said.clone(), names));
        Ok(asked)
    }

    /// Name of the conversation for prompt caches: its session, or the root of its tree. The conversation of a single
    /// call is held by its client; its calls have the tools and the messages through the first after the instructions
    /// in common.
    fn cache_key(&self, agent: &Agent) -> String {
        let scope = &self.writer.scope;
        if !agent.profile.is_single_call() {
            return scope.session.map_or_else(|| scope.root.to_string(), |session| session.to_string());
        }
        let all = self.transcript.messages.all();
        let instructions = all.iter().take_while(|message| matches!(***message, Message::System { .. })).count();
        let opening: Vec<Vec<u8>> =
            all.iter().take(instructions + 1).map(|message| message.to_bytes().unwrap_or_default()).collect();
        let tools = agent.tool_list.shown_bytes(Offer::All);
        let parts = [b"conversation", &scope.tenant.0.as_bytes()[..], tools].into_iter();
        hex::encode(hash_parts(&parts.chain(opening.iter().map(Vec::as_slice)).collect::<Vec<_>>()))
    }

    /// Makes the model call. The future borrows nothing of the journal, which records while the reply streams;
    /// stream events go to `sink`, bounded by the reply's size cap.
    pub fn request<'a>(
        &self,
        agent: &'a Agent,
        asked: &PendingTurn,
        sink: UnboundedSender<ReplyEvent>,
    ) -> impl Future<Output = Result<ModelReply, ModelError>> + Send + use<'a> {
        let (idempotency_key, limit) = (self.writer.request_key(asked), asked.limit);
        let (cache_key, span) = (self.cache_key(agent), self.writer.cache_span(agent));
        let messages: Vec<Arc<Message>> = self.transcript.messages.all().to_vec();
        let (offer, call, route) = (asked.offer, asked.call.clone(), &agent.routes[asked.route]);
        let (files, tenant) = (asked.files.clone(), self.writer.scope.tenant);
        let tool_choice = match offer {
            Offer::OutputOnly if !agent.tool_list.has_output() => ToolChoice::None,
            Offer::OutputOnly => ToolChoice::Auto,
            Offer::All => agent.profile.tool_choice(self.writer.turns),
        };
        let answer = async move {
            let traceparent = trace::current_traceparent();
            let request = ModelRequest {
                tenant,
                model: &route.spec,
                messages: &messages,
                files: &files,
                tools: agent.tool_list.shown(offer),
                tool_choice,
                idempotency_key: &idempotency_key,
                traceparent: traceparent.as_deref(),
                max_output_tokens: limit.map(|limit| limit.tokens),
                context_tokens: Some(agent.config.limits.context_tokens),
                output_schema: agent.native_output_schema.as_ref(),
                cache: Some(PromptCache { key: &cache_key, span }),
            };
            let started = Instant::now();
            let mut hear = |event| {
                observe_event(route, started, &event);
                // The receiver is dropped only after the attempt has ended.
                drop(sink.unbounded_send(event));
            };
            let came_to = route.model.complete(request, &mut hear).await;
            // A call that failed before its request was sent would hold the memory that its repetition waits for.
            files.release();
            came_to
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
}

impl Transcript {
    /// Records the provider's token count of the transcript that a turn sent, before its reply is appended.
    pub(super) fn note_count(&mut self, route: Option<usize>, offer: Offer, usage: Usage) {
        if let Some((route, tokens)) = route.zip(usage.input_tokens) {
            self.messages.note_count(route, offer, tokens);
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
        Ok(hash_parts(&[b"turn", route.model.provider().as_bytes(), &model, tools, self.messages.chain()]))
    }
}
