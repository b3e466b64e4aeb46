//! What is written down about calls that have ended: places given back, answers that a breaker waits for.
//!
//! What must hold: who ends a call waits for none of it. A task of the process does it, many calls at once, and what it is too late
//! for is found in time: a place is believed lost, a breaker goes on with its portion.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::StreamExt;
use longhaul_sdk::FailureCode;
use longhaul_shared::{
    queue::model_calls::CountedCall,
    store::providers::{AnsweredCall, ModelKey},
};
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use super::{Call, Endpoint, Health, endpoint::LeftPlace, is_outage, is_throttle};
use crate::llm::ModelError;

/// Entries that wait to be written down. A process makes fewer calls at a time; more wait only while Redis or Postgres is away.
const MAX_ENTRIES: usize = 10_000;
/// The pause before Redis is told again.
const TELL_AGAIN: Duration = Duration::from_secs(1);
/// Endpoints that are written about at once.
const AT_ONCE: usize = 8;

/// An endpoint with what became of calls to it.
type Ended = (Arc<Endpoint>, Entry);

enum Entry {
    /// One that had to tell was answered.
    Answered(AnsweredCall),
    /// Places are free again.
    Freed(i32),
}

/// What waits to be written down. Receivers are locked by the task that writes.
pub(super) struct Books {
    places: mpsc::Sender<LeftPlace>,
    left: Mutex<mpsc::Receiver<LeftPlace>>,
    entries: mpsc::Sender<Ended>,
    ended: Mutex<mpsc::Receiver<Ended>>,
}

impl Default for Books {
    fn default() -> Self {
        let (places, left) = mpsc::channel(MAX_ENTRIES);
        let (entries, ended) = mpsc::channel(MAX_ENTRIES);
        Self { places, left: left.into(), entries, ended: ended.into() }
    }
}

impl Books {
    /// Where places go that are given up without a word.
    pub(super) fn places(&self) -> mpsc::Sender<LeftPlace> {
        self.places.clone()
    }

    /// What finds no room is found in time by the sweep.
    fn enter(&self, endpoint: &Arc<Endpoint>, entry: Entry) {
        let _ = self.entries.try_send((endpoint.clone(), entry));
    }
}

impl Health {
    /// Takes note of the end of a call. Waits for nothing.
    pub(super) fn ended(&self, call: &Call, failure: Option<&ModelError>) {
        if let Some(place) = &call.place {
            place.leave();
        }
        if failure.is_none() {
            call.endpoint.note_answer();
        }
        let is_answer =
            failure.is_none_or(|error| !is_outage(error) && error.code() != FailureCode::MODEL_QUOTA_EXHAUSTED);
        if call.tells && is_answer {
            let answered = AnsweredCall { asking: call.asking, is_over: !failure.is_some_and(is_throttle) };
            self.books.enter(&call.endpoint, Entry::Answered(answered));
        }
    }

    /// Writes down what comes, until `stop`; then what is there, once.
    pub(crate) async fn keep_books(&self, stop: CancellationToken) {
        // Beside each other: a breaker must not wait for a Redis that is away.
        tokio::join!(self.give_back(&stop), self.write_down(&stop));
    }

    async fn give_back(&self, stop: &CancellationToken) {
        let mut places = self.books.left.lock().await;
        let mut left: Vec<LeftPlace> = Vec::new();
        loop {
            let is_last = next(&mut places, &mut left, stop).await;
            let mut of_endpoints: HashMap<&str, (&Arc<Endpoint>, Vec<CountedCall>)> = HashMap::new();
            for (endpoint, call) in &left {
                of_endpoints.entry(&endpoint.name).or_insert((endpoint, Vec::new())).1.push(call.clone());
            }
            for (name, (endpoint, calls)) in of_endpoints {
                while !self.calls.ended(name, &calls).await {
                    if stop.is_cancelled() {
                        return;
                    }
                    tokio::time::sleep(TELL_AGAIN).await;
                }
                if endpoint.has_line() {
                    self.books.enter(endpoint, Entry::Freed(i32::try_from(calls.len()).unwrap_or(i32::MAX)));
                }
            }
            left.clear();
            if is_last {
                return;
            }
        }
    }

    async fn write_down(&self, stop: &CancellationToken) {
        let mut ended = self.books.ended.lock().await;
        let mut entries: Vec<Ended> = Vec::new();
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
            Ok(woken) => self.announce(&woken),
            Err(error) => tracing::debug!(error = %error, "answers of a model endpoint are left to the sweep"),
        }
    }

    pub(super) async fn let_go(&self, key: &ModelKey, count: i32) {
        match self.store.wake_for_slot(key, count).await {
            Ok(woken) => self.announce(&woken),
            Err(error) => tracing::debug!(error = %error, "a free place is left to the sweep"),
        }
    }
}

/// The next entries; true when they are the last.
async fn next<T>(entries: &mut mpsc::Receiver<T>, into: &mut Vec<T>, stop: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        count = entries.recv_many(into, MAX_ENTRIES) => count == 0,
        () = stop.cancelled() => true,
    }
}
