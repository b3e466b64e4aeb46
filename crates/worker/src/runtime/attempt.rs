//! ONE ATTEMPT: what happens between a claim and the end of its lease.
//!
//! Restore the journal, run the definition under interruption and panic guard, decide, and write the decision down once. The
//! decision is pure (`domain::decision`); this file carries it out.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use futures::FutureExt;
use longhaul_sdk::{
    AgentConfigProvider, ConfigType, ExecutionResult, Failure, FailureClass, FailureCode, Interrupt, Step, StepError,
    Validator,
    definition::{AnyDefinition, Declarative},
    spec::{OutputMode, Runner},
};
use longhaul_shared::{
    config::StdioServers,
    domain::{Decision, RetryPolicy, WaitReason, decide},
    store::{
        StoreError,
        claims::Claimed,
        definitions::{AGENT_DEFINITION, PinnedVersions},
        journal::StoredJournal,
        outcomes::{Concluded, Conclusion, LeaseEnd},
    },
    telemetry::{metrics, trace},
};
use serde_json::Value;
use tracing::Instrument;

use super::lease::{AttemptControl, Held};
use crate::{
    agent::{
        Agent,
        conversation::JournaledConversation,
        journal::{Journal, Parked, PinnedTools, Place, budget::fold_budget, from_store},
        menu::{Menu, Task},
        policy::Policy,
        prompt::render,
        references::instructions,
    },
    deps::AttemptDeps,
    direct::AgentDirectly,
    probe::Point,
    tools::Toolbox,
    validators::{effective_validators, with_output_schema},
};

/// The first pause before a read is repeated, doubled up to the second.
const READ_PAUSE: Duration = Duration::from_millis(50);
const READ_PAUSE_MAX: Duration = Duration::from_secs(1);

/// A claimed execution on its way to its handler.
pub(crate) struct Lease {
    pub(crate) claimed: Claimed,
    pub(crate) control: Arc<AttemptControl>,
}

/// Runs the attempt and ends its lease. Every outcome is written here or belongs to another worker.
pub(crate) async fn run(lease: Lease, deps: AttemptDeps, held: Arc<Held>) {
    let Lease { claimed, control } = lease;
    let span = tracing::info_span!(
        "attempt",
        otel.kind = "consumer",
        execution.id = %claimed.id,
        attempt.number = claimed.attempt,
        queue.name = claimed.queue,
        worker.id = %deps.writer.worker(),
    );
    if let Some(traceparent) = &claimed.traceparent {
        trace::set_parent(&span, traceparent);
    }
    let (id, token) = (claimed.id, claimed.token);
    async {
        note_claim(&claimed);
        deps.shared.probe.at(Point::Claimed, id).await;
        let started = Instant::now();
        let ended = attempt(&claimed, &control, &deps).await;
        conclude(&claimed, ended, started, &deps).await;
        deps.shared.probe.at(Point::Concluded, id).await;
    }
    .instrument(span)
    .await;
    held.leave(id, token);
}

/// What is left of an attempt for its conclusion.
type Ended = (Step<ExecutionResult>, Option<Journal>, RetryPolicy);

/// Runs the definition until it ends, something interrupts it, or it panics.
async fn attempt(claimed: &Claimed, control: &Arc<AttemptControl>, deps: &AttemptDeps) -> Ended {
    if claimed.cancel_requested {
        return (Err(Interrupt::Cancelled.into()), None, RetryPolicy::default());
    }
    let restored = tokio::select! {
        restored = restore(claimed, control, deps) => restored,
        reason = control.interrupted() => Err(reason.into()),
    };
    let (pinned, mut journal) = match restored {
        Ok(restored) => restored,
        Err(error) => return (Err(error), None, RetryPolicy::default()),
    };
    deps.shared.probe.at(Point::Restored, claimed.id).await;
    let policy = RetryPolicy::from(&pinned.definition.retry);
    let running = AssertUnwindSafe(execute(claimed, &pinned, &policy, &mut journal, deps)).catch_unwind();
    // Dropping the run aborts the model or tool call under way.
    let outcome = tokio::select! {
        outcome = running => outcome.unwrap_or_else(|_| {
            Err(Failure::permanent(FailureCode::PANIC, "the definition, a tool or a validator panicked").into())
        }),
        reason = control.interrupted() => Err(reason.into()),
        () = tokio::time::sleep(time_left(claimed)) => Err(Interrupt::DeadlineExceeded.into()),
    };
    (outcome, Some(journal), policy)
}

/// Loads what is pinned and what is recorded.
async fn restore(
    claimed: &Claimed,
    control: &Arc<AttemptControl>,
    deps: &AttemptDeps,
) -> Step<(Arc<PinnedVersions>, Journal)> {
    let shared = &deps.shared;
    let (definition, agent) = (claimed.definition_version_id, claimed.agent_version_id);
    let pinned = patiently(|| shared.versions.get(&shared.store, definition, agent)).await.map_err(from_store)?;
    let stored = if claimed.has_history {
        let _loading = shared.loading.acquire().await;
        patiently(|| shared.store.load_journal(claimed.id)).await.map_err(from_store)?
    } else {
        StoredJournal::default()
    };
    let place = Place {
        tenant: claimed.tenant_id,
        queue: claimed.queue.clone(),
        root: claimed.root,
        has_budget: claimed.has_budget,
        is_fork: claimed.is_fork,
    };
    let journal = Journal::new(
        (claimed.id, place),
        stored,
        claimed.wake_seq,
        shared.clone(),
        deps.writer.clone(),
        control.clone(),
    );
    Ok((pinned, journal))
}

/// Repeats a read while Postgres is away or overloaded: that is no failure of the execution and spends none of its retries. The
/// caller's interrupt ends the wait.
async fn patiently<T, F: Future<Output = Result<T, StoreError>>>(read: impl Fn() -> F) -> Result<T, StoreError> {
    let mut pause = READ_PAUSE;
    loop {
        match read().await {
            Err(error) if error.is_retryable() => {
                tracing::debug!(error = %error, "a read is repeated: the database is unavailable");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(READ_PAUSE_MAX);
            }
            result => return result,
        }
    }
}

/// Opens the conversation and runs the definition over it.
async fn execute(
    claimed: &Claimed,
    pinned: &PinnedVersions,
    policy: &RetryPolicy,
    journal: &mut Journal,
    deps: &AttemptDeps,
) -> Step<ExecutionResult> {
    let shared = &deps.shared;
    let input: Value = serde_json::from_str(&claimed.input).map_err(|error| {
        Failure::permanent(FailureCode::INTERNAL_ERROR, format!("the stored input is not JSON: {error}"))
    })?;
    let mut config = pinned.agent.config(ConfigType::AgenticExecutionDefinition);
    if let Some(overrides) = &claimed.overrides {
        let overrides = serde_json::from_str(overrides).map_err(|error| {
            Failure::permanent(FailureCode::INTERNAL_ERROR, format!("what the fork changes cannot be read: {error}"))
        })?;
        config = config.with(overrides);
    }
    refuse_commands(pinned, shared.stdio_servers)?;
    let (toolbox, shown) = match journal.pinned_tools()? {
        Some(PinnedTools { tools, shown }) => (Toolbox::pinned(&config, tools, &shared.tools)?, Some(shown)),
        None => (Toolbox::open(&config, &shared.tools).await?, None),
    };
    let output_schema = pinned.definition.output_schema.as_ref();
    let (submitted, native_output_schema) = match config.model.output {
        OutputMode::Tool => (output_schema, None),
        OutputMode::Native => (None, output_schema.cloned()),
        OutputMode::Text => (None, None),
    };
    let task = Task { input: &input, output_schema: submitted };
    let menu = Menu::new(&config, toolbox.specs(), task, shown, &shared.tools.schemas)?;
    let model = shared.models.get(&config.model).map_err(|error| error.to_failure())?.clone();
    let max_compressions = policy.max_compressions;
    let policy = Policy::new(&config.approvals)?;
    let agent = Agent { config, model, toolbox, menu, policy, native_output_schema, max_compressions };
    journal
        .open(&agent, &input, || {
            let mut system = render("system prompt", &agent.config.prompt, &input)?;
            if let Some(instructions) = instructions(&agent.config, &input) {
                system = format!("{system}\n\n{instructions}");
            }
            let user = match &pinned.definition.prompt {
                Some(template) => render("prompt", template, &input)?,
                None => claimed.input.clone(),
            };
            Ok([system, user])
        })
        .await?;
    let (definition, validators) = runner(pinned, deps)?;
    let mut conversation = JournaledConversation { agent: &agent, journal, input: &input, output_schema };
    let result = definition.run(&pinned.definition, &validators, &input, &mut conversation).await;
    // Whatever it came to: what was accepted ends before the lease does.
    journal.join_detached(&agent).await?;
    result
}

/// The API refuses to store such an agent; this one was stored when it was allowed, or past the API.
fn refuse_commands(pinned: &PinnedVersions, stdio_servers: StdioServers) -> Result<(), Failure> {
    let starting = pinned.agent.mcp_servers.iter().find(|(_, server)| !server.command.is_empty());
    match starting {
        Some((server, _)) if !stdio_servers.permits(pinned.agent_owner) => {
            let summary = format!(
                "the tool server `{server}` is started by a command, which this worker does not do for the agent `{}` (setting \
                 tools.mcp.stdio)",
                pinned.agent.key
            );
            Err(Failure::permanent(FailureCode::INVALID_DEFINITION, summary))
        }
        Some(_) | None => Ok(()),
    }
}

type Running = (Arc<dyn AnyDefinition>, Vec<Arc<dyn Validator>>);

/// The code of a definition, with the validators of its answers.
fn runner(pinned: &PinnedVersions, deps: &AttemptDeps) -> Result<Running, Failure> {
    let (spec, registry) = (&pinned.definition, &deps.shared.validators);
    match spec.runner {
        Runner::Declarative if spec.key == AGENT_DEFINITION => Ok((Arc::new(AgentDirectly), Vec::new())),
        Runner::Declarative => Ok((Arc::new(Declarative), effective_validators(spec, registry)?)),
        Runner::Rust => {
            let registered = deps.shared.definitions.get(&spec.key).ok_or_else(|| {
                let summary = format!("no definition `{}` is registered on this worker", spec.key);
                Failure::permanent(FailureCode::INVALID_DEFINITION, summary)
            })?;
            let validators = with_output_schema(spec, registered.validators.clone(), registry)?;
            Ok((registered.run.clone(), validators))
        }
    }
}

/// Decides what becomes of the execution, and writes it down.
async fn conclude(claimed: &Claimed, ended: Ended, started: Instant, deps: &AttemptDeps) {
    let (mut outcome, journal, policy) = ended;
    let (mut spent, mut wake_seq, mut parked) = (None, claimed.wake_seq, None);
    if let Some(mut journal) = journal {
        if let Err(StepError::Interrupt(reason @ (Interrupt::Cancelled | Interrupt::DeadlineExceeded))) = &outcome {
            let reason = match reason {
                Interrupt::DeadlineExceeded => "the execution ran longer than it may",
                _ => "the execution was cancelled",
            };
            if let Err(error) = journal.answer_open_calls(reason) {
                outcome = merge(outcome, error);
            }
        }
        // What waits for a commit belongs to the record, whatever the attempt came to; a lost lease cannot write it.
        if outcome != Err(StepError::Interrupt(Interrupt::LeaseLost))
            && let Err(error) = journal.flush().await
        {
            outcome = merge(outcome, error);
        }
        (spent, wake_seq, parked) = (journal.blamed(), journal.wake_seq(), journal.parked());
    }
    deps.shared.probe.at(Point::BeforeConclusion, claimed.id).await;
    let decision = decide(outcome, &policy, claimed.retries, chance(claimed));
    let conclusion = match decision {
        Decision::Finish(output) => Conclusion::Finish { output: output.to_string() },
        Decision::Fail(failure) => Conclusion::Fail { failure, spent },
        Decision::Refuse { code, summary } => Conclusion::Refuse { code, summary },
        Decision::Retry { failure, delay } => Conclusion::Retry { failure, spent, delay, wake_seq },
        Decision::Park => park(claimed, started.elapsed(), parked),
        Decision::Cancel => Conclusion::Cancel,
        Decision::Release => Conclusion::Release { drained: true },
        Decision::Abandon => {
            metrics::lease_lost();
            tracing::warn!("attempt abandoned: its lease belongs to another");
            return;
        }
    };
    note_end(&conclusion);
    let end = |conclusion| LeaseEnd { id: claimed.id, token: claimed.token, attempt: claimed.attempt, conclusion };
    let mut concluded = deps.writer.conclude(end(conclusion)).await;
    if let Err(StoreError::Rejected(error)) = &concluded {
        // Repeating the attempt would end here again, for ever.
        tracing::error!(error = %error, "the store refused the end of an attempt");
        let failure = Failure::permanent(FailureCode::INTERNAL_ERROR, "the result could not be stored");
        concluded = deps.writer.conclude(end(Conclusion::Fail { failure, spent: None })).await;
    }
    match concluded {
        Ok(concluded) => tell(claimed, &concluded, deps).await,
        Err(error) => {
            metrics::lease_lost();
            tracing::warn!(error = %error, "the end of the attempt was not accepted");
        }
    }
}

/// Tells whom the end concerns; all of it is also found without being told.
async fn tell(claimed: &Claimed, concluded: &Concluded, deps: &AttemptDeps) {
    let publisher = &deps.shared.publisher;
    publisher.look([claimed.id.0]);
    if !concluded.status.is_terminal() {
        crate::wake(publisher, &concluded.queue, claimed.id, concluded.wait_reason);
        return;
    }
    if claimed.has_budget {
        fold_budget(&deps.shared, &deps.writer, claimed.root).await;
    }
    if let Some(parent) = concluded.parent {
        // It may be runnable now; if it is not, the wake-up finds nothing and costs nothing.
        publisher.look([parent.0]);
        crate::wake(publisher, &concluded.queue, parent, Some(WaitReason::Worker));
    }
}

/// A wait that ends by the database's clock, measured from the claim: both that instant and the limit are of that clock.
fn park(claimed: &Claimed, held_for: Duration, parked: Option<Parked>) -> Conclusion {
    // Nothing to wait for is runnable at once.
    let Some(Parked { waiting, wake_seq }) = parked else { return Conclusion::Release { drained: false } };
    let wait = waiting.until.map(|until| between(claimed.claimed_at, until).saturating_sub(held_for));
    Conclusion::Park { reason: waiting.reason, wait, wake_seq }
}

/// An interrupt found while writing outranks a failure, and nothing outranks a proven success but a lost lease.
fn merge(outcome: Step<ExecutionResult>, error: StepError) -> Step<ExecutionResult> {
    match (&outcome, &error) {
        (Ok(ExecutionResult::Success { .. }), StepError::Interrupt(Interrupt::Cancelled)) => outcome,
        (_, StepError::Interrupt(_)) | (Ok(_), StepError::Failed(_)) => Err(error),
        (Err(_), StepError::Failed(_)) => outcome,
    }
}

fn note_claim(claimed: &Claimed) {
    let _claim = tracing::info_span!("claim", queue.name = claimed.queue).entered();
    metrics::attempts_started(1);
    if claimed.is_first {
        metrics::start_latency((claimed.claimed_at - claimed.created_at).to_std().unwrap_or_default());
    }
}

fn note_end(conclusion: &Conclusion) {
    match conclusion {
        Conclusion::Finish { .. } => {
            metrics::execution_ended(None);
            tracing::info!("execution finished");
        }
        Conclusion::Fail { failure, .. } => {
            metrics::execution_ended(Some(failure.class));
            tracing::info!(failure.class = %failure.class, failure.code = %failure.code, "execution failed");
        }
        Conclusion::Refuse { code, .. } => {
            metrics::execution_ended(Some(FailureClass::Permanent));
            tracing::info!(failure.code = %code, "execution failed");
        }
        Conclusion::Retry { failure, delay, .. } => {
            metrics::retry_scheduled(failure.class);
            tracing::info!(failure.class = %failure.class, failure.code = %failure.code, delay = ?delay, "attempt will be retried");
        }
        Conclusion::Cancel => {
            metrics::execution_ended(Some(FailureClass::Permanent));
            tracing::info!("execution cancelled");
        }
        Conclusion::Park { reason, .. } => tracing::info!(wait.reason = %reason, "execution parked"),
        Conclusion::Release { .. } => tracing::info!("execution handed back"),
    }
}

/// Both times are of the database's clock, so the difference is what is left, whatever this machine's clock says.
fn time_left(claimed: &Claimed) -> Duration {
    between(claimed.claimed_at, claimed.active_until)
}

fn between(from: DateTime<Utc>, to: DateTime<Utc>) -> Duration {
    (to - from).to_std().unwrap_or_default()
}

/// Spreads retries when a policy has jitter: as good as random across executions, the same for one lease.
fn chance(claimed: &Claimed) -> f64 {
    f64::from(claimed.token.0.as_u128() as u32) / f64::from(u32::MAX)
}
