//! ONE ATTEMPT: from a claim to the end of its lease.
//!
//! The attempt restores the journal, runs the definition with interruption and panic guard, and passes the outcome
//! to `conclusion`, which decides and writes the decision once.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use futures::FutureExt;
use longhaul_agent::{
    Agent,
    conversation::JournaledConversation,
    defaults::with_defaults,
    journal::{ExecutionScope, Journal, PinnedTools, from_store},
    lease::AttemptControl,
    prepared::{overrides, prepare, refuse_servers},
    probe::Point,
    prompt::render,
    suspects,
    validators::{effective_validators, is_built_in, with_output_schema},
};
use longhaul_references::instructions;
use longhaul_sdk::{
    AgentConfigProvider, ConfigType, ExecutionResult, Failure, FailureCode, Interrupt, Step, StepError, Validator,
    definition::{AnyDefinition, Declarative},
    spec::Runner,
};
use longhaul_shared::{
    domain::RetryPolicy,
    telemetry::{TRACED, metrics, trace},
};
use longhaul_store::{
    claims::Claimed,
    definitions::{AGENT_DEFINITION, PinnedVersions},
    journal::{Loaded, StoredJournal},
    retry::patiently,
};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;

use super::conclusion::{AttemptEnd, conclude};
use crate::{
    agent_definition::AgentDirectly,
    contract,
    deps::{AttemptDeps, Deps},
    runtime::held_leases::HeldLeases,
};

/// Start-up time of MCP servers above which observers get an event.
const SLOW_START: Duration = Duration::from_secs(1);

/// A claimed execution that is about to run.
pub(crate) struct Lease {
    pub(crate) claimed: Claimed,
    pub(crate) control: Arc<AttemptControl>,
}

/// Runs the attempt and ends its lease. The outcome is written here, or the lease belongs to another worker. The
/// permit is released before the outcome is written, so that the next claim and this write overlap.
pub(crate) async fn run(lease: Lease, permit: OwnedSemaphorePermit, deps: AttemptDeps, held: Arc<HeldLeases>) {
    let Lease { claimed, control } = lease;
    let span = tracing::info_span!(
        "attempt",
        otel.kind = "consumer",
        execution.id = %claimed.id,
        attempt.number = claimed.attempt,
        queue.name = claimed.queue,
        worker.id = %deps.writer.worker(),
        error.type = tracing::field::Empty,
        otel.status_code = tracing::field::Empty,
    );
    if let Some(traceparent) = &claimed.traceparent {
        trace::set_parent(&span, traceparent);
    }
    let (id, token) = (claimed.id, claimed.token);
    // Boxed here and below: a future that wraps or moves another reserves its size again, and thousands of attempts
    // wait for their models.
    Box::pin(async {
        note_claim(&claimed);
        deps.shared.probe.at(Point::Claimed, id).await;
        let started = Instant::now();
        let ended = attempt(&claimed, &control, &deps).await;
        let _concluding = deps.concluding.acquire().await;
        drop(permit);
        let tokens = Box::pin(conclude(&claimed, ended, started, &deps)).await;
        deps.shared.shares.end(claimed.tenant_id, claimed.charged, tokens, started.elapsed());
        deps.shared.probe.at(Point::Concluded, id).await;
    })
    .instrument(span)
    .await;
    held.leave(id, token);
}

/// Runs the definition until it ends, is interrupted or panics.
async fn attempt(claimed: &Claimed, control: &Arc<AttemptControl>, deps: &AttemptDeps) -> AttemptEnd {
    if claimed.cancel_requested {
        return (Err(Interrupt::Cancelled.into()), None, RetryPolicy::default());
    }
    suspects::note(&deps.shared.store, deps.writer.worker(), claimed.id, control, || "restoring its journal".into())
        .await;
    let restored = tokio::select! {
        restored = Box::pin(restore(claimed, control, deps)) => restored,
        reason = control.interrupted() => Err(reason.into()),
        // Nothing has started yet: a drain must not first load the journals of many executions.
        () = control.draining() => Err(Interrupt::Draining.into()),
    };
    let (pinned, mut journal) = match restored {
        Ok(restored) => restored,
        Err(error) => return (Err(error), None, RetryPolicy::default()),
    };
    deps.shared.probe.at(Point::Restored, claimed.id).await;
    let policy = contract::retry_policy(claimed.overrides.as_deref(), &pinned.definition.retry);
    let running = AssertUnwindSafe(Box::pin(execute(claimed, &pinned, &mut journal, deps))).catch_unwind();
    // Dropping the future aborts the running model or tool call.
    let outcome = tokio::select! {
        outcome = running => outcome.unwrap_or_else(|_| {
            Err(Failure::permanent(FailureCode::PANIC, "the definition, a tool or a validator panicked").into())
        }),
        reason = control.interrupted() => Err(reason.into()),
        () = tokio::time::sleep(time_left(claimed)) => Err(Interrupt::DeadlineExceeded.into()),
    };
    (outcome, Some(journal), policy)
}

/// Loads the pinned versions and the journal.
async fn restore(
    claimed: &Claimed,
    control: &Arc<AttemptControl>,
    deps: &AttemptDeps,
) -> Step<(Arc<PinnedVersions>, Box<Journal>)> {
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
        queue: claimed.queue.clone(),
        root: claimed.root,
        has_budget: claimed.has_budget,
        is_fork: claimed.is_fork,
        session: claimed.session,
    };
    let journal = Journal::new(
        (claimed.id, scope),
        stored,
        claimed.wake_seq,
        shared.agent.clone(),
        deps.writer.clone(),
        control.clone(),
    )?;
    Ok((pinned, Box::new(journal)))
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

/// Opens the conversation and runs the definition over it.
async fn execute(
    claimed: &Claimed,
    pinned: &PinnedVersions,
    journal: &mut Journal,
    deps: &AttemptDeps,
) -> Step<ExecutionResult> {
    let shared = &deps.shared;
    let sent: Arc<Value> = serde_json::from_str(&claimed.input).map(Arc::new).map_err(|error| {
        Failure::permanent(FailureCode::INTERNAL_ERROR, format!("the stored input is not JSON: {error}"))
    })?;
    let input = with_defaults(&pinned.definition.input_schema, Arc::clone(&sent))?;
    let agent = started(claimed, pinned, &input, journal, shared).await?;
    if let Some(output) = agent.profile.output_at_once() {
        return Ok(ExecutionResult::Success { output });
    }
    let references = Box::pin(journal.retrieve(&agent)).await?;
    let input_bytes = claimed.input.len();
    let open = journal.open(&agent, &input, async {
        let mut system = render("system prompt", &agent.config.prompt, &input, input_bytes).await?;
        if let Some(instructions) = instructions(&agent.config, &input) {
            system = format!("{system}\n\n{instructions}");
        }
        let task = async {
            match &pinned.definition.prompt {
                Some(template) => render("prompt", template, &input, input_bytes).await,
                None if Arc::ptr_eq(&input, &sent) => Ok(claimed.input.clone()),
                None => Ok(input.to_string()),
            }
        };
        agent.opening(system, references, task).await
    });
    Box::pin(open).await?;
    let (definition, validators) = runner(pinned, deps)?;
    // A child's end waits for its parent's row: its last turn must not wait with it.
    let is_built_in =
        pinned.definition.runner == Runner::Declarative && validators.iter().all(|v| is_built_in(v.name()));
    if is_built_in && claimed.depth == 0 {
        journal.end_in_one_commit();
    }
    let mut conversation = JournaledConversation {
        agent: &agent,
        journal,
        input: &input,
        output_schema: pinned.definition.output_schema.as_ref(),
    };
    let result = definition.run(&pinned.definition, &validators, &input, &mut conversation).await;
    if result.is_ok() {
        journal.note_unread();
    }
    // Accepted detached calls end before the lease does, whatever the result.
    Box::pin(journal.join_detached(&agent)).await?;
    result
}

/// Prepares the agent. Observers get an event if its MCP servers start slowly.
async fn started(
    claimed: &Claimed,
    pinned: &PinnedVersions,
    input: &Value,
    journal: &mut Journal,
    shared: &Deps,
) -> Step<Arc<Agent>> {
    let recorded = journal.pinned_tools()?;
    let (is_first, began) = (recorded.is_none(), Instant::now());
    let mut prepared = Box::pin(prepared(claimed, pinned, input, recorded, shared));
    if pinned.agent.mcp_servers.is_empty() || !is_first {
        return Ok(prepared.await?);
    }
    let agent = match tokio::time::timeout(SLOW_START, &mut prepared).await {
        Ok(agent) => agent?,
        Err(_slow) => {
            journal.note_starting(pinned.agent.mcp_servers.keys().map(String::as_str).collect()).await?;
            let agent = prepared.await?;
            journal.note_started(began.elapsed()).await?;
            agent
        }
    };
    journal.note_missing_tools(agent.toolbox.missing());
    Ok(agent)
}

/// The agent of a contract run, or of any other execution.
async fn prepared(
    claimed: &Claimed,
    pinned: &PinnedVersions,
    input: &Value,
    recorded: Option<PinnedTools>,
    shared: &Deps,
) -> Result<Arc<Agent>, Failure> {
    if claimed.overrides.is_some() {
        refuse_servers(pinned, &shared.agent.tool_servers)?;
        let overrides = overrides(claimed.overrides.as_deref())?;
        if let Some(run) = contract::run_of(&overrides)? {
            let config = pinned.agent.config(ConfigType::AgenticExecutionDefinition).with(overrides);
            return contract::prepare(config, run, input, recorded, shared).await.map(Arc::new);
        }
    }
    prepare(claimed, pinned, input, recorded, &shared.agent).await
}

type Running = (Arc<dyn AnyDefinition>, Vec<Arc<dyn Validator>>);

/// The code of a definition and the validators of its answers.
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

fn note_claim(claimed: &Claimed) {
    let _claim = tracing::info_span!(target: TRACED, "claim", queue.name = claimed.queue).entered();
    metrics::attempts_started(1);
    if claimed.is_first {
        metrics::start_latency((claimed.claimed_at - claimed.created_at).to_std().unwrap_or_default());
    }
}

/// Both times are of the database's clock, so the difference does not depend on this machine's clock.
fn time_left(claimed: &Claimed) -> Duration {
    between(claimed.claimed_at, claimed.active_until)
}

pub(super) fn between(from: DateTime<Utc>, to: DateTime<Utc>) -> Duration {
    (to - from).to_std().unwrap_or_default()
}
