//! Follows the events of many executions with one query.
//!
//! Invariants (core-rules 18): all streams of a process share one statement per hint and one per second; a stream
//! is registered before its first read, so that no event falls in between; a reader more than [`MAX_BEHIND`]
//! batches behind is disconnected and resumes from its cursor. Hints may be lost or duplicated.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use longhaul_domain::{ExecutionId, TenantId};
use longhaul_fairness::{FairShare, Share};
use longhaul_queue::hints::{Look, LookSubscriber, TextDelta};
use longhaul_store::{
    Store,
    history::events::{Cursor, Event},
};
use longhaul_telemetry::metrics;
use tokio::{
    sync::{broadcast, mpsc},
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::error::{ApiError, ApiResult};

/// Interval of reads without hints.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pause after a read in which hints gather, for each stream that was read and at most: a burst of hints causes few
/// reads, and the end of an execution that runs alone is read at once.
const GATHER: Duration = Duration::from_millis(1);
const LONGEST_GATHER: Duration = Duration::from_millis(5);
/// Maximum number of events per stream and read; the rest follows in the next read.
const EVENTS_PER_READ: i64 = 200;
/// Batches that a reader may be behind before it is disconnected.
const MAX_BEHIND: usize = 8;
/// Batches that wait for a reader that goes on where it was.
const MAX_BEHIND_PATIENT: usize = 2;
/// Frames that a reader of text may be behind: its pieces are small.
const MAX_BEHIND_WITH_TEXT: usize = 64;
/// Timeout of a read; a read that times out is repeated.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Frame {
    Events(Vec<Event>),
    /// Events between the cursor and `last` are gone: read the execution itself, then continue after `last`.
    Resync {
        last: i32,
    },
    /// The model wrote this.
    Text(TextDelta),
    /// No event will follow.
    Over,
}

/// One stream. Dropping it unregisters the stream.
#[derive(Debug)]
pub(crate) struct Subscription {
    frames: mpsc::Receiver<Frame>,
    slot: Share<TenantId>,
    /// True if another tenant took the slot.
    is_evicted: bool,
}

impl Subscription {
    /// The next frame; `None` if this reader was too slow, another tenant took its slot, or the process shuts down.
    /// Cancelling it loses no frame.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        tokio::select! {
            frame = self.frames.recv() => frame,
            () = self.slot.asked_back() => {
                self.is_evicted = true;
                None
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct EventStreams {
    subscribes: mpsc::Sender<Stream>,
    /// Places for streams and held submits. An evicted client reconnects with its cursor, or gets the current record.
    slots: FairShare<TenantId>,
    _looks: LookSubscriber,
    _task: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Stream {
    cursor: Cursor,
    /// True if the reader wants text while the model writes it.
    has_text: bool,
    frames: mpsc::Sender<Frame>,
}

impl EventStreams {
    pub(crate) fn spawn(store: Store, looks: LookSubscriber, max_streams: usize, shutdown: CancellationToken) -> Self {
        let (subscribes, inbox) = mpsc::channel(256);
        let follower = Follower::new(store, inbox, looks.subscribe(), shutdown);
        Self {
            subscribes,
            slots: FairShare::new(max_streams as u64),
            _looks: looks,
            _task: AbortOnDropHandle::new(tokio::spawn(follower.run())),
        }
    }

    /// Follows the events of an execution after number `after`, for a caller of `tenant`.
    ///
    /// # Errors
    /// The process has no slot for another stream, or it shuts down.
    pub(crate) async fn subscribe(
        &self,
        tenant: TenantId,
        execution: ExecutionId,
        after: i32,
    ) -> ApiResult<Subscription> {
        self.follow(tenant, Cursor { execution, after }, false, MAX_BEHIND).await
    }

    /// As [`Self::subscribe`] from the first event, for a reader that goes on ([`Self::go_on`]) when it was too slow.
    ///
    /// # Errors
    /// As [`Self::subscribe`].
    pub(crate) async fn subscribe_patiently(
        &self,
        tenant: TenantId,
        execution: ExecutionId,
    ) -> ApiResult<Subscription> {
        self.follow(tenant, Cursor { execution, after: 0 }, false, MAX_BEHIND_PATIENT).await
    }

    /// As [`Self::subscribe`], with the text of replies while the model writes it.
    ///
    /// # Errors
    /// As [`Self::subscribe`].
    pub(crate) async fn subscribe_with_text(
        &self,
        tenant: TenantId,
        execution: ExecutionId,
        after: i32,
    ) -> ApiResult<Subscription> {
        self.follow(tenant, Cursor { execution, after }, true, MAX_BEHIND_WITH_TEXT).await
    }

    /// A slot of a stream that follows no execution at the moment.
    ///
    /// # Errors
    /// The process has no slot for another stream.
    pub(crate) fn slot(&self, tenant: TenantId) -> ApiResult<Share<TenantId>> {
        self.slots.take_over(tenant).ok_or(ApiError::TooManyStreams)
    }

    /// Goes on after event `after` with a stream without text whose reader was too slow. Returns false if its slot is
    /// gone, or the process shuts down.
    pub(crate) async fn go_on(&self, stream: &mut Subscription, execution: ExecutionId, after: i32) -> bool {
        let (frames, receiver) = mpsc::channel(MAX_BEHIND_PATIENT);
        stream.frames = receiver;
        let again = Stream { cursor: Cursor { execution, after }, has_text: false, frames };
        !stream.is_evicted && self.subscribes.send(again).await.is_ok()
    }

    async fn follow(
        &self,
        tenant: TenantId,
        cursor: Cursor,
        has_text: bool,
        max_behind: usize,
    ) -> ApiResult<Subscription> {
        let slot = self.slots.take_over(tenant).ok_or(ApiError::TooManyStreams)?;
        let (frames, receiver) = mpsc::channel(max_behind);
        let stream = Stream { cursor, has_text, frames };
        self.subscribes.send(stream).await.map_err(|_| ApiError::Unavailable)?;
        Ok(Subscription { frames: receiver, slot, is_evicted: false })
    }

    /// Waits until the execution is over or `limit` has passed.
    ///
    /// # Errors
    /// The process has no slot for another stream, or it shuts down.
    pub(crate) async fn wait_until_over(
        &self,
        tenant: TenantId,
        execution: ExecutionId,
        limit: Duration,
    ) -> ApiResult<()> {
        let mut subscription = self.subscribe(tenant, execution, 0).await?;
        let over = async { while !matches!(subscription.next().await, Some(Frame::Over) | None) {} };
        let _ = timeout(limit, over).await;
        Ok(())
    }
}

struct Follower {
    store: Store,
    inbox: mpsc::Receiver<Stream>,
    looks: broadcast::Receiver<Look>,
    shutdown: CancellationToken,
    streams: HashMap<u64, Stream>,
    by_execution: HashMap<ExecutionId, Vec<u64>>,
    due: HashSet<u64>,
    next_key: u64,
}

impl Follower {
    fn new(
        store: Store,
        inbox: mpsc::Receiver<Stream>,
        looks: broadcast::Receiver<Look>,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            store,
            inbox,
            looks,
            shutdown,
            streams: HashMap::new(),
            by_execution: HashMap::new(),
            due: HashSet::new(),
            next_key: 0,
        }
    }

    async fn run(mut self) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next_read = Instant::now();
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                stream = self.inbox.recv() => match stream {
                    Some(stream) => self.add(stream),
                    None => return,
                },
                look = next_look(&mut self.looks) => self.note(look),
                _ = ticks.tick() => self.due.extend(self.streams.keys()),
                () = sleep_until(next_read), if !self.due.is_empty() => {
                    let read = self.read().await;
                    let pause = read.map(|streams| GATHER.saturating_mul(streams).min(LONGEST_GATHER));
                    next_read = Instant::now() + pause.unwrap_or(LOOK_EVERY);
                }
            }
        }
    }

    fn add(&mut self, stream: Stream) {
        let key = self.next_key;
        self.next_key += 1;
        self.by_execution.entry(stream.cursor.execution).or_default().push(key);
        self.streams.insert(key, stream);
        self.due.insert(key);
        metrics::streams_open(self.streams.len());
    }

    fn remove(&mut self, key: u64) {
        self.due.remove(&key);
        let Some(stream) = self.streams.remove(&key) else { return };
        metrics::streams_open(self.streams.len());
        if let Some(keys) = self.by_execution.get_mut(&stream.cursor.execution) {
            keys.retain(|&other| other != key);
            if keys.is_empty() {
                self.by_execution.remove(&stream.cursor.execution);
            }
        }
    }

    fn note(&mut self, look: Look) {
        match look {
            Look::At(executions) => {
                let keys = executions.iter().filter_map(|execution| self.by_execution.get(execution));
                self.due.extend(keys.flatten());
            }
            Look::Text(deltas) => {
                for delta in deltas.iter() {
                    let keys = self.by_execution.get(&delta.execution).into_iter().flatten();
                    for stream in keys.filter_map(|key| self.streams.get(key)).filter(|stream| stream.has_text) {
                        // A reader that is behind gets the text with the recorded turn.
                        let _ = stream.frames.try_send(Frame::Text(delta.clone()));
                    }
                }
            }
            Look::AtEverything => self.due.extend(self.streams.keys()),
        }
    }

    /// Reads the streams that are due; returns their number, `None` if Postgres did not answer.
    async fn read(&mut self) -> Option<u32> {
        let gone: Vec<u64> =
            self.due.iter().copied().filter(|key| self.streams.get(key).is_none_or(|s| s.frames.is_closed())).collect();
        gone.into_iter().for_each(|key| self.remove(key));
        let (keys, cursors): (Vec<u64>, Vec<Cursor>) =
            self.due.iter().filter_map(|key| Some((*key, self.streams.get(key)?.cursor))).unzip();
        if keys.is_empty() {
            self.due.clear();
            return Some(0);
        }
        let news = match timeout(READ_TIMEOUT, self.store.events_after(&cursors, EVENTS_PER_READ)).await {
            Ok(Ok(news)) => news,
            Ok(Err(error)) => {
                tracing::debug!(error = %error, "event streams wait: the database is unavailable");
                return None;
            }
            Err(_) => return None,
        };
        self.due.clear();
        let streams = u32::try_from(keys.len()).unwrap_or(u32::MAX);
        for (key, news) in keys.into_iter().zip(news) {
            let Some(stream) = self.streams.get_mut(&key) else { continue };
            match stream.deliver(news) {
                Standing::UpToDate => {}
                Standing::Behind => {
                    self.due.insert(key);
                }
                Standing::Ended => self.remove(key),
            }
        }
        Some(streams)
    }
}

enum Standing {
    UpToDate,
    Behind,
    Ended,
}

impl Stream {
    fn deliver(&mut self, news: Option<longhaul_store::history::events::News>) -> Standing {
        // The execution was pruned.
        let Some(news) = news else {
            let _ = self.frames.try_send(Frame::Over);
            return Standing::Ended;
        };
        let is_full = |sent: Result<(), mpsc::error::TrySendError<Frame>>| sent.is_err();
        if news.breaks(self.cursor.after) {
            self.cursor.after = news.last;
            if is_full(self.frames.try_send(Frame::Resync { last: news.last })) {
                return Standing::Ended;
            }
        } else if let Some(last) = news.events.last().map(|event| event.seq) {
            self.cursor.after = last;
            if is_full(self.frames.try_send(Frame::Events(news.events))) {
                return Standing::Ended;
            }
        }
        if self.cursor.after < news.last {
            return Standing::Behind;
        }
        if news.is_over {
            let _ = self.frames.try_send(Frame::Over);
            return Standing::Ended;
        }
        Standing::UpToDate
    }
}

/// The next hint; pending for ever once the hints have ended.
async fn next_look(looks: &mut broadcast::Receiver<Look>) -> Look {
    match looks.recv().await {
        Ok(look) => look,
        Err(broadcast::error::RecvError::Lagged(_)) => Look::AtEverything,
        Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use longhaul_store::history::events::News;
    use uuid::Uuid;

    use super::*;

    fn stream(after: i32) -> (Stream, mpsc::Receiver<Frame>) {
        let (frames, receiver) = mpsc::channel(MAX_BEHIND);
        (Stream { cursor: Cursor { execution: ExecutionId(Uuid::nil()), after }, has_text: false, frames }, receiver)
    }

    fn news(seqs: std::ops::RangeInclusive<i32>, last: i32, is_over: bool) -> News {
        let event = |seq| Event { seq, at: DateTime::UNIX_EPOCH, kind: "e".into(), data: None };
        News { events: seqs.map(event).collect(), last, is_over }
    }

    fn drain(receiver: &mut mpsc::Receiver<Frame>) -> Vec<String> {
        let text = |frame| match frame {
            Frame::Events(events) => format!("{:?}", events.iter().map(|event| event.seq).collect::<Vec<_>>()),
            Frame::Resync { last } => format!("resync {last}"),
            Frame::Text(delta) => delta.text,
            Frame::Over => "over".into(),
        };
        std::iter::from_fn(|| receiver.try_recv().ok()).map(text).collect()
    }

    #[tokio::test]
    async fn metric_counts_the_open_streams() {
        use longhaul_store::StoreOptions;
        use longhaul_telemetry::{LogFormat, TelemetryOptions};
        let options = TelemetryOptions { log_format: LogFormat::Json, log_filter: "off".into(), otlp_endpoint: None };
        let _telemetry = longhaul_telemetry::build(&options, "test").unwrap();
        let shown = || {
            let text = metrics::render();
            let line = text.lines().find_map(|line| line.strip_prefix("longhaul_events_streams_open "));
            line.map(str::to_owned)
        };
        // Only streams whose reader hung up are read, so no query reaches this database.
        let store = Store::open(StoreOptions::new("postgres://nobody@127.0.0.1:1/none")).unwrap();
        let (_subscribes, inbox) = mpsc::channel(1);
        let (_hints, looks) = broadcast::channel(1);
        let mut follower = Follower::new(store, inbox, looks, CancellationToken::new());
        let (first, first_reader) = stream(0);
        let (second, second_reader) = stream(0);
        follower.add(first);
        follower.add(second);
        assert_eq!(shown().as_deref(), Some("2"));
        // Its next read notices readers that hung up.
        drop((first_reader, second_reader));
        assert_eq!(follower.read().await, Some(0));
        assert_eq!(shown().as_deref(), Some("0"));
    }

    #[test]
    fn last_event_ends_the_ordered_stream() {
        let (mut stream, mut frames) = stream(0);
        assert!(matches!(stream.deliver(Some(news(1..=2, 3, true))), Standing::Behind));
        assert!(matches!(stream.deliver(Some(news(3..=3, 3, true))), Standing::Ended));
        assert_eq!(drain(&mut frames), ["[1, 2]", "[3]", "over"]);
    }

    #[test]
    fn gap_or_foreign_cursor_causes_a_resync() {
        let nothing = std::ops::RangeInclusive::new(1, 0);
        for (after, told) in
            [(1, news(5..=6, 6, false)), (9, news(nothing.clone(), 6, false)), (3, news(nothing.clone(), 6, false))]
        {
            let (mut stream, mut frames) = stream(after);
            assert!(matches!(stream.deliver(Some(told)), Standing::UpToDate));
            assert_eq!(drain(&mut frames), ["resync 6"]);
            assert_eq!(stream.cursor.after, 6);
        }
    }

    #[test]
    fn slow_stream_reader_is_disconnected() {
        let (mut stream, _frames) = stream(0);
        let mut last = 0;
        let ended = (0..20).position(|_| {
            last += 1;
            matches!(stream.deliver(Some(news(last..=last, last, false))), Standing::Ended)
        });
        assert_eq!(ended, Some(MAX_BEHIND));
    }
}
