//! Writes down ended calls in the background: freed slots, and answers that a breaker waits for.
//!
//! The end of a call never waits for this. One task writes for many calls at once. Lost entries are recovered: a
//! slot expires as lost, and the sweep releases the breaker's next portion.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::StreamExt;
use longhaul_queue::model_calls::{AnsweredCalls, CountedCall};
use longhaul_sdk::FailureCode;
use longhaul_store::providers::breakers::{AnsweredCall, ModelKey};
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use super::{Call, Endpoint, Health, endpoint::EndedCall, is_outage, is_throttle, seconds};
use crate::{ModelError, ModelReply};

/// Maximum queued entries. A process has fewer calls in flight; more queue up only while Redis or Postgres is
/// down.
const MAX_ENTRIES: usize = 10_000;
/// Pause before a failed Redis write is repeated.
const TELL_AGAIN: Duration = Duration::from_secs(1);
/// Endpoints written concurrently.
const AT_ONCE: usize = 8;

/// An endpoint and the entry of a call to it.
type EndpointEntry = (Arc<Endpoint>, Entry);

enum Entry {
    /// A waiter or probe was answered.
    Answered(AnsweredCall),
    /// Number of freed slots.
    Freed(i32),
}

/// Queued entries. The writing task locks the receivers.
pub(super) struct Books {
    places: mpsc::Sender<EndedCall>,
    left: Mutex<mpsc::Receiver<EndedCall>>,
    entries: mpsc::Sender<EndpointEntry>,
    ended: Mutex<mpsc::Receiver<EndpointEntry>>,
}

impl Default for Books {
    fn default() -> Self {
        let (places, left) = mpsc::channel(MAX_ENTRIES);
        let (entries, ended) = mpsc::channel(MAX_ENTRIES);
        Self { places, left: left.into(), entries, ended: ended.into() }
    }
}

impl Books {
    /// Receives ended calls without waiting for Redis.
    pub(super) fn places(&self) -> mpsc::Sender<EndedCall> {
        self.places.clone()
    }

    /// Drops the entry if the queue is full: the sweep finds it later.
    fn enter(&self, endpoint: &Arc<Endpoint>, entry: Entry) {
        let _ = self.entries.try_send((endpoint.clone(), entry));
    }
}

impl Health {
    /// Records the end of a call. Does not wait.
    pub(super) fn ended(&self, call: &Call, came_to: Result<&ModelReply, &ModelError>) {
        let answered = came_to.map_or_else(|_| AnsweredCalls::default(), |reply| told_by(reply, call.tokens));
        match &call.place {
            Some(place) => place.leave(answered),
            // Little remains of a limit that nothing was known of.
            None if answered.stated.is_low() => {
                call.endpoint.begin_to_learn();
                let told = EndedCall { endpoint: call.endpoint.clone(), call: None, answered };
                let _ = self.books.places.try_send(told);
            }
            None => {}
        }
        let failure = came_to.err();
        let is_answer =
            failure.is_none_or(|error| !is_outage(error) && error.code() != FailureCode::MODEL_QUOTA_EXHAUSTED);
        if call.tells && is_answer {
            let answered = AnsweredCall { asking: call.asking, is_over: !failure.is_some_and(is_throttle) };
            self.books.enter(&call.endpoint, Entry::Answered(answered));
        }
    }

    /// Writes entries until `stop`, then writes the queued ones once.
    pub async fn keep_books(&self, stop: CancellationToken) {
        // Concurrent, so that a breaker does not wait while Redis is down.
        tokio::join!(self.give_back(&stop), self.write_down(&stop));
    }

    async fn give_back(&self, stop: &CancellationToken) {
        let mut places = self.books.left.lock().await;
        let mut left: Vec<EndedCall> = Vec::new();
        loop {
            let is_last = next(&mut places, &mut left, stop).await;
            let mut of_endpoints: HashMap<String, (Arc<Endpoint>, Vec<CountedCall>, AnsweredCalls)> = HashMap::new();
            for EndedCall { endpoint, call, answered } in left.drain(..) {
                let of = of_endpoints.entry(endpoint.name.clone());
                let of = of.or_insert_with(|| (endpoint, Vec::new(), AnsweredCalls::default()));
                of.1.extend(call);
                of.2.add(&answered);
            }
            for (name, (endpoint, calls, answered)) in of_endpoints {
                while !self.tell_ended(&name, &calls, &answered).await {
                    if stop.is_cancelled() {
                        return;
                    }
                    tokio::time::sleep(TELL_AGAIN).await;
                }
                endpoint.freed.notify_waiters();
                let freed = endpoint.to_let_go(u32::try_from(calls.len()).unwrap_or(u32::MAX));
                if freed > 0 && endpoint.has_line() {
                    self.books.enter(&endpoint, Entry::Freed(i32::try_from(freed).unwrap_or(i32::MAX)));
                }
            }
            if is_last {
                return;
            }
        }
    }

    /// Returns false if Redis does not answer.
    async fn tell_ended(&self, name: &str, calls: &[CountedCall], answered: &AnsweredCalls) -> bool {
        match self.now().await {
            Ok(now) => self.calls.ended(name, seconds(now), calls, answered).await,
            Err(_) => false,
        }
    }

    async fn write_down(&self, stop: &CancellationToken) {
        let mut ended = self.books.ended.lock().await;
        let mut entries: Vec<EndpointEntry> = Vec::new();
        loop {
            let is_last = next(&mut ended, &mut entries, stop).await;
            let mut of_endpoints: HashMap<String, (Arc<Endpoint>, Vec<AnsweredCall>, i32)> = HashMap::new();
            for (endpoint, entry) in entries.drain(..) {
                let of = of_endpoints.entry(endpoint.name.clone()).or_insert((endpoint, Vec::new(), 0));
                match entry {
                    Entry::Answered(call) => of.1.push(call),
                    Entry::Freed(count) => of.2 = of.2.saturating_add(count),
                }
            }
            futures::stream::iter(of_endpoints.into_values())
                .for_each_concurrent(AT_ONCE, async |(endpoint, answered, freed)| {
                    self.tell_answered(&endpoint, &answered).await;
                    if freed > 0 {
                        self.let_go(&endpoint.key, freed).await;
                    }
                })
                .await;
            if is_last {
                return;
            }
        }
    }

    async fn tell_answered(&self, endpoint: &Endpoint, answered: &[AnsweredCall]) {
        if answered.is_empty() {
            return;
        }
        match self.store.provider_answered(&endpoint.key, answered).await {
            Ok(woken) => self.publisher.runnable(&woken),
            Err(error) => tracing::debug!(error = %error, "answers of a model endpoint are left to the sweep"),
        }
    }

    pub(super) async fn let_go(&self, key: &ModelKey, count: i32) {
        match self.store.wake_for_slot(key, count).await {
            Ok(woken) => self.publisher.runnable(&woken),
            Err(error) => tracing::debug!(error = %error, "a free place is left to the sweep"),
        }
    }
}

/// Facts that an answered call tells of its endpoint.
fn told_by(reply: &ModelReply, estimated: u64) -> AnsweredCalls {
    let used = reply.usage.input_tokens.unwrap_or_default() + reply.usage.output_tokens.unwrap_or_default();
    AnsweredCalls { count: 1, estimated, used, stated: reply.stated }
}

/// Receives the next entries; returns true if they are the last.
async fn next<T>(entries: &mut mpsc::Receiver<T>, into: &mut Vec<T>, stop: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        count = entries.recv_many(into, MAX_ENTRIES) => count == 0,
        () = stop.cancelled() => true,
    }
}
