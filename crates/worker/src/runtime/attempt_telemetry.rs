//! The span, metrics and log lines of an attempt.

use longhaul_domain::{ExecutionId, ExecutionStatus, LeaseToken, WorkerId};
use longhaul_sdk::FailureClass;
use longhaul_store::{
    catalogue::definitions::PinnedVersions,
    executions::{
        claims::Claimed,
        outcomes::{AttemptOutcome, LeaseEnd},
    },
    fleet::maintenance::{LostAttempt, Reaped},
};
use longhaul_telemetry::{
    TRACED, metrics,
    trace::{self, AttemptIds, KeyValue},
};
use tracing::Span;

/// Value of `error.type` for an attempt without a lease.
const LEASE_LOST: &str = "lease_lost";

/// The span of an attempt, in the trace of its submit.
pub(super) fn attempt_span(claimed: &Claimed, worker: WorkerId) -> Span {
    let span = tracing::info_span!(
        "attempt",
        otel.kind = "consumer",
        execution.id = %claimed.id,
        tenant.id = %claimed.tenant_id,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = tracing::field::Empty,
        agent.version = tracing::field::Empty,
        gen_ai.conversation.id = claimed.session.map(tracing::field::display),
        definition.key = tracing::field::Empty,
        attempt.number = claimed.attempt,
        queue.name = claimed.queue,
        worker.id = %worker,
        error.type = tracing::field::Empty,
        otel.status_code = tracing::field::Empty,
    );
    ids(claimed.root, claimed.token, claimed.traceparent.as_deref()).start(&span);
    span
}

fn ids(root: ExecutionId, token: LeaseToken, traceparent: Option<&str>) -> AttemptIds<'_> {
    AttemptIds { root: root.0, lease: token.0, traceparent }
}

/// Exports the span of an attempt whose worker died, in the worker's place.
pub(super) fn note_lost(reaped: &Reaped) {
    let LostAttempt { tenant, agent_key, number, token, held_for, root, session, traceparent } = &reaped.attempt;
    let mut attributes = vec![
        KeyValue::new("execution.id", reaped.id.to_string()),
        KeyValue::new("tenant.id", tenant.to_string()),
        KeyValue::new("gen_ai.operation.name", "invoke_agent"),
        KeyValue::new("gen_ai.agent.name", agent_key.clone()),
        KeyValue::new("attempt.number", i64::from(*number)),
        KeyValue::new("queue.name", reaped.queue.clone()),
        KeyValue::new("worker.id", reaped.worker.to_string()),
        KeyValue::new("error.type", LEASE_LOST),
    ];
    attributes.extend(session.map(|session| KeyValue::new("gen_ai.conversation.id", session.to_string())));
    ids(*root, *token, traceparent.as_deref()).export_lost(format!("invoke_agent {agent_key}"), *held_for, attributes);
}

/// Notes that the lease of the current attempt belongs to another worker.
pub(super) fn note_lease_lost() {
    trace::fail(&Span::current(), LEASE_LOST);
    metrics::lease_lost();
}

/// Names the span of the attempt after its agent, as soon as that is known.
pub(super) fn note_agent(pinned: &PinnedVersions) {
    let (span, agent) = (Span::current(), pinned.agent.key.as_str());
    if span.is_disabled() {
        return;
    }
    trace::rename(&span, format!("invoke_agent {agent}"));
    span.record("gen_ai.agent.name", agent);
    span.record("agent.version", pinned.agent_version.to_string());
    span.record("definition.key", pinned.definition.key.as_str());
}

pub(super) fn note_claim(claimed: &Claimed) {
    let _claim = tracing::info_span!(target: TRACED, "claim", queue.name = claimed.queue).entered();
    metrics::attempts_started(1);
    if claimed.is_first {
        metrics::start_latency((claimed.claimed_at - claimed.created_at).to_std().unwrap_or_default());
    }
}

/// Reports the stored status, not the end that was asked for: a cancel in between ends a retry, a park or a failure.
pub(super) fn note_end(end: &LeaseEnd, status: ExecutionStatus) {
    match (status, end.outcome(), end.failure()) {
        (ExecutionStatus::Finished, ..) => {
            metrics::executions_ended(None, 1);
            tracing::info!("execution finished");
        }
        (ExecutionStatus::Failed, AttemptOutcome::Failed, Some((class, code))) => {
            trace::fail(&Span::current(), code);
            metrics::executions_ended(Some(class), 1);
            tracing::info!(failure.class = %class, failure.code = code, "execution failed");
        }
        (ExecutionStatus::Failed, ..) => {
            metrics::executions_ended(Some(FailureClass::Permanent), 1);
            tracing::info!("execution cancelled");
        }
        (ExecutionStatus::Pending | ExecutionStatus::InProgress, AttemptOutcome::Retrying, Some((class, code))) => {
            trace::fail(&Span::current(), code);
            metrics::retry_scheduled(class);
            let delay = end.wait().and_then(|(_, delay)| delay).unwrap_or_default();
            tracing::info!(failure.class = %class, failure.code = code, delay = ?delay, "attempt will be retried");
        }
        (ExecutionStatus::Pending | ExecutionStatus::InProgress, AttemptOutcome::Parked, failure) => {
            let reason = end.wait().map_or("worker", |(reason, _)| reason);
            tracing::info!(wait.reason = reason, failure.code = failure.map(|(_, code)| code), "execution parked");
        }
        (ExecutionStatus::Pending | ExecutionStatus::InProgress, ..) => tracing::info!("execution handed back"),
    }
}
