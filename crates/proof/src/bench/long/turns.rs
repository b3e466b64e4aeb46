//! Runs the execution: answers its turns, reads the counters between them, and kills the worker before the last.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use longhaul_domain::ExecutionId;
use longhaul_shared::clock::{Clock, SystemClock};
use longhaul_store::proof::bare_commits::Written;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{sleep, timeout},
};

use super::{
    super::{
        environment::{BenchEnvironment, request},
        model::{PAGE_TOOL, UnansweredRequest},
    },
    LONG,
    window::{TurnObservation, Window},
};

/// Longest wait for a turn, and for the end after the last.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Outcome of an attempt that is still running, in `Store::audited_attempts`.
const HELD: &str = "held";

#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) turns: usize,
    pub(super) page_bytes: usize,
}

/// The execution after its end.
pub(super) struct FinishedRun {
    pub(super) execution: ExecutionId,
    /// One per turn, in order.
    pub(super) looks: Vec<TurnObservation>,
    pub(super) averages: Averages,
    pub(super) resumed: Resumed,
}

/// Averages per turn up to the kill, with everything that the server did meanwhile.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Averages {
    wal_bytes: f64,
    /// Transactions, including those that only read.
    transactions: f64,
    milliseconds: f64,
}

/// Times until the next worker's first model request.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Resumed {
    pub(super) after_claim_seconds: f64,
    pub(super) after_kill_seconds: f64,
}

pub(super) async fn run(environment: &mut BenchEnvironment, plan: Plan) -> anyhow::Result<FinishedRun> {
    let mut asked = environment.model.take_over().context("the model is taken over already")?;
    let (started, written) = (Instant::now(), environment.store.written().await?);
    let submitted = environment.caller.post("/v1/executions", &request(LONG, 1)).await?;
    let execution = ExecutionId::deserialize(&submitted["id"])?;
    let (looks, last) = answer_all_but_the_last(environment, &mut asked, plan).await?;
    let averages = Averages::between(written, environment.store.written().await?, started, plan.turns);
    let (last, resumed) = kill_and_resume(environment, &mut asked, last, execution).await?;
    let (finished_before, _) = environment.ended().await?;
    last.end();
    let give_up = Instant::now() + PATIENCE;
    while environment.ended().await?.0 == finished_before {
        ensure!(Instant::now() < give_up, "the execution does not finish after its last turn");
        sleep(LOOK_EVERY).await;
    }
    Ok(FinishedRun { execution, looks, averages, resumed })
}

/// Answers each turn with a call. Returns what was seen at each, and the request of the last, unanswered.
async fn answer_all_but_the_last(
    environment: &BenchEnvironment,
    asked: &mut UnboundedReceiver<UnansweredRequest>,
    plan: Plan,
) -> anyhow::Result<(Vec<TurnObservation>, UnansweredRequest)> {
    let windows = Window::early_and_late(plan.turns);
    let mut looks = Vec::with_capacity(plan.turns);
    loop {
        let (turn, asked) = (looks.len() + 1, next(environment, asked).await?);
        // The worker waits for the answer meanwhile, and has committed all of the turn before.
        let position = if windows.iter().any(|window| window.begins_or_ends_at(turn)) {
            Some(environment.store.log_position().await?)
        } else {
            None
        };
        looks.push(TurnObservation {
            asked_at: asked.at,
            request_bytes: asked.bytes,
            position,
            answered_at: Instant::now(),
        });
        if turn == plan.turns {
            return Ok((looks, asked));
        }
        asked.call(PAGE_TOOL, turn, &json!({ "page": turn, "bytes": plan.page_bytes }).to_string());
    }
}

/// Kills the worker, which waits for the answer to `last`, and starts another. Returns its request.
async fn kill_and_resume(
    environment: &mut BenchEnvironment,
    asked: &mut UnboundedReceiver<UnansweredRequest>,
    last: UnansweredRequest,
    execution: ExecutionId,
) -> anyhow::Result<(UnansweredRequest, Resumed)> {
    let killed_at = Instant::now();
    environment.kill_worker(0).await?;
    drop(last);
    environment.add_worker().await?;
    let again = next(environment, asked).await?;
    let asked_at = SystemClock::new().now() - again.at.elapsed();
    let attempts = environment.store.audited_attempts().await?;
    let held = attempts.iter().find(|attempt| attempt.execution == execution && attempt.outcome == HELD);
    // The server's clock is this machine's.
    let after_claim = asked_at - held.context("no worker holds the execution")?.started_at;
    let resumed = Resumed {
        after_claim_seconds: after_claim.as_seconds_f64(),
        after_kill_seconds: again.at.duration_since(killed_at).as_secs_f64(),
    };
    Ok((again, resumed))
}

/// The next request of the execution.
async fn next(
    environment: &BenchEnvironment,
    asked: &mut UnboundedReceiver<UnansweredRequest>,
) -> anyhow::Result<UnansweredRequest> {
    match timeout(PATIENCE, asked.recv()).await {
        Ok(asked) => asked.context("the model has stopped"),
        Err(_) => {
            let (_, failed) = environment.ended().await?;
            anyhow::bail!("no model request within {} s; {failed} executions FAILED", PATIENCE.as_secs())
        }
    }
}

impl Averages {
    fn between(before: Written, after: Written, started: Instant, turns: usize) -> Self {
        let each = |amount: f64| amount / turns as f64;
        Self {
            wal_bytes: each((after.wal_bytes - before.wal_bytes) as f64),
            transactions: each((after.commits - before.commits) as f64),
            milliseconds: each(started.elapsed().as_secs_f64() * 1_000.0),
        }
    }

    pub(super) fn line(self) -> String {
        let Self { wal_bytes, transactions, milliseconds } = self;
        format!(
            "average of all turns, with all else that the server did: {wal_bytes:.0} bytes of log, {transactions:.2} \
             transactions, {milliseconds:.1} ms"
        )
    }
}
