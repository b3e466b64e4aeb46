//! ONE ATTEMPT, from its lease to the end of it: restore the journal, run the definition (the agent loop), settle
//! the journal, decide (`domain::decision`, pure), end the lease with one statement, announce the end.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use futures::FutureExt;
use longhaul_agent::{
    Attempt,
    journal::{ExecutionScope, Writer, from_store},
    lease::{AttemptControl, suspects},
    probe::Point,
};
use longhaul_domain::RetryPolicy;
use longhaul_sdk::{ExecutionResult, Failure, FailureCode, Interrupt, Step, StepError};
use longhaul_store::{
    StoreError,
    catalogue::definitions::PinnedVersions,
    database::retry::patiently,
    executions::{
        claims::Claimed,
        outcomes::{Concluded, LeaseEnd},
    },
    fleet::shares::HeldPermit,
    history::journal::{JournalWrite, Loaded, StoredJournal},
};
use longhaul_telemetry::metrics;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;

use super::{
    announce::announce_end,
    attempt_telemetry::{attempt_span, note_agent, note_claim, note_end, note_lease_lost},
    decide::{AttemptEnd, Wait, decide},
    definition_run::run_definition,
};
use crate::{contract, deps::AttemptDeps};

/// A claimed execution that is about to run.
pub(crate) struct Lease {
    pub(crate) claimed: Claimed,
    pub(crate) control: Arc<AttemptControl>,
    /// Counts its permit as its tenant's.
    pub(crate) share: HeldPermit,
}

/// Runs the attempt and ends its lease. The outcome is written here, or the lease belongs to another worker. The
/// permit is released before the outcome is written, so that the next claim and this write overlap.
pub(crate) async fn run(lease: Lease, permit: OwnedSemaphorePermit, deps: AttemptDeps) {
    let Lease { claimed, control, share } = lease;
    // Boxed here and below: a future that wraps or moves another reserves its size again, and thousands of attempts
    // wait for their models.
    Box::pin(async {
        note_claim(&claimed);
        deps.shared.probe.at(Point::Claimed, claimed.id).await;
        let (started, in_use) = (Instant::now(), metrics::PermitInUse::new());
        let ended = attempt(&claimed, &control, &deps).await;
        let concluding = deps.concluding.acquire().await;
        // The share first: the claim that the permit allows counts it no more.
        drop((share, permit, in_use));
        let tokens = Box::pin(conclude(&claimed, ended, started, &deps)).await;
        drop(concluding);
        deps.shared.shares.end(claimed.tenant_id, claimed.charged, tokens, started.elapsed());
        deps.shared.probe.at(Point::Concluded, claimed.id).await;
    })
    .instrument(attempt_span(&claimed, deps.writer.worker()))
    .await;
    deps.held.leave(claimed.id, claimed.token);
}

/// End of the run, with the attempt if its journal was restored.
struct Ended {
    outcome: Step<ExecutionResult>,
    attempt: Option<Box<Attempt>>,
    policy: RetryPolicy,
}

impl Ended {
    fn unrestored(error: StepError) -> Self {
        Self { outcome: Err(error), attempt: None, policy: RetryPolicy::default() }
    }
}

/// Runs the definition until it ends, is interrupted or panics.
async fn attempt(claimed: &Claimed, control: &Arc<AttemptControl>, deps: &AttemptDeps) -> Ended {
    if claimed.cancel_requested {
        return Ended::unrestored(Interrupt::Cancelled.into());
    }
    suspects::note(&deps.shared.store, deps.writer.worker(), claimed.id, control, || "restoring its journal".into())
        .await;
    let restored = tokio::select! {
        restored = Box::pin(restore(claimed, control, deps)) => restored,
        reason = control.interrupted() => Err(reason.into()),
        // Nothing has started yet: a drain must not first load the journals of many executions.
        () = control.draining() => Err(Interrupt::Draining.into()),
    };
    let (pinned, mut attempt) = match restored {
        Ok(restored) => restored,
        Err(error) => return Ended::unrestored(error),
    };
    note_agent(&pinned);
    deps.shared.probe.at(Point::Restored, claimed.id).await;
    let policy = contract::retry_policy(claimed.overrides.as_deref(), &pinned.definition.retry);
    let running = AssertUnwindSafe(Box::pin(run_definition(claimed, &pinned, &mut attempt, deps))).catch_unwind();
    // Dropping the future aborts the running model or tool call.
    let outcome = tokio::select! {
        outcome = running => outcome.unwrap_or_else(|_| {
            Err(Failure::permanent(FailureCode::PANIC, "the definition, a tool or a validator panicked").into())
        }),
        reason = control.interrupted() => Err(reason.into()),
        () = tokio::time::sleep(time_until(claimed, claimed.active_until)) => Err(Interrupt::DeadlineExceeded.into()),
    };
    Ended { outcome, attempt: Some(attempt), policy }
}

/// Loads the pinned versions and the journal.
async fn restore(
    claimed: &Claimed,
    control: &Arc<AttemptControl>,
    deps: &AttemptDeps,
) -> Step<(Arc<PinnedVersions>, Box<Attempt>)> {
    let shared = &deps.shared;
    let (definition, agent) = (claimed.definition_version_id, claimed.agent_version_id);
    let pinned = patiently(shared.store.trouble(), || shared.versions.get(&shared.store, definition, agent))
        .await
        .map_err(from_store)?;
    let stored = if claimed.has_history {
        let _loading = shared.loading.acquire().await;
        match patiently(shared.store.trouble(), || shared.store.load_journal(claimed.id, shared.journal_format))
            .await
            .map_err(from_store)?
        {
            Loaded::Journal(stored) => stored,
            Loaded::Newer(format) => return Err(hand_on(claimed, format, deps).await),
        }
    } else {
        StoredJournal::default()
    };
    let scope = ExecutionScope {
        tenant: claimed.tenant_id,
        agent: pinned.agent.key.clone(),
        queue: claimed.queue.clone(),
        root: claimed.budget_root,
        has_budget: claimed.has_budget,
        is_fork: claimed.is_fork,
        session: claimed.session,
    };
    let (agent, lease) = (shared.agent.clone(), deps.writer.clone());
    let writer = Writer::new((claimed.id, scope), claimed.wake_seq, agent, lease, control.clone());
    Ok((pinned, Box::new(Attempt::new(stored, writer)?)))
}

/// Releases an execution whose journal has a newer format, for a worker that can read it: a journal that is not
/// fully understood must not be acted on.
async fn hand_on(claimed: &Claimed, format: u8, deps: &AttemptDeps) -> StepError {
    let (worker, lease) = (deps.writer.worker(), (claimed.id, claimed.token));
    match patiently(deps.shared.store.trouble(), || deps.shared.store.require_journal_format(worker, lease, format))
        .await
    {
        Ok(()) => {
            metrics::journals_handed_on();
            tracing::warn!(journal.format = format, "the journal is of a newer release; handed on to a worker of it");
            Interrupt::Waiting.into()
        }
        Err(error) => from_store(error),
    }
}

/// Decides the execution's next state and commits it. Returns the tokens of this attempt, as far as they are known.
async fn conclude(claimed: &Claimed, ended: Ended, started: Instant, deps: &AttemptDeps) -> i64 {
    let Ended { outcome, attempt, policy } = ended;
    let (end, write) = settle(outcome, attempt, claimed, started).await;
    deps.shared.probe.at(Point::BeforeConclusion, claimed.id).await;
    let Some(end) = decide(claimed.lease(), end, &policy, claimed.retries()) else {
        note_lease_lost();
        tracing::warn!("attempt abandoned: its lease belongs to another");
        return 0;
    };
    match end_lease(claimed, end.with(write.clone()), write, deps).await {
        Ok((end, concluded)) => {
            note_end(&end, concluded.status);
            announce_end(claimed, &concluded, deps).await;
            concluded.tokens - claimed.tokens
        }
        Err(error) => {
            note_lease_lost();
            tracing::warn!(error = %error, "the end of the attempt was not accepted");
            0
        }
    }
}

/// Commits the rest of the journal. The last write of a successful run is returned, for the statement that ends the
/// lease (docs/design/journal.md); the commit may change any other outcome.
async fn settle(
    mut outcome: Step<ExecutionResult>,
    attempt: Option<Box<Attempt>>,
    claimed: &Claimed,
    started: Instant,
) -> (AttemptEnd, Option<Arc<JournalWrite>>) {
    let Some(mut attempt) = attempt else {
        let wake_seq = claimed.wake_seq;
        return (AttemptEnd { outcome, wake_seq, wait: None, server: None, complaint: None }, None);
    };
    let journal = &mut attempt.journal;
    if let Some(reason) = aborted(&outcome) {
        let kept = journal.keep_interrupted_reply();
        if let Err(error) = kept.and_then(|()| journal.writer.answer_open_calls(reason)) {
            outcome = merge(outcome, error);
        }
    }
    let mut write = None;
    // A lost lease can write nothing.
    if outcome != Err(StepError::Interrupt(Interrupt::LeaseLost)) {
        let committed = if outcome.is_ok() {
            journal.writer.last_write().await.map(|last| write = last.map(Arc::new))
        } else {
            journal.writer.flush().await
        };
        if let Err(error) = committed {
            outcome = merge(outcome, error);
        }
    }
    let writer = &journal.writer;
    let wait = writer.parked().map(|parked| Wait {
        reason: parked.waiting.reason,
        // From now until an instant of the database's clock: the distance from the claim, minus the time held since.
        time: parked.waiting.until.map(|until| time_until(claimed, until).saturating_sub(started.elapsed())),
        wake_seq: parked.wake_seq,
    });
    let (wake_seq, server, complaint) = (writer.wake_seq(), journal.servers.waiting(), journal.complaint.take());
    (AttemptEnd { outcome, wake_seq, wait, server, complaint }, write)
}

/// Ends the lease together with its last write. Returns the accepted end.
async fn end_lease(
    claimed: &Claimed,
    end: LeaseEnd,
    write: Option<Arc<JournalWrite>>,
    deps: &AttemptDeps,
) -> Result<(Arc<LeaseEnd>, Concluded), StoreError> {
    let end = Arc::new(end);
    match deps.writer.conclude(end.clone()).await {
        Err(StoreError::Rejected(error)) => {
            // A repeated attempt would fail here again, without end.
            tracing::error!(error = %error, "the store refused the end of an attempt");
            if let Some(write) = write
                && let Err(error) = deps.writer.record(write).await
            {
                tracing::error!(error = %error, "the store refused the last write of an attempt");
            }
            let failure = Failure::permanent(FailureCode::INTERNAL_ERROR, "the result could not be stored");
            let failed = Arc::new(claimed.lease().fail(&failure));
            deps.writer.conclude(failed.clone()).await.map(|concluded| (failed, concluded))
        }
        concluded => concluded.map(|concluded| (end, concluded)),
    }
}

/// Error text for unanswered calls, if the execution ends with them.
fn aborted(outcome: &Step<ExecutionResult>) -> Option<&'static str> {
    match outcome {
        Err(StepError::Interrupt(Interrupt::DeadlineExceeded)) => Some("the execution ran longer than it may"),
        Err(StepError::Interrupt(Interrupt::Cancelled)) => Some("the execution was cancelled"),
        Err(
            StepError::Interrupt(Interrupt::LeaseLost | Interrupt::Draining | Interrupt::Waiting)
            | StepError::Failed(_),
        )
        | Ok(_) => None,
    }
}

/// An interrupt found while writing replaces a failure. A success is kept on a cancel.
fn merge(outcome: Step<ExecutionResult>, error: StepError) -> Step<ExecutionResult> {
    match (&outcome, &error) {
        (Ok(ExecutionResult::Success { .. }), StepError::Interrupt(Interrupt::Cancelled)) => outcome,
        (_, StepError::Interrupt(_)) | (Ok(_), StepError::Failed(_)) => Err(error),
        (Err(_), StepError::Failed(_)) => outcome,
    }
}

/// Time from the claim to `until`. Both are of the database's clock, so this machine's clock does not matter.
fn time_until(claimed: &Claimed, until: DateTime<Utc>) -> Duration {
    (until - claimed.claimed_at).to_std().unwrap_or_default()
}
