//! Sends wake-ups and looks in the background.
//!
//! `publish` and `look` put a note into a bounded buffer and return. They never wait or fail, so a Redis stall
//! cannot delay the response to a submit. One task owned by the publisher sends the buffer in pipelined batches.
//! While Redis is away it discards the notes: old wake-ups are useless, and the sweep makes new ones.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use longhaul_domain::{ExecutionId, Runnable, WaitReason};
use longhaul_telemetry::metrics::{self, WakeupDrop};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::{
    QueueError, QueueName, QueueOptions,
    hints::TextDelta,
    keys::{Keys, WAKE_LIST_TTL_SECONDS},
    link::Link,
    messages,
    replies::{self, ReplyNote},
};

/// Capacity of the buffer, in notes; most of a second at 10,000 submits per second.
const BUFFER: usize = 8_192;
/// Maximum notes per pipeline.
const BATCH: usize = 1_024;
/// Time to collect looks after a batch of them, for each that it had and at most: many steps of many executions become
/// one message to each API process, and those of one that runs alone wait for nothing.
const LOOK_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_LOOK_PAUSE: Duration = Duration::from_millis(5);
/// Maximum age of a wake-up. Older ones are dropped; the sweep has made newer ones by then.
const STALE_AFTER: Duration = Duration::from_secs(2);
/// Command timeout of the sweep, which runs every second and must not stall for the full command timeout.
const SWEEP_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum ids per look message, and wake-ups per script call.
const LOOK_MESSAGE_IDS: usize = 4_096;
const PUSH_CHUNK: usize = 1_000;

pub(super) const PUSH_SCRIPT: &str = include_str!("lua/push_wakeups.lua");
const TOP_UP_SCRIPT: &str = include_str!("lua/top_up_wakeups.lua");

/// Publishes wake-ups and looks. Cheap to clone; dropping the last clone stops the task and discards unsent notes.
#[derive(Clone)]
pub struct WakeupPublisher {
    inner: Arc<Inner>,
}

struct Inner {
    notes: mpsc::Sender<Note>,
    sweep_link: Mutex<Link>,
    keys: Keys,
    list_cap: usize,
    _task: AbortOnDropHandle<()>,
}

/// The end of a lease, as workers and observers hear of it.
#[derive(Debug)]
pub struct LeaseEnded<'a> {
    pub id: ExecutionId,
    pub queue: &'a str,
    /// Wait of an execution that has not ended.
    pub waits_for: Option<WaitReason>,
    /// True if the execution ended.
    pub is_over: bool,
    pub is_in_session: bool,
    /// Its parent, which runs in the same queue.
    pub parent: Option<ExecutionId>,
}

enum Note {
    Wake { queue: QueueName, hint: Uuid, count: usize, noted_at: Instant },
    Look(Vec<ExecutionId>),
    Reply(ReplyNote),
    Flush(oneshot::Sender<()>),
}

impl WakeupPublisher {
    /// Starts the publisher on the current runtime. Redis may be unavailable.
    ///
    /// # Errors
    /// [`QueueError::Url`] if the URL cannot be parsed.
    pub fn start(options: &QueueOptions) -> Result<Self, QueueError> {
        let keys = Keys::new(&options.prefix);
        let (notes, inbox) = mpsc::channel(BUFFER);
        let sender = Sender {
            link: Link::new(options, options.command_timeout)?,
            keys: keys.clone(),
            list_cap: options.list_cap,
            inbox,
        };
        Ok(Self {
            inner: Arc::new(Inner {
                notes,
                sweep_link: Mutex::new(Link::new(options, SWEEP_TIMEOUT)?),
                keys,
                list_cap: options.list_cap,
                _task: AbortOnDropHandle::new(tokio::spawn(sender.run())),
            }),
        })
    }

    /// Announces that `count` executions of `queue` became runnable, among them `hint`. Does not block.
    pub fn publish(&self, queue: &QueueName, hint: Uuid, count: usize) {
        if count == 0 {
            return;
        }
        let note = Note::Wake { queue: queue.clone(), hint, count, noted_at: Instant::now() };
        if self.inner.notes.try_send(note).is_err() {
            metrics::wakeups_dropped(WakeupDrop::BufferFull, count);
        }
    }

    /// Announces that a request made an execution runnable. Does not block. A lost wake-up only delays the execution.
    pub fn wake(&self, queue: &str, id: ExecutionId) {
        match QueueName::new(queue) {
            Ok(queue) => {
                // Records in the trace when the wake-up was published; the message itself carries no trace context.
                let span = tracing::info_span!(
                    "wakeup",
                    otel.kind = "producer",
                    execution.id = %id,
                    queue.name = queue.as_str()
                );
                span.in_scope(|| self.publish(&queue, id.0, 1));
            }
            // A submit has validated the name, and the sweep finds the execution without a wake-up.
            Err(error) => tracing::warn!(%error, "no wake-up was sent"),
        }
    }

    /// Announces that an execution may be runnable again. Does not block. A lost wake-up only delays the execution, and
    /// one of an execution that is not runnable has no effect.
    pub fn wake_again(&self, queue: &str, id: ExecutionId) {
        if let Ok(queue) = QueueName::new(queue) {
            self.publish(&queue, id.0, 1);
        }
    }

    /// Announces executions that a statement made runnable, to workers and observers. Does not block.
    pub fn runnable(&self, woken: &[Runnable]) {
        self.look(woken.iter().map(|one| one.id));
        woken.iter().for_each(|one| self.wake_again(&one.queue, one.id));
    }

    /// Announces the end of a lease, to workers and observers. Does not block.
    pub fn lease_ended(&self, ended: &LeaseEnded<'_>) {
        self.look([ended.id]);
        // Runnable again, or its session's next message may be.
        if ended.waits_for == Some(WaitReason::Worker) || ended.is_over && ended.is_in_session {
            self.wake_again(ended.queue, ended.id);
        }
        if let Some(parent) = ended.parent.filter(|_| ended.is_over) {
            // It may be runnable now.
            self.look([parent]);
            self.wake_again(ended.queue, parent);
        }
    }

    /// Announces that these executions changed and observers should read them. Does not block.
    pub fn look(&self, executions: impl IntoIterator<Item = ExecutionId>) {
        let executions: Vec<ExecutionId> = executions.into_iter().collect();
        let count = executions.len();
        if count > 0 && self.inner.notes.try_send(Note::Look(executions)).is_err() {
            metrics::looks_dropped(count);
        }
    }

    /// Sends a piece of a reply to the followers of its execution. Does not block; the piece may be lost.
    pub fn text(&self, delta: TextDelta) {
        self.note_reply(ReplyNote::Text(delta));
    }

    /// Voids the text sent of an execution's turn, because the turn is asked again. Does not block.
    pub fn void_reply(&self, execution: ExecutionId) {
        self.note_reply(ReplyNote::Void(execution));
    }

    /// Text that the model has written so far of the turn under way, at offset 0; `None` if it is gone, or Redis does
    /// not answer. The turn may be recorded by now.
    pub async fn reply_so_far(&self, execution: ExecutionId) -> Option<TextDelta> {
        self.ask(async |connection| replies::text_so_far(&self.inner.keys, execution, connection).await).await?
    }

    /// Deletes the text kept of these executions, each with the number of its last recorded turn. Returns false if
    /// Redis does not answer; the text then expires within minutes.
    pub async fn forget_replies(&self, executions: &[(ExecutionId, u32)]) -> bool {
        let keys = executions.iter().flat_map(|(id, turns)| replies::keys_of(&self.inner.keys, *id, *turns));
        let keys: Vec<String> = keys.collect();
        for keys in keys.chunks(PUSH_CHUNK) {
            let deleted: Option<u64> =
                self.ask(async |connection| redis::cmd("UNLINK").arg(keys).query_async(connection).await).await;
            if deleted.is_none() {
                return false;
            }
        }
        true
    }

    fn note_reply(&self, note: ReplyNote) {
        if self.inner.notes.try_send(Note::Reply(note)).is_err() {
            metrics::looks_dropped(1);
        }
    }

    /// Waits until all notes buffered so far are sent or discarded.
    pub async fn flush(&self) {
        let (done, sent) = oneshot::channel();
        if self.inner.notes.send(Note::Flush(done)).await.is_ok() {
            let _ = sent.await;
        }
    }

    /// True if Redis answers.
    pub(super) async fn is_up(&self) -> bool {
        self.ask(async |connection| redis::cmd("PING").query_async::<()>(connection).await).await.is_some()
    }

    /// Length of the list of `queue`; `None` if Redis does not answer.
    pub async fn depth(&self, queue: &QueueName) -> Option<usize> {
        let key = self.inner.keys.wake(queue);
        self.ask(async |connection| redis::cmd("LLEN").arg(key).query_async(connection).await).await
    }

    /// Fills the list of `queue` up to `wanted` wake-ups (at most the cap). Returns the number added; `None` if
    /// Redis does not answer. Safe when several sweeps call it at once.
    pub async fn republish(&self, queue: &QueueName, wanted: usize) -> Option<usize> {
        let key = self.inner.keys.wake(queue);
        let wanted = wanted.min(self.inner.list_cap);
        let added = self
            .ask(async |connection| {
                redis::cmd("EVAL")
                    .arg(TOP_UP_SCRIPT)
                    .arg(1)
                    .arg(key)
                    .arg(wanted)
                    .arg(WAKE_LIST_TTL_SECONDS)
                    .arg(&messages::wakeup())
                    .query_async(connection)
                    .await
            })
            .await?;
        metrics::wakeups_republished(added);
        Some(added)
    }

    pub(super) async fn ask<T>(
        &self,
        command: impl AsyncFnOnce(&mut redis::aio::MultiplexedConnection) -> redis::RedisResult<T>,
    ) -> Option<T> {
        // The timeout also covers waiting for another caller's connection attempt.
        let asked = timeout(2 * SWEEP_TIMEOUT, async { self.inner.sweep_link.lock().await.run(command).await });
        asked.await.ok()?.ok()
    }
}

impl fmt::Debug for WakeupPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakeupPublisher").field("keys", &self.inner.keys).finish_non_exhaustive()
    }
}

struct Sender {
    link: Link,
    keys: Keys,
    list_cap: usize,
    inbox: mpsc::Receiver<Note>,
}

impl Sender {
    async fn run(mut self) {
        let mut notes = Vec::with_capacity(BATCH);
        let mut looks_from = Instant::now();
        while self.inbox.recv_many(&mut notes, BATCH).await > 0 {
            self.wait_for_company(&mut notes, looks_from).await;
            let batch = Batch::gather(notes.drain(..), self.list_cap);
            let pause = LOOK_PAUSE.saturating_mul(u32::try_from(batch.looks.len()).unwrap_or(u32::MAX));
            let waiting = self.send(batch).await;
            looks_from = Instant::now() + pause.min(LONGEST_LOOK_PAUSE);
            for flushed in waiting {
                let _ = flushed.send(());
            }
        }
    }

    /// Collects more looks until `deadline`. Any other note ends the wait immediately.
    async fn wait_for_company(&mut self, notes: &mut Vec<Note>, deadline: Instant) {
        let only_looks = |notes: &[Note]| notes.iter().all(|note| matches!(note, Note::Look(_)));
        while notes.len() < BATCH && only_looks(notes) {
            let room = BATCH - notes.len();
            match timeout_at(deadline, self.inbox.recv_many(notes, room)).await {
                Ok(received) if received > 0 => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Sends a batch and returns the flush requests to acknowledge.
    async fn send(&mut self, batch: Batch) -> Vec<oneshot::Sender<()>> {
        if batch.wakeups.is_empty() && batch.looks.is_empty() && batch.replies.is_empty() {
            return batch.flushed;
        }
        // EVAL instead of EVALSHA: the script has a few hundred bytes, the server caches its compiled form, and a
        // restarted or flushed server needs no second attempt in the middle of a pipeline.
        let mut pipeline = redis::pipe();
        let mut scripts = 0;
        for (queue, wakeups) in &batch.wakeups {
            for chunk in wakeups.chunks(PUSH_CHUNK) {
                let push = pipeline.cmd("EVAL").arg(PUSH_SCRIPT).arg(1).arg(self.keys.wake(queue));
                push.arg(self.list_cap).arg(WAKE_LIST_TTL_SECONDS);
                for wakeup in chunk {
                    push.arg(&messages::wakeup_for(*wakeup));
                }
                scripts += 1;
            }
        }
        let looks: Vec<ExecutionId> = batch.looks.into_iter().collect();
        for chunk in looks.chunks(LOOK_MESSAGE_IDS) {
            pipeline.cmd("PUBLISH").arg(self.keys.look()).arg(messages::look(chunk));
        }
        // Kept before it is published: a follower subscribes first and then reads what is kept.
        batch.replies.iter().for_each(|note| note.keep(&self.keys, &mut pipeline));
        let texts = batch.replies.iter().filter_map(|note| match note {
            ReplyNote::Text(delta) => Some(delta),
            ReplyNote::Void(_) => None,
        });
        let texts: Vec<&TextDelta> = texts.collect();
        if let Ok(message) = serde_json::to_vec(&texts)
            && !texts.is_empty()
        {
            pipeline.cmd("PUBLISH").arg(self.keys.text()).arg(message);
        }
        let offered: usize = batch.wakeups.values().map(Vec::len).sum();
        match self.link.run(async |connection| pipeline.query_async::<Vec<usize>>(connection).await).await {
            Ok(answers) => {
                let pushed: usize = answers.iter().take(scripts).sum();
                metrics::wakeups_published(pushed);
                metrics::wakeups_dropped(WakeupDrop::ListFull, offered.saturating_sub(pushed));
            }
            Err(error) => {
                tracing::debug!(%error, wakeups = offered, "wake-ups dropped because redis did not take them");
                metrics::wakeups_dropped(WakeupDrop::RedisAway, offered);
                metrics::looks_dropped(looks.len());
            }
        }
        batch.flushed
    }
}

/// Contents of one pipeline.
#[derive(Default)]
struct Batch {
    wakeups: HashMap<QueueName, Vec<Uuid>>,
    looks: HashSet<ExecutionId>,
    replies: Vec<ReplyNote>,
    flushed: Vec<oneshot::Sender<()>>,
}

impl Batch {
    fn gather(notes: impl Iterator<Item = Note>, list_cap: usize) -> Self {
        let mut batch = Self::default();
        for note in notes {
            match note {
                Note::Wake { count, noted_at, .. } if noted_at.elapsed() > STALE_AFTER => {
                    metrics::wakeups_dropped(WakeupDrop::Stale, count);
                }
                Note::Wake { queue, hint, count, .. } => {
                    let wakeups = batch.wakeups.entry(queue).or_default();
                    let room = list_cap.saturating_sub(wakeups.len());
                    let taken = count.min(room);
                    metrics::wakeups_dropped(WakeupDrop::ListFull, count - taken);
                    if taken > 0 {
                        wakeups.push(hint);
                        wakeups.resize(wakeups.len() + taken - 1, Uuid::nil());
                    }
                }
                Note::Look(executions) => batch.looks.extend(executions),
                Note::Reply(note) => batch.replies.push(note),
                Note::Flush(flushed) => batch.flushed.push(flushed),
            }
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wake(queue: &str, count: usize) -> Note {
        let queue = QueueName::new(queue).unwrap();
        Note::Wake { queue, hint: Uuid::from_u128(7), count, noted_at: Instant::now() }
    }

    #[tokio::test(start_paused = true)]
    async fn batch_caps_wakeups_and_deduplicates_looks() {
        let look = || Note::Look([1, 2].map(|id| ExecutionId(Uuid::from_u128(id))).to_vec());
        let notes = vec![wake("a", 2), look(), wake("b", 100), look(), wake("b", 1)];
        let batch = Batch::gather(notes.into_iter(), 10);
        assert_eq!(batch.wakeups[&QueueName::new("a").unwrap()], [Uuid::from_u128(7), Uuid::nil()]);
        assert_eq!(batch.wakeups[&QueueName::new("b").unwrap()].len(), 10);
        assert_eq!(batch.looks.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn old_wakeups_are_not_sent() {
        let old = wake("a", 1);
        tokio::time::advance(STALE_AFTER + Duration::from_millis(1)).await;
        let batch = Batch::gather([old, wake("b", 1)].into_iter(), 10);
        assert_eq!(batch.wakeups.into_keys().collect::<Vec<_>>(), [QueueName::new("b").unwrap()]);
    }
}
