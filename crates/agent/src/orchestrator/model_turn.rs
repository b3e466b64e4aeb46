//! The model's part of a tick: a recorded reply, or a request whose calls start while its reply streams.

use std::{collections::VecDeque, pin::pin};

use futures::{
    StreamExt,
    channel::mpsc::{self, UnboundedReceiver},
    future::OptionFuture,
};
use longhaul_llm::{ModelError, ModelReply, ReplyEvent};
use longhaul_sdk::{Failure, FailureClass, Interrupt, Step};

use super::{Tick, schedule::Schedule};
use crate::{
    journal::{NextTurn, PendingTurn, Turn, model_telemetry::observe_failure},
    probe::Point,
};

/// Result of a model request.
enum Requested {
    Reply(Turn),
    /// A reply of no use, and what the model is told about it.
    Unusable(String),
    /// The conversation exceeds the model's window.
    TooLong(Box<PendingTurn>, Failure),
    /// The reply hit a token limit that the budget had lowered.
    Cut(Box<PendingTurn>, Box<ModelReply>),
    /// The model was rate limited and says when to retry.
    Throttled(Box<PendingTurn>),
}

impl Tick<'_> {
    /// Returns the next reply, from the record or from the model. `None` for a reply of no use, about which the next
    /// request tells the model.
    ///
    /// # Errors
    /// An interrupt, or the failure that ends the attempt.
    pub(crate) async fn model_turn(&mut self) -> Step<Option<Turn>> {
        // Futures not awaited during a model request are boxed, here and below, to keep a pending turn small.
        let turn = match Box::pin(self.journal.next_turn(self.agent, self.offer)).await? {
            NextTurn::Recorded(turn) => Ok(turn),
            NextTurn::Unusable(notice) => Err(notice),
            NextTurn::Ask(asked) => self.ask(asked).await?,
        };
        Ok(match turn {
            // Its calls may still need to run.
            Ok(turn) => {
                self.turn = turn.key;
                Some(turn)
            }
            Err(notice) => {
                self.journal.transcript.say(&notice);
                None
            }
        })
    }

    /// Sends the request of a turn, again and changed while its outcome asks for that. Returns the reply, or what the
    /// model is told about one of no use.
    async fn ask(&mut self, mut asked: Box<PendingTurn>) -> Step<Result<Turn, String>> {
        loop {
            let again = match self.request(asked).await? {
                Requested::Reply(turn) => return Ok(Ok(turn)),
                Requested::Unusable(notice) => return Ok(Err(notice)),
                Requested::TooLong(asked, failure) => {
                    Box::pin(self.journal.compress(self.agent, asked.said.len(), Some(failure))).await?;
                    asked
                }
                Requested::Cut(asked, reply) => {
                    Box::pin(self.journal.writer.record_cut(self.agent, &asked, *reply)).await?;
                    asked
                }
                Requested::Throttled(asked) => asked,
            };
            asked = Box::pin(self.journal.ask_again(self.agent, again)).await?;
        }
    }

    /// Requests a turn and starts its calls while it streams.
    async fn request(&mut self, asked: Box<PendingTurn>) -> Step<Requested> {
        // The calls of a request that is repeated have not started.
        self.turn = asked.key;
        self.calls.clear();
        self.schedule = Schedule::new(self.agent.config.limits.max_parallel_calls as usize);
        // The unbounded channel of futures, because tokio's allocates room for 32 events up front.
        let (sink, mut heard) = mpsc::unbounded();
        let mut reply = pin!(self.journal.request(self.agent, &asked, sink));
        self.asked = Some(asked);
        let ended = loop {
            // Boxed, because most turns have no followers.
            let tells = self.asked.as_ref().and_then(|asked| asked.tell_at());
            let tells = tells.map(|at| Box::pin(tokio::time::sleep_until(at.into())));
            tokio::select! {
                // Stream events are handled before the end of the reply.
                biased;
                Some(event) = heard.next() => Box::pin(self.hear(event)).await?,
                ended = &mut reply => break ended,
                Some(ran) = self.running.next(), if !self.running.is_empty() => {
                    Box::pin(self.ended(vec![ran])).await?;
                }
                Some(()) = OptionFuture::from(tells) => Box::pin(self.tell()).await?,
            }
        };
        Box::pin(self.came_to(ended, heard)).await
    }

    /// Handles a stream event: a call whose arguments are complete may start before the reply ends.
    async fn hear(&mut self, event: ReplyEvent) -> Step<()> {
        let mut call = None;
        if let Some(asked) = self.asked.as_mut() {
            call = asked.hear(event);
        }
        self.tell().await?;
        let Some(call) = call.filter(|_| !self.agent.profile.is_single_call()) else { return Ok(()) };
        let streamed = self.take(call, false).await?;
        self.on(VecDeque::from([streamed])).await
    }

    /// Tells what the model has written. The reply is not read while its text is committed: the connection holds what
    /// arrives meanwhile.
    async fn tell(&mut self) -> Step<()> {
        let Some(asked) = self.asked.as_mut() else { return Ok(()) };
        if self.agent.profile.records_text() {
            return self.journal.writer.record_text(asked).await;
        }
        self.journal.writer.tell(asked);
        Ok(())
    }

    /// Handles the end of the model request: a reply or an error.
    async fn came_to(
        &mut self,
        ended: Result<ModelReply, ModelError>,
        mut heard: UnboundedReceiver<ReplyEvent>,
    ) -> Step<Requested> {
        self.journal.writer.at(Point::TurnAnswered).await;
        let Some(mut asked) = self.asked.take() else { return Err(Interrupt::LeaseLost.into()) };
        // Events not handled yet are repeated by the whole reply.
        while let Ok(event) = heard.try_recv() {
            asked.hear(event);
        }
        match ended {
            Ok(reply) if asked.is_cut_by_budget(&reply) => Ok(Requested::Cut(asked, Box::new(reply))),
            Ok(reply) => {
                // `asked` ends with this function, and with it the span of the model call: the calls of the reply
                // are its siblings.
                let turn = self.journal.record_turn(self.agent, &asked, reply).await?;
                self.is_unrecorded = true;
                Ok(Requested::Reply(turn))
            }
            Err(error) if self.agent.profile.is_single_call() && matches!(error.root(), ModelError::Empty) => {
                let turn = self.journal.record_turn(self.agent, &asked, ModelReply::empty()).await?;
                self.is_unrecorded = true;
                Ok(Requested::Reply(turn))
            }
            Err(error) => self.failed(asked, error).await,
        }
    }

    async fn failed(&mut self, asked: Box<PendingTurn>, error: ModelError) -> Step<Requested> {
        observe_failure(&self.agent.routes[asked.route], &asked.span, &error, asked.started.elapsed());
        // A refusal ends the run even if calls have started.
        let is_refusal = matches!(error.root(), ModelError::Refused { .. });
        if asked.is_begun() && !is_refusal {
            let partial = error.partial().cloned();
            self.is_unrecorded = true;
            return self.journal.record_broken(self.agent, asked, partial).map(Requested::Reply);
        }
        // A caller of the contract gets the provider's refusal at once.
        let is_bad_call = matches!(error.root(), ModelError::BadCall { .. }) && self.agent.profile.takes_part();
        if is_bad_call || matches!(error.root(), ModelError::Empty) {
            return self.journal.record_unusable(self.agent, asked, &error).await.map(Requested::Unusable);
        }
        if error.class() == FailureClass::ContextLimit && self.agent.profile.takes_part() {
            let route = &self.agent.routes[asked.route];
            let told = match error.window() {
                Some(told) => Some(told),
                None => Box::pin(route.model.window(&route.spec)).await,
            };
            self.journal.learn_window(self.agent, told);
            return Ok(Requested::TooLong(asked, error.to_failure()));
        }
        if self.journal.writer.is_turn_asked_again(self.agent, &asked, &error).await {
            return Ok(Requested::Throttled(asked));
        }
        Err(self.journal.writer.record_failed_turn(self.agent, asked, &error).await)
    }
}
