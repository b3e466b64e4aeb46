//! Records the result of a model call: a full reply, a broken or empty one, or a failure.

use std::time::Duration;

use longhaul_domain::{ToolCall, noted::NotedCall};
use longhaul_llm::{FinishReason, Message, ModelError, ModelReply};
use longhaul_sdk::{Failure, FailureClass, FailureCode, Step, StepError};
use longhaul_store::history::journal::{JournalStep, StepKind, StepState};
use serde::Serialize;
use serde_json::json;

use super::{
    Agent, Journal, Writer,
    budget::Took,
    preview,
    progress::{Stage, State},
    turn::{PendingTurn, Turn},
    turn_body::{BegunTurnBody, EMPTY_NOTICE, TurnBody},
};
use crate::probe::Point;

/// Body of a failed turn.
#[derive(Debug, Serialize)]
struct FailedTurnBody<'a> {
    provider: &'a str,
    failure: &'a str,
    detail: Option<&'a serde_json::Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contract_calls: Vec<NotedCall>,
}

impl Writer {
    /// Adds the partly recorded turn to the next commit, because calls of the reply start before it has ended.
    /// Returns the calls completed since the last call of this function, to be recorded with the next intent.
    pub(crate) fn begin_turn(&mut self, asked: &mut PendingTurn) -> Step<Vec<ToolCall>> {
        if asked.seq.is_none() {
            let step = self.step(StepKind::Turn, asked.key, &BegunTurnBody { text: asked.text.clone() })?;
            asked.seq = Some(step.seq);
            self.pending.steps.push(JournalStep { state: StepState::Intent, appends: asked.said.clone(), ..step });
        }
        let new = asked.calls[asked.recorded..].to_vec();
        asked.recorded = asked.calls.len();
        self.follow_reply(asked);
        Ok(new)
    }

    /// Commits a reply that was cut at a limit lowered by the budget: paid for, and spent.
    pub(crate) async fn record_cut(&mut self, agent: &Agent, asked: &PendingTurn, reply: ModelReply) -> Step<()> {
        let (route, took) = (&agent.routes[asked.route], asked.started.elapsed());
        self.observe_reply(route, &asked.span, &reply, took);
        let code = FailureCode::BUDGET_EXHAUSTED;
        let body = FailedTurnBody {
            provider: route.model.provider(),
            failure: "the reply ended at a limit that the budget had lowered",
            detail: Some(&json!({ "limit_tokens": asked.limit.map(|limit| limit.tokens) })),
            contract_calls: Vec::new(),
        };
        let step = self.step(StepKind::Turn, asked.key, &body)?;
        self.pending.steps.push(JournalStep {
            state: StepState::Spent,
            name: Some(route.model.model_name(&route.spec).to_owned()),
            preview: Some(preview(&reply.message.text())),
            failure_code: Some(code.to_string()),
            usage: self.step_usage(route, reply.usage),
            took,
            ..step
        });
        self.settle(route, &asked.key, Took::Counted(reply.usage));
        self.pending.turns += 1;
        self.event("reply_cut", json!({ "turn": self.turns, "limit_tokens": asked.limit.map(|limit| limit.tokens) }));
        *self.spent.entry(asked.key).or_default() += 1;
        self.cut_by_budget.insert(asked.key);
        self.flush().await?;
        self.at(Point::TurnRecorded).await;
        Ok(())
    }

    /// Returns true if a turn that was answered with 429 or an overload is asked again without a retry. Records
    /// nothing.
    pub(crate) async fn is_turn_asked_again(&mut self, agent: &Agent, asked: &PendingTurn, error: &ModelError) -> bool {
        if asked.is_begun() || !self.is_asked_again(agent, asked.call.as_deref(), error).await {
            return false;
        }
        let route = &agent.routes[asked.route];
        self.stage(agent, Stage::Generating, State::Failed);
        self.settle(route, &asked.key, Took::Nothing);
        true
    }

    /// Records a failed turn. A failure that the model's side answered with is spent at once, so that the next
    /// request has a new key; without an answer the next request carries the same key, because a gateway may
    /// still have the reply.
    pub(crate) async fn record_failed_turn(
        &mut self,
        agent: &Agent,
        asked: Box<PendingTurn>,
        error: &ModelError,
    ) -> StepError {
        self.so_far = None;
        let (route, took) = (&agent.routes[asked.route], asked.started.elapsed());
        let failure = agent.profile.model_failure(error);
        let contract_calls = agent.profile.noted_turn(self.turns, Some(error));
        self.stage(agent, Stage::Generating, State::Failed);
        self.settle(route, &asked.key, Took::by_failure(error));
        let is_answer = match failure.class {
            FailureClass::LlmError | FailureClass::Permanent => true,
            FailureClass::Transient
            | FailureClass::ToolError
            | FailureClass::ContextLimit
            | FailureClass::HumanRejected => false,
        };
        if !is_answer && asked.seq.is_none() && contract_calls.is_empty() {
            return self.call_failed(agent, asked.call.as_deref(), error, failure).await;
        }
        let body = FailedTurnBody {
            provider: route.model.provider(),
            failure: &failure.summary,
            detail: failure.detail.as_ref(),
            contract_calls,
        };
        let recorded = self.step(StepKind::Turn, asked.key, &body).map(|step| JournalStep {
            seq: asked.seq.unwrap_or(step.seq),
            state: StepState::Spent,
            name: Some(route.model.model_name(&route.spec).to_owned()),
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
            Ok(()) => self.call_failed(agent, asked.call.as_deref(), error, failure).await,
            Err(error) => error,
        }
    }
}

impl Journal {
    /// Adds a full reply to the next commit.
    ///
    /// # Errors
    /// `model_output_truncated` for a reply that was cut at its output limit and has no calls, unless it is the answer.
    pub(crate) async fn record_turn(&mut self, agent: &Agent, asked: &PendingTurn, reply: ModelReply) -> Step<Turn> {
        let (route, took) = (&agent.routes[asked.route], asked.started.elapsed());
        self.writer.observe_reply(route, &asked.span, &reply, took);
        let is_paused = reply.finish == FinishReason::Paused;
        let turn = Turn { unfinished_call: reply.unfinished_call, is_paused, ..Turn::of(asked.key, &reply.message) };
        let is_cut = reply.finish == FinishReason::Length && turn.calls.is_empty() && !agent.profile.is_single_call();
        let body = TurnBody {
            unfinished_call: reply.unfinished_call,
            usage: reply.usage,
            model: reply.model,
            request_id: reply.request_id,
            contract_calls: agent.profile.noted_turn(self.writer.turns, None),
            ..TurnBody::new(route.model.provider().to_owned(), reply.finish)
        };
        self.push_turn(agent, asked, body, Some(reply.message), took)?;
        self.writer.stage(agent, Stage::Generating, State::Completed);
        self.writer.counters.unusable_turns = 0;
        self.transcript.compressions = 0;
        if is_cut {
            // The cut reply ends the attempt: spent, so that the next attempt does not replay it (core-rules 6).
            if let Some(step) = self.writer.pending.steps.last_mut() {
                step.state = StepState::Spent;
            }
            self.writer.flush().await?;
            self.writer.at(Point::TurnRecorded).await;
            let summary = "the model's reply was cut at its output limit";
            return Err(Failure::of(FailureCode::MODEL_OUTPUT_TRUNCATED, summary).into());
        }
        Ok(turn)
    }

    /// Adds a reply that broke after some of its calls had started to the next commit. `partial` is the part that
    /// the model's client returned, if any.
    pub(crate) fn record_broken(
        &mut self,
        agent: &Agent,
        asked: Box<PendingTurn>,
        partial: Option<Message>,
    ) -> Step<Turn> {
        let heard = || Message::Assistant { text: asked.text.clone(), calls: asked.calls.clone(), native: None };
        let message = partial.filter(|partial| partial.calls().len() >= asked.calls.len()).unwrap_or_else(heard);
        let turn = Turn { is_broken: true, ..Turn::of(asked.key, &message) };
        let route = &agent.routes[asked.route];
        let finish = FinishReason::Other("interrupted".into());
        let body = TurnBody { is_broken: true, ..TurnBody::new(route.model.provider().to_owned(), finish) };
        self.push_turn(agent, &asked, body, Some(message), asked.started.elapsed())?;
        self.writer.counters.unusable_turns = 0;
        Ok(turn)
    }

    /// Records a reply that is of no use: without text and calls, or with a call that its server could not read.
    /// Returns what the model is told. The second in a row fails the attempt and is recorded as spent.
    ///
    /// # Errors
    /// An interrupt, or the failure.
    pub(crate) async fn record_unusable(
        &mut self,
        agent: &Agent,
        asked: Box<PendingTurn>,
        error: &ModelError,
    ) -> Step<String> {
        if self.writer.counters.unusable_turns + 1 >= MAX_UNUSABLE_TURNS {
            return Err(self.writer.record_failed_turn(agent, asked, error).await);
        }
        self.writer.counters.unusable_turns += 1;
        let route = &agent.routes[asked.route];
        let mut body = TurnBody::new(route.model.provider().to_owned(), FinishReason::Stop);
        if let ModelError::BadCall { answer } = error.root() {
            let words = answer.message.as_deref().or(answer.code.as_deref()).unwrap_or_default();
            body.notice =
                Some(format!("[Your call could not be read: {words}. Make it again, with valid JSON, or answer.]"));
        }
        let notice = body.notice.clone().unwrap_or_else(|| EMPTY_NOTICE.to_owned());
        let took = asked.started.elapsed();
        self.push_turn(agent, &asked, body, None, took)?;
        self.writer.flush().await?;
        self.writer.at(Point::TurnRecorded).await;
        Ok(notice)
    }

    fn push_turn(
        &mut self,
        agent: &Agent,
        asked: &PendingTurn,
        body: TurnBody,
        reply: Option<Message>,
        took: Duration,
    ) -> Step<()> {
        self.writer.so_far = None;
        let route = &agent.routes[asked.route];
        let mut step = self.writer.step(StepKind::Turn, asked.key, &body)?;
        if let Some(begun) = asked.seq {
            step.seq = begun;
        }
        let (text, calls) = match &reply {
            Some(reply) => (preview(&reply.text()), reply.calls().len()),
            None => (String::new(), 0),
        };
        self.writer.end_portions(asked, &reply.as_ref().map(Message::text).unwrap_or_default());
        self.transcript.note_count(Some(asked.route), asked.offer, body.usage);
        let reply = reply.map(|reply| self.transcript.append(reply)).transpose()?;
        let seq = step.seq;
        self.writer.pending.steps.push(JournalStep {
            name: Some(route.model.model_name(&route.spec).to_owned()),
            appends: asked.said.iter().cloned().chain(reply).collect(),
            preview: Some(text),
            usage: self.writer.step_usage(route, body.usage),
            took,
            ..step
        });
        self.writer.settle(route, &asked.key, Took::Counted(body.usage));
        self.writer.pending.turns += 1;
        self.writer.counters.count_turn(body.usage);
        self.writer.event(
            "turn",
            json!({
                "turn": self.writer.turns, "step": seq, "model": body.model, "calls": calls, "finish": body.finish,
                "input_tokens": body.usage.input_tokens, "output_tokens": body.usage.output_tokens,
                "cached_tokens": body.usage.cached_tokens, "cache_write_tokens": body.usage.cache_write_tokens,
                "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            }),
        );
        Ok(())
    }
}

/// Consecutive replies of no use that fail the attempt.
const MAX_UNUSABLE_TURNS: u32 = 2;
