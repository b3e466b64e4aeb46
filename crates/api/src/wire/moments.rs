//! Reads what happened in a run, in order, as the wires tell it (`longhaul_wire::Moment`).
//!
//! Moments depend on the events and the steps of the run alone: every reader, at any process and at any time, gets the
//! same ones.

use std::collections::{HashMap, HashSet, VecDeque};

use longhaul_domain::{
    ExecutionId, ExecutionStatus, HumanRequestId, RequestKind, TenantId, ToolCall, message::Message,
    requirements::ASK_CALLER,
};
use longhaul_fairness::Share;
use longhaul_store::{
    executions::read::ExecutionRecord,
    history::{
        body,
        events::{Cursor, Event, News},
        read::{Bodies, RecordedStep},
    },
    tenants::scope::TenantScope,
};
use longhaul_wire::{End, Moment, Reply, ReplyCall, Runner, Tokens, Wanted, WantedKind};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::{ids::call_id, waits::Waits};
use crate::{
    error::{ApiError, ApiResult},
    event_stream::{Frame, Subscription},
    routes::human_requests::view::{raw, shown},
    state::ApiState,
};

/// Most events of one read.
const EVENTS_PER_READ: i64 = 500;

/// The run that is read, and the part of it that is one answer.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) tenant: TenantId,
    pub(super) execution: ExecutionId,
    /// Number of the event after which the answer begins.
    pub(super) after: i32,
    /// Tools whose calls the caller runs; `None` if it runs all of them.
    pub(super) of_caller: Option<HashSet<String>>,
    /// True if the text of an answer is the output's member `response`.
    pub(super) is_agent: bool,
    /// True if the reader may see the arguments of calls that wait for it as they are.
    pub(super) is_exact: bool,
    /// True if the results of calls that workers ran are told.
    pub(super) has_results: bool,
}

/// The next thing that a reader learns.
#[derive(Debug)]
pub(super) enum Next {
    /// With its time, in seconds since 1970.
    Moment(Moment, i64),
    /// The process stops, its slot was taken, or the run is gone: nothing can be said about its end.
    Gone,
}

/// Follows one answer of a run.
pub(super) struct Moments {
    reader: Reader,
    subscription: Subscription,
    /// Number of the last event that was read.
    last: i32,
    is_over: bool,
}

impl Moments {
    /// # Errors
    /// The process has no slot for another stream.
    pub(super) async fn open(state: &ApiState, source: Source) -> ApiResult<Self> {
        let subscription = state.event_streams.subscribe_patiently(source.tenant, source.execution).await?;
        Ok(Self { reader: Reader::new(state, source, Places::Own), subscription, last: 0, is_over: false })
    }

    /// The next moment. After [`Moment::Waits`] and [`Moment::Over`] the answer is complete. A call that is given up
    /// may lose events: a reader with a limit asks with [`Self::next_until`].
    ///
    /// # Errors
    /// The record cannot be read.
    pub(super) async fn next(&mut self) -> ApiResult<Next> {
        Ok(self.step(None).await?.unwrap_or(Next::Gone))
    }

    /// As [`Self::next`]; `None` if nothing happens until then.
    ///
    /// # Errors
    /// As those of [`Self::next`].
    pub(super) async fn next_until(&mut self, until: Instant) -> ApiResult<Option<Next>> {
        self.step(Some(until)).await
    }

    /// Only the wait for events has a limit: a timeout around the reads would drop events that are half told.
    async fn step(&mut self, until: Option<Instant>) -> ApiResult<Option<Next>> {
        loop {
            if let Some((moment, at)) = self.reader.ready.pop_front() {
                return Ok(Some(Next::Moment(moment, at)));
            }
            if self.is_over {
                return Ok(Some(Next::Gone));
            }
            let state = self.reader.state.clone();
            let frame = tokio::select! {
                frame = self.subscription.next() => frame,
                () = state.shutdown.cancelled() => return Ok(Some(Next::Gone)),
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => return Ok(None),
            };
            match frame {
                // A reader of a long record is slower than the follower of all streams, and goes on where it was.
                None => {
                    let (execution, last) = (self.reader.source.execution, self.last);
                    if !state.event_streams.go_on(&mut self.subscription, execution, last).await {
                        return Ok(Some(Next::Gone));
                    }
                }
                Some(Frame::Events(events)) => {
                    for event in events {
                        self.reader.push(&event).await?;
                        self.last = event.seq;
                    }
                }
                Some(Frame::Resync { last }) => self.last = last,
                Some(Frame::Text(_)) => {}
                Some(Frame::Over) => {
                    self.is_over = true;
                    self.reader.end().await?;
                }
            }
        }
    }
}

/// The moments of an answer that are recorded now.
///
/// # Errors
/// The record cannot be read.
pub(super) async fn recorded(state: &ApiState, source: Source) -> ApiResult<Vec<(Moment, i64)>> {
    let mut cursor = Cursor { execution: source.execution, after: 0 };
    let mut reader = Reader::new(state, source, Places::OfCaller);
    loop {
        let news = state.store.events_after(&[cursor], EVENTS_PER_READ).await?.pop().flatten();
        let Some(News { events, last, is_over }) = news else { break };
        for event in &events {
            reader.push(event).await?;
        }
        cursor.after = events.last().map_or(last, |event| event.seq);
        if cursor.after >= last {
            if is_over {
                reader.end().await?;
            }
            break;
        }
    }
    Ok(reader.ready.into())
}

/// The places of reads (`crate::reads`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Places {
    /// Each read takes one: a stream has none between its reads.
    Own,
    /// The request has one, and must not wait for a second.
    OfCaller,
}

/// Makes moments from events and steps.
struct Reader {
    state: ApiState,
    source: Source,
    places: Places,
    waits: Waits,
    ready: VecDeque<(Moment, i64)>,
    has_started: bool,
    last_text: String,
    /// Ids of the questions asked, as the caller knows them, by those that the model gave.
    asked: HashMap<String, String>,
}

impl Reader {
    fn new(state: &ApiState, source: Source, places: Places) -> Self {
        Self {
            state: state.clone(),
            source,
            places,
            waits: Waits::default(),
            ready: VecDeque::new(),
            has_started: false,
            last_text: String::new(),
            asked: HashMap::new(),
        }
    }

    async fn push(&mut self, event: &Event) -> ApiResult<()> {
        let is_waiting = self.waits.note(event);
        self.note_question(event);
        if event.seq <= self.source.after {
            return Ok(());
        }
        let at = event.at.timestamp();
        let moment = self.of_event(event).await?;
        let waiting = if is_waiting { Some(Moment::Waits(self.wanted().await?)) } else { None };
        self.ready.extend(moment.into_iter().chain(waiting).map(|moment| (moment, at)));
        Ok(())
    }

    async fn place(&self) -> ApiResult<Option<Share<TenantId>>> {
        match self.places {
            Places::Own => Ok(Some(self.state.reads.place(self.source.tenant).await?)),
            Places::OfCaller => Ok(None),
        }
    }

    fn note_question(&mut self, event: &Event) {
        if event.kind != "question_asked" {
            return;
        }
        let text = |member: &str| event.data.as_ref()?.get(member)?.as_str();
        let id = text("id").and_then(|id| id.parse::<HumanRequestId>().ok());
        if let (Some(id), Some(by_model)) = (id, text("call_id")) {
            self.asked.insert(by_model.to_owned(), call_id(id));
        }
    }

    async fn of_event(&mut self, event: &Event) -> ApiResult<Option<Moment>> {
        let number = |member: &str| event.data.as_ref().and_then(|data| data.get(member)?.as_u64());
        let turn = number("turn").and_then(|turn| u32::try_from(turn).ok()).unwrap_or_default();
        Ok(match event.kind.as_str() {
            "claimed" if !self.has_started => {
                self.has_started = true;
                Some(Moment::Started)
            }
            "text" => {
                let text = event.data.as_ref().and_then(|data| data.get("text")?.as_str()).unwrap_or_default();
                let offset = number("offset").and_then(|offset| usize::try_from(offset).ok()).unwrap_or_default();
                Some(Moment::Text { turn, offset, text: text.to_owned() })
            }
            "text_void" => Some(Moment::Void { turn }),
            "turn" => self.reply(event, turn).await?,
            "call" if self.source.has_results => self.result(event).await?,
            _ => None,
        })
    }

    /// The reply of a recorded turn; `None` if it was of no use.
    async fn reply(&mut self, event: &Event, turn: u32) -> ApiResult<Option<Moment>> {
        let Some(step) = self.step(event).await? else { return Ok(None) };
        for stored in &step.appends {
            let Message::Assistant { text, calls, native } = message(stored)? else { continue };
            self.last_text.clone_from(&text);
            let is_of_caller = |call: &ToolCall| {
                // A question is told where the run waits for its answer.
                call.name == ASK_CALLER || self.source.of_caller.as_ref().is_none_or(|own| own.contains(&call.name))
            };
            let calls = calls.into_iter().map(|call| {
                let by = if is_of_caller(&call) { Runner::Caller } else { Runner::Worker };
                ReplyCall { call, by }
            });
            let data = event.data.clone().unwrap_or_default();
            let count = |member: &str| data[member].as_u64().unwrap_or_default();
            return Ok(Some(Moment::Reply(Reply {
                turn,
                text,
                calls: calls.collect(),
                native,
                model: data["model"].as_str().map(str::to_owned),
                tokens: Tokens {
                    input: count("input_tokens"),
                    output: count("output_tokens"),
                    cached: count("cached_tokens"),
                    cache_write: count("cache_write_tokens"),
                },
                is_cut: data["finish"] == "length",
            })));
        }
        Ok(None)
    }

    async fn result(&mut self, event: &Event) -> ApiResult<Option<Moment>> {
        let Some(step) = self.step(event).await? else { return Ok(None) };
        for stored in &step.appends {
            if let Message::Tool { call_id, name, text, is_error, .. } = message(stored)? {
                // The caller has the results of its own functions.
                if self.source.of_caller.as_ref().is_none_or(|own| own.contains(&name)) {
                    return Ok(None);
                }
                let call_id =
                    if name == ASK_CALLER { self.asked.get(&call_id).cloned().unwrap_or(call_id) } else { call_id };
                return Ok(Some(Moment::Result { call_id, name, text, is_error }));
            }
        }
        Ok(None)
    }

    /// The requests that wait for the caller now.
    async fn wanted(&self) -> ApiResult<Vec<Wanted>> {
        let _place = self.place().await?;
        let mut all = Vec::new();
        for (id, kind) in self.waits.open() {
            let Some(request) = self.state.store.get_request(&TenantScope::from(self.source.tenant), kind, id).await?
            else {
                continue;
            };
            let arguments = match (kind, self.source.is_exact) {
                (RequestKind::ToolCall | RequestKind::Question, true) => raw(&request.arguments)?,
                (RequestKind::Approval, _) | (_, false) => shown(&request, &request.arguments)?,
            };
            let (kind, call) = (
                wanted_kind(kind),
                ToolCall { id: call_id(id), name: request.tool.clone(), arguments: arguments.get().to_owned() },
            );
            all.push(Wanted { kind, request_id: id.to_string(), call });
        }
        Ok(all)
    }

    async fn end(&mut self) -> ApiResult<()> {
        let _place = self.place().await?;
        let record =
            self.state.store.get_execution(&TenantScope::from(self.source.tenant), self.source.execution).await?;
        // Pruned: nothing is known of its end.
        let Some(record) = record else { return Ok(()) };
        let at = record.summary.finished_at.unwrap_or(record.summary.created_at).timestamp();
        let end = self.end_of(&record);
        self.ready.push_back((Moment::Over(end), at));
        Ok(())
    }

    fn end_of(&self, record: &ExecutionRecord) -> End {
        let summary = &record.summary;
        if summary.status == ExecutionStatus::Finished {
            return End::Finished { output: self.output(record) };
        }
        let code = summary.failure_code.clone().unwrap_or_default();
        match code.as_str() {
            "cancelled" => End::Cancelled,
            "model_output_truncated" => End::Cut,
            _ => End::Failed {
                class: summary.failure_class.clone().unwrap_or_default(),
                code,
                summary: summary.failure_summary.clone().unwrap_or_default(),
                detail: record.failure_detail.as_ref().and_then(|detail| serde_json::from_str(detail.get()).ok()),
            },
        }
    }

    /// The text of the answer.
    fn output(&self, record: &ExecutionRecord) -> String {
        let Some(output) = record.output.as_ref() else { return String::new() };
        if self.source.of_caller.is_none() {
            return self.last_text.clone();
        }
        if self.source.is_agent {
            let value: Value = serde_json::from_str(output.get()).unwrap_or_default();
            if let Some(text) = value.get("response").and_then(Value::as_str) {
                return text.to_owned();
            }
        }
        output.get().to_owned()
    }

    /// The step that an event is about.
    async fn step(&self, event: &Event) -> ApiResult<Option<RecordedStep>> {
        let step = event.data.as_ref().and_then(|data| data.get("step")?.as_i64());
        let Some(step) = step.and_then(|step| i32::try_from(step).ok()) else { return Ok(None) };
        let _place = self.place().await?;
        Ok(self.state.store.list_steps(self.source.execution, step - 1, 1, Bodies::Read).await?.pop())
    }
}

fn wanted_kind(kind: RequestKind) -> WantedKind {
    match kind {
        RequestKind::ToolCall => WantedKind::Result,
        RequestKind::Question => WantedKind::Answer,
        RequestKind::Approval => WantedKind::Approval,
    }
}

fn message(stored: &[u8]) -> ApiResult<Message> {
    let bytes = body::decode(stored)?;
    Message::from_bytes(&bytes).map_err(|error| {
        tracing::error!(error = %error, "a recorded message cannot be read");
        ApiError::Internal
    })
}
