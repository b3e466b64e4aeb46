//! Submits at a steady rate over HTTP, each under an idempotency key and repeated until it is answered.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use longhaul_shared::{
    clock::{Clock, SystemClock},
    domain::ExecutionId,
    http,
};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    fleet::{APPROVALS, DEFINITION, Fleet, TREE},
    seen::Submit,
};

/// Metadata field that holds the number of an execution.
pub(super) const NUMBER: &str = "verify";
/// Time limit of a submit request; without an answer, the request is repeated.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// First and longest pause before a repeat. The pause doubles each time (exponential backoff), so that callers do not
/// keep a failing service down.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// Longest time for repeats after the load has ended.
const PATIENCE: Duration = Duration::from_secs(60);
/// Every tenth submit is sent again after its answer and must return the same execution.
const SENT_AGAIN: i64 = 10;

/// The shape of an execution, derived from its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Model turns and tool calls.
    Plain,
    /// As plain, but each charge waits for an approval.
    Approvals,
    /// Two sub-agents under one budget.
    Tree,
}

/// One execution in ten is a tree, and one in ten needs approvals.
pub(super) fn kind(number: i64) -> Kind {
    match number % 10 {
        _ if number >= CHILDREN_FROM => Kind::Plain,
        3 => Kind::Tree,
        7 => Kind::Approvals,
        _ => Kind::Plain,
    }
}

/// Children of execution `n` have the numbers `n + CHILDREN_FROM` and `n + 2 * CHILDREN_FROM`.
pub(super) const CHILDREN_FROM: i64 = 1_000_000_000;
/// Caps of a tree, in model calls and tokens: more than it can spend under faults, so that it never waits for a
/// top-up.
const TREE_BUDGET: (u32, u32) = (200, 20_000_000);

/// The submits so far, as the load saw them.
#[derive(Clone, Default)]
pub(super) struct Submits(Arc<Mutex<Vec<Submit>>>);

impl Submits {
    fn lock(&self) -> MutexGuard<'_, Vec<Submit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All submits in order of number.
    pub(super) fn all(&self) -> Vec<Submit> {
        self.lock().clone()
    }

    /// Number of submits, and how many of them are answered.
    pub(super) fn counts(&self) -> (usize, usize) {
        let submits = self.lock();
        (submits.len(), submits.iter().filter(|submit| !submit.answers.is_empty()).count())
    }

    fn edit(&self, number: i64, edit: impl FnOnce(&mut Submit)) {
        if let Some(submit) = usize::try_from(number).ok().and_then(|at| self.lock().get_mut(at).map(edit)) {
            submit
        }
    }
}

/// A client that submits executions.
#[derive(Clone)]
pub(super) struct Submitter {
    client: reqwest::Client,
    url: String,
    key: String,
    submits: Submits,
}

impl Submitter {
    pub(super) fn new(fleet: &Fleet) -> anyhow::Result<Self> {
        let client = http::client(&http::HttpOptions::default()).context("build the HTTP client")?;
        let url = format!("{}/v1/executions", fleet.url);
        Ok(Self { client, url, key: fleet.key.clone(), submits: Submits::default() })
    }

    pub(super) fn submits(&self) -> Submits {
        self.submits.clone()
    }

    /// Submits `rate` executions per second until `stop`, then repeats the unanswered ones. Returns the start and the
    /// end of the load.
    pub(super) async fn run(self, rate: f64, stop: CancellationToken) -> (DateTime<Utc>, DateTime<Utc>) {
        let clock = SystemClock::new();
        let mut sending = JoinSet::new();
        let mut due = interval(Duration::from_secs_f64(1.0 / rate));
        // Send late submits at once: the measurements assume this average rate.
        due.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let started = clock.now();
        while stop.run_until_cancelled(due.tick()).await.is_some() {
            let number = {
                let mut submits = self.submits.lock();
                let number = i64::try_from(submits.len()).unwrap_or_default();
                submits.push(Submit { number, ..Submit::default() });
                number
            };
            let own = self.clone();
            sending.spawn(async move { own.submit(number).await });
            while sending.try_join_next().is_some() {}
        }
        let ended = clock.now();
        let rest = async { while sending.join_next().await.is_some() {} };
        // Submits still unanswered after this stay unanswered in the evidence.
        let _ = timeout(PATIENCE, rest).await;
        (started, ended)
    }

    async fn submit(&self, number: i64) {
        let started = Instant::now();
        let mut wanted = if number % SENT_AGAIN == 0 { 2 } else { 1 };
        let (mut pause, longest) = PAUSES;
        while wanted > 0 && started.elapsed() < 2 * PATIENCE {
            self.submits.edit(number, |submit| submit.tries += 1);
            match self.send(number).await {
                Sent::Answered(id) => {
                    self.submits.edit(number, |submit| submit.answers.push(id));
                    wanted -= 1;
                }
                Sent::Refused(reason) => {
                    self.submits.edit(number, |submit| submit.refused = Some(reason));
                    return;
                }
                Sent::Unanswered => {
                    sleep(pause).await;
                    pause = (2 * pause).min(longest);
                }
            }
        }
    }

    async fn send(&self, number: i64) -> Sent {
        let mut body = json!({ "input": { "number": number }, "metadata": { NUMBER: number } });
        body["definition"] = match kind(number) {
            Kind::Plain => DEFINITION,
            Kind::Approvals => APPROVALS,
            Kind::Tree => {
                let (calls, tokens) = TREE_BUDGET;
                body["budget"] = json!({ "max_model_calls": calls, "max_tokens": tokens });
                TREE
            }
        }
        .into();
        let request = self.client.post(&self.url).bearer_auth(&self.key).header("prefer", "return=minimal");
        let sent = request.header("idempotency-key", format!("verify-{number}")).json(&body);
        let answered = async {
            let answer = sent.send().await?;
            Ok::<_, reqwest::Error>((answer.status(), answer.json::<Value>().await?))
        };
        let Ok(Ok((status, body))) = timeout(ANSWER_LIMIT, answered).await else { return Sent::Unanswered };
        if status.is_success() {
            let id = body["id"].as_str().and_then(|id| id.parse().ok()).map(ExecutionId);
            return id.map_or_else(|| Sent::Refused(format!("{status} without an id: {body}")), Sent::Answered);
        }
        let is_passing =
            status.is_server_error() || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
        if is_passing { Sent::Unanswered } else { Sent::Refused(format!("{status}: {body}")) }
    }
}

/// The result of one request.
enum Sent {
    Answered(ExecutionId),
    Refused(String),
    Unanswered,
}
