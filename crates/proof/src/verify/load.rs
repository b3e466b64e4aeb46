//! Submits at a steady rate over HTTP, each under an idempotency key and repeated until it is answered.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use longhaul_domain::ExecutionId;
use longhaul_guards::http;
use longhaul_shared::clock::{Clock, SystemClock};
use parking_lot::{Mutex, MutexGuard};
use reqwest::{RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    fleet::{APPROVALS, DEFINITION, Fleet, HELD, MARK, REMEMBERED, TREE},
    mix::{CHILDREN_FROM, Kind, Mix},
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

/// Numbers of executions for each session: ten messages, which arrive faster than they are answered.
const SESSION_SPAN: i64 = 100;
/// The last message of each session, as a remainder of the span. It interrupts the one that is answered.
const INTERRUPTS: i64 = 95;
/// Time from the first request for a schedule that ticks once to its tick.
const ONCE_AFTER: TimeDelta = TimeDelta::seconds(30);
/// Time from a request for a schedule's end to that end: a request that takes longer is repeated with a later end, so
/// that no tick after the end was fired before it was known.
const END_AFTER: Duration = ANSWER_LIMIT;

/// The submits so far, as the load saw them.
#[derive(Clone, Default)]
pub(super) struct Submits(Arc<Mutex<Vec<Submit>>>);

impl Submits {
    fn lock(&self) -> MutexGuard<'_, Vec<Submit>> {
        self.0.lock()
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
    mix: Mix,
    submits: Submits,
}

impl Submitter {
    pub(super) fn new(fleet: &Fleet, mix: Mix) -> anyhow::Result<Self> {
        let client = http::client(&http::HttpOptions::default()).context("build the HTTP client")?;
        Ok(Self { client, url: fleet.url.clone(), key: fleet.key.clone(), mix, submits: Submits::default() })
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
        // Schedules that get no end are found by the audit.
        let _ = timeout(PATIENCE, self.end_schedules()).await;
        (started, ended)
    }

    async fn submit(&self, number: i64) {
        let (clock, started) = (SystemClock::new(), Instant::now());
        let (mut sent_at, mut sent_before) = (clock.now(), None);
        let is_sent_again = number % SENT_AGAIN == 0 || self.mix.kind(number) == Kind::Schedule;
        let mut wanted = if is_sent_again { 2 } else { 1 };
        let (mut pause, longest) = PAUSES;
        while wanted > 0 && started.elapsed() < 2 * PATIENCE {
            self.submits.edit(number, |submit| submit.tries += 1);
            match self.send(number, sent_at).await {
                Ok(id) => {
                    self.submits.edit(number, |submit| submit.answers.push(id));
                    wanted -= 1;
                }
                // Unanswered until the time it names: as a caller would, ask for a later one.
                Err(NoAnswer::Refused(problem)) if problem["errors"][0]["path"] == "/at" => {
                    sent_before = Some(std::mem::replace(&mut sent_at, clock.now()));
                }
                // The request that was thought lost was stored after all.
                Err(NoAnswer::Refused(problem)) if problem["code"] == "schedule_exists" && sent_before.is_some() => {
                    sent_at = sent_before.take().unwrap_or(sent_at);
                }
                Err(NoAnswer::Refused(problem)) => {
                    self.submits.edit(number, |submit| submit.refused = Some(problem.to_string()));
                    return;
                }
                Err(NoAnswer::Passing) => {
                    sleep(pause).await;
                    pause = (2 * pause).min(longest);
                }
            }
        }
    }

    async fn send(&self, number: i64, sent_at: DateTime<Utc>) -> Result<ExecutionId, NoAnswer> {
        let key = format!("verify-{number}-{}", sent_at.timestamp_millis());
        let (path, body, id) = match self.mix.kind(number) {
            Kind::Plain => ("/v1/executions".into(), self.execution(DEFINITION, number), "id"),
            Kind::Approvals => ("/v1/executions".into(), self.execution(APPROVALS, number), "id"),
            Kind::Tree => ("/v1/executions".into(), self.execution(TREE, number), "id"),
            Kind::Remembered => ("/v1/executions".into(), self.execution(REMEMBERED, number), "id"),
            Kind::Message => {
                let session = self.session(number).await?;
                let policy = if number % SESSION_SPAN == INTERRUPTS { "interrupt" } else { "enqueue" };
                let body = json!({ "message": format!("{MARK}{number}"), "on_busy": policy });
                (format!("/v1/sessions/{session}/messages"), body, "execution_id")
            }
            Kind::Project => ("/v1/projects".into(), self.project(number), "id"),
            // A schedule is named by its key.
            Kind::Schedule => ("/v1/schedules".into(), self.schedule(number, sent_at), "key"),
        };
        let answer = self.post(&path, &key, &body).await?;
        // A project answers with an id of its own kind.
        let id = answer[id].as_str().and_then(|id| id.trim_start_matches("proj_").parse().ok()).map(ExecutionId);
        id.ok_or(NoAnswer::Refused(answer))
    }

    fn execution(&self, definition: &str, number: i64) -> Value {
        let mut body = json!({
            "definition": definition, "input": { "number": number }, "metadata": { NUMBER: number },
        });
        if let Some(budget) = self.mix.budget(number) {
            body["budget"] = budget;
        }
        body
    }

    /// A project of a first task, two that depend on it, and a last one.
    fn project(&self, number: i64) -> Value {
        let plan =
            [(1, "first", &[][..]), (2, "left", &["first"]), (3, "right", &["first"]), (4, "last", &["left", "right"])];
        let tasks = plan.map(|(place, key, depends_on)| {
            let prompt = format!("{MARK}{}", number + place * CHILDREN_FROM);
            json!({ "key": key, "prompt": prompt, "depends_on": depends_on })
        });
        json!({
            "goal": "a project of verify", "agent_id": DEFINITION, "plan": { "tasks": tasks },
            "metadata": { NUMBER: number }, "budget": self.mix.budget(number),
        })
    }

    /// A schedule with one of four timings, under each overlap policy and treatment of missed ticks. The runs of every
    /// second four wait for approvals, longer than from one tick to the next.
    fn schedule(&self, number: i64, sent_at: DateTime<Utc>) -> Value {
        let nth = number / 10;
        let mut body = json!({
            "key": schedule_key(number),
            "definition": if nth / 4 % 2 == 0 { DEFINITION } else { HELD },
            "input": { "number": number },
            "overlap": match nth % 3 { 0 => "skip", 1 => "queue", _ => "cancel_running" },
            "catch_up": if nth % 5 < 3 { "one" } else { "none" },
            "metadata": { NUMBER: number },
            "monthly_budget": self.mix.monthly_budget(number),
        });
        match nth % 4 {
            0 => body["interval_seconds"] = json!(60),
            1 => (body["cron"], body["time_zone"]) = (json!("* * * * *"), json!("Europe/Berlin")),
            // Postgres keeps no nanoseconds.
            2 => body["at"] = json!((sent_at + ONCE_AFTER).trunc_subsecs(0)),
            _ => body["interval_seconds"] = json!(90),
        }
        body
    }

    /// Gives each schedule an end, which is soon, so that the ticks that it owes are known.
    async fn end_schedules(&self) {
        let submits = self.submits.all();
        let created = submits.iter().filter(|submit| !submit.answers.is_empty()).map(|submit| submit.number);
        let mut ending = JoinSet::new();
        for number in created.filter(|number| self.mix.kind(*number) == Kind::Schedule) {
            let own = self.clone();
            ending.spawn(async move { own.end_schedule(number).await });
        }
        while ending.join_next().await.is_some() {}
    }

    async fn end_schedule(&self, number: i64) {
        let mut body = self.schedule(number, DateTime::UNIX_EPOCH);
        if body.get("at").is_some() {
            return;
        }
        let url = format!("{}/v1/schedules/{}", self.url, schedule_key(number));
        let (mut pause, longest) = PAUSES;
        loop {
            body["ends_at"] = json!(SystemClock::new().now() + END_AFTER);
            match self.answer(self.client.put(&url).json(&body)).await {
                Ok(_) | Err(NoAnswer::Refused(_)) => return,
                Err(NoAnswer::Passing) => {
                    sleep(pause).await;
                    pause = (2 * pause).min(longest);
                }
            }
        }
    }

    /// Begins the session of a message, or finds it by its idempotency key.
    async fn session(&self, number: i64) -> Result<String, NoAnswer> {
        let key = format!("verify-session-{}", number / SESSION_SPAN);
        let body = json!({ "agent": DEFINITION, "budget": self.mix.budget(number) });
        let answer = self.post("/v1/sessions", &key, &body).await?;
        let id = answer["id"].as_str().map(str::to_owned);
        id.ok_or(NoAnswer::Refused(answer))
    }

    async fn post(&self, path: &str, key: &str, body: &Value) -> Result<Value, NoAnswer> {
        let request = self.client.post(format!("{}{path}", self.url));
        self.answer(request.header("prefer", "return=minimal").header("idempotency-key", key).json(body)).await
    }

    /// The body of a 2xx answer.
    async fn answer(&self, request: RequestBuilder) -> Result<Value, NoAnswer> {
        let request = request.bearer_auth(&self.key);
        let answered = async {
            let answer = request.send().await?;
            Ok::<_, reqwest::Error>((answer.status(), answer.json::<Value>().await?))
        };
        let Ok(Ok((status, body))) = timeout(ANSWER_LIMIT, answered).await else { return Err(NoAnswer::Passing) };
        if status.is_success() {
            return Ok(body);
        }
        let is_passing =
            status.is_server_error() || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
        Err(if is_passing { NoAnswer::Passing } else { NoAnswer::Refused(body) })
    }
}

/// A UUID, as the ids in other answers are.
fn schedule_key(number: i64) -> String {
    Uuid::from_u128(number.unsigned_abs().into()).to_string()
}

/// The reason why a request gave no result.
enum NoAnswer {
    /// No repeat can change it: the problem, or an answer without an id.
    Refused(Value),
    /// No answer, or one that says to try again.
    Passing,
}
