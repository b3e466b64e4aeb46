//! Start latency: from the submit of an execution to its first model call, at a steady rate of submits.

use std::time::{Duration, Instant};

use anyhow::ensure;
use hdrhistogram::Histogram;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use super::environment::{BenchEnvironment, DEFINITION, request};

/// Duration of the warm-up, which is not measured.
const WARM_UP_SECONDS: u32 = 2;
/// Resolution of the timer: a submit is late beyond it.
const TIMER: Duration = Duration::from_millis(2);
/// Longest wait for a first model call after the last submit.
pub(super) const GIVE_UP: Duration = Duration::from_secs(30);

/// The rate and duration of a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Submits per second.
    pub(super) rate: u32,
    /// Measured seconds, after the warm-up.
    pub(super) seconds: u32,
    /// Number of the first execution. Numbers must be unique within an environment.
    pub(super) first: u32,
}

impl Pace {
    /// Number of submits, including the warm-up.
    pub(super) fn submits(self) -> u32 {
        self.rate * (self.seconds + WARM_UP_SECONDS)
    }

    /// True if the submit with this number, from 0 on, is one of the warm-up.
    pub(super) fn is_warm_up(self, number: u32) -> bool {
        number < self.rate * WARM_UP_SECONDS
    }

    pub(super) fn pause(self) -> Duration {
        Duration::from_secs(1) / self.rate
    }
}

/// Measured start latencies.
#[derive(Debug, Clone)]
pub(super) struct Starts {
    /// In microseconds. An execution that did not start counts with the time it was waited for.
    taken: Histogram<u64>,
    /// Delay of the late submits, in microseconds.
    late: Histogram<u64>,
    /// Submits that the API refused or did not answer.
    pub(super) refused: u64,
    /// The error of one refused submit.
    pub(super) refusal: Option<String>,
    /// Executions that did not start within 30 s.
    pub(super) unstarted: u64,
}

impl Starts {
    pub(super) fn new() -> anyhow::Result<Self> {
        let histogram = Histogram::new_with_bounds(1, 600_000_000, 3)?;
        Ok(Self { taken: histogram.clone(), late: histogram, refused: 0, refusal: None, unstarted: 0 })
    }

    /// Submits at the pace and waits for the first model calls.
    pub(super) async fn measure(environment: &BenchEnvironment, pace: Pace) -> anyhow::Result<Self> {
        let mut starts = Self::new()?;
        let sent = submit(environment, pace, &mut starts).await?;
        let give_up = Instant::now() + GIVE_UP;
        for one in sent {
            let asked_at = first_asked(environment, one.number, give_up).await;
            if pace.is_warm_up(one.number - pace.first) {
                continue;
            }
            starts.unstarted += u64::from(asked_at.is_none());
            let taken = asked_at.unwrap_or_else(Instant::now).saturating_duration_since(one.from);
            starts.taken.record(u64::try_from(taken.as_micros())?.max(1))?;
            if let Some(by) = one.late_by {
                starts.late.record(u64::try_from(by.as_micros())?)?;
            }
        }
        Ok(starts)
    }

    /// Counts something else than a start.
    pub(super) fn record(&mut self, taken: Duration, done: anyhow::Result<()>) -> anyhow::Result<()> {
        match done {
            Ok(()) => self.taken.record(u64::try_from(taken.as_micros())?.max(1))?,
            Err(error) => {
                self.refused += 1;
                self.refusal.get_or_insert_with(|| format!("{error:#}"));
            }
        }
        Ok(())
    }

    /// Fails if a submit was refused or an execution did not start.
    pub(super) fn ensure_complete(&self) -> anyhow::Result<()> {
        let refusal = self.refusal.as_deref().unwrap_or_default();
        ensure!(self.refused == 0, "{} submits were refused: {refusal}", self.refused);
        ensure!(self.unstarted == 0, "{} executions were not started within {} s", self.unstarted, GIVE_UP.as_secs());
        Ok(())
    }

    pub(super) fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        self.taken.add(&other.taken)?;
        self.late.add(&other.late)?;
        self.refused += other.refused;
        self.refusal = self.refusal.take().or_else(|| other.refusal.clone());
        self.unstarted += other.unstarted;
        Ok(())
    }

    pub(super) fn millis(&self, quantile: f64) -> f64 {
        self.taken.value_at_quantile(quantile) as f64 / 1_000.0
    }

    pub(super) fn max_millis(&self) -> f64 {
        self.taken.max() as f64 / 1_000.0
    }

    pub(super) fn executions(&self) -> u64 {
        self.taken.len()
    }

    /// Number of submits that were sent late.
    pub(super) fn late(&self) -> u64 {
        self.late.len()
    }

    pub(super) fn latest_millis(&self) -> f64 {
        self.late.max() as f64 / 1_000.0
    }
}

/// An accepted submit.
struct Sent {
    number: u32,
    /// Time of sending; the due time if it was late.
    from: Instant,
    late_by: Option<Duration>,
}

/// Submits at a steady rate without waiting for earlier answers, and counts refusals. A submit that this process
/// sends late counts from its due time, which avoids coordinated omission.
async fn submit(environment: &BenchEnvironment, pace: Pace, starts: &mut Starts) -> anyhow::Result<Vec<Sent>> {
    let mut ticks = interval(pace.pause());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut submitting = JoinSet::new();
    for number in pace.first..pace.first + pace.submits() {
        let due = ticks.tick().await.into_std();
        let caller = environment.caller.clone();
        submitting.spawn(async move {
            let body = request(DEFINITION, usize::try_from(number)?);
            let now = Instant::now();
            let late_by = now.checked_duration_since(due).filter(|by| *by > TIMER);
            let from = if late_by.is_some() { due } else { now };
            let answer = caller.post("/v1/executions", &body).await;
            anyhow::Ok(answer.map(|_| Sent { number, from, late_by }))
        });
    }
    let mut sent = Vec::new();
    while let Some(submitted) = submitting.join_next().await {
        match submitted?? {
            Ok(one) => sent.push(one),
            Err(error) => {
                starts.refused += 1;
                starts.refusal.get_or_insert_with(|| format!("{error:#}"));
            }
        }
    }
    Ok(sent)
}

/// Time of the first model request, usually before the submit was answered.
async fn first_asked(environment: &BenchEnvironment, number: u32, give_up: Instant) -> Option<Instant> {
    loop {
        if let Some(at) = environment.model.first_asked(number.into()) {
            return Some(at);
        }
        if Instant::now() > give_up {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
