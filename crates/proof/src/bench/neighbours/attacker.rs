//! An attacking tenant: sends requests over a bounded number of connections and counts the answers.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{interval, timeout},
};
use tokio_util::sync::CancellationToken;

use super::super::environment::Caller;

/// Maximum wait for one answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Request counter of the process; unique parts of request bodies derive from it.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// A request of an attack.
pub(super) struct Move {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Body,
}

pub(super) enum Body {
    Same(Bytes),
    /// Built from the request's number.
    New(Box<dyn Fn(u64) -> Value + Send + Sync>),
}

impl Move {
    pub(super) fn post(path: &str, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, path: path.to_owned(), body: Body::Same(body.into()) }
    }

    pub(super) fn put(path: String, body: &Value) -> Self {
        Self { method: Method::PUT, path, body: Body::Same(body.to_string().into()) }
    }

    pub(super) fn delete(path: String) -> Self {
        Self { method: Method::DELETE, path, body: Body::Same(Bytes::new()) }
    }

    pub(super) fn new_each(path: &str, body: impl Fn(u64) -> Value + Send + Sync + 'static) -> Self {
        Self { method: Method::POST, path: path.to_owned(), body: Body::New(Box::new(body)) }
    }

    /// Sends the request and counts its answer: `<status> <code>`, and `item <status> <code>` for each item of a
    /// batch.
    pub(super) async fn send(&self, caller: &Caller, answers: &mut BTreeMap<String, u64>) -> Option<StatusCode> {
        let body = match &self.body {
            Body::Same(body) => body.clone(),
            Body::New(make) => make(NUMBER.fetch_add(1, Ordering::Relaxed)).to_string().into(),
        };
        let mut count = |answer: String| *answers.entry(answer).or_default() += 1;
        let sent = timeout(PATIENCE, caller.send(self.method.clone(), &self.path, body)).await;
        let Ok(Ok((status, body))) = sent else {
            count("no answer".into());
            return None;
        };
        let answer: Answer = serde_json::from_slice(&body).unwrap_or_default();
        count(described(status.as_u16(), answer.code));
        for verdict in answer.results {
            let code = verdict.error.and_then(|problem| problem.code);
            count(format!("item {}", described(verdict.status, code)));
        }
        Some(status)
    }
}

fn described(status: u16, code: Option<String>) -> String {
    code.map_or_else(|| status.to_string(), |code| format!("{status} {code}"))
}

/// The counted parts of an answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    code: Option<String>,
    results: Vec<Verdict>,
}

#[derive(Debug, Deserialize)]
struct Verdict {
    status: u16,
    error: Option<Answer>,
}

/// Result of an attack.
#[derive(Debug, Default)]
pub(super) struct Attacked {
    pub(super) requests: u64,
    pub(super) took: Duration,
    pub(super) answers: BTreeMap<String, u64>,
}

impl Attacked {
    pub(super) fn per_second(&self) -> f64 {
        self.requests as f64 / self.took.as_secs_f64().max(0.001)
    }

    pub(super) fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.took += other.took;
        for (answer, count) in other.answers {
            *self.answers.entry(answer).or_default() += count;
        }
    }
}

/// Load shape.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Maximum concurrent requests.
    pub(super) connections: usize,
    /// Request rate; `None` sends the next request as soon as one is answered.
    pub(super) per_second: Option<f64>,
    /// Maximum number of requests; `None` is unlimited.
    pub(super) requests: Option<u64>,
}

/// Sends the moves in turn until `stop`.
pub(super) async fn attack(
    caller: &Caller,
    moves: Arc<Vec<Move>>,
    shape: Shape,
    stop: CancellationToken,
) -> anyhow::Result<Attacked> {
    let period = shape.per_second.map(|rate| Duration::from_secs_f64(1.0 / rate.max(0.01)));
    let ticks = Arc::new(period.map(|period| Mutex::new(interval(period))));
    let next = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut sending = JoinSet::new();
    for _ in 0..shape.connections {
        let (caller, moves, stop) = (caller.clone(), moves.clone(), stop.clone());
        let (ticks, next) = (ticks.clone(), next.clone());
        sending.spawn(async move {
            let (mut answers, mut sent) = (BTreeMap::new(), 0);
            loop {
                if let Some(ticks) = ticks.as_ref() {
                    let tick = async { ticks.lock().await.tick().await };
                    stop.run_until_cancelled(tick).await;
                }
                if stop.is_cancelled() {
                    return (answers, sent);
                }
                let number = next.fetch_add(1, Ordering::Relaxed);
                if shape.requests.is_some_and(|most| number >= most) {
                    return (answers, sent);
                }
                if let Some(of_turn) = moves.get(number as usize % moves.len()) {
                    of_turn.send(&caller, &mut answers).await;
                    sent += 1;
                }
            }
        });
    }
    let mut attacked = Attacked::default();
    while let Some(done) = sending.join_next().await {
        let (answers, requests) = done?;
        attacked.add(Attacked { answers, requests, took: Duration::ZERO });
    }
    attacked.took = started.elapsed();
    Ok(attacked)
}
