//! The begin of an answer: what a request brings to a run that waits, an answer that its run has recorded, or a new
//! run.

use longhaul_domain::ExecutionId;
use longhaul_store::{StoreError, executions::submit::Submitted, runs::RunAnswer};
use longhaul_wire::{Fault, FaultKind, Render};

use super::{
    delivery::Delivery,
    follow::Following,
    ids::answer_id,
    moments::{Moments, Source},
    place::{InRun, Place},
    plan::{Kind, Plan, Request, plan},
    record::{Recorded, recorded},
    refused::{Answer, Refused},
    resume::{Resumed, resume},
};
use crate::{
    auth::Principal, error::ApiResult, idempotency_error::IdempotencyError, routes::files::attach::gone,
    state::ApiState,
};
use longhaul_store::tenants::api_keys::Scope;

/// An answer that began, now or before.
pub(super) struct Started {
    pub(super) execution: ExecutionId,
    /// Number of the answer within its run: 0, or that of the continuation.
    pub(super) leg: i32,
    /// Number of the event after which it begins.
    pub(super) after: i32,
    /// In seconds since 1970.
    pub(super) created_at: i64,
    pub(super) kind: Kind,
    pub(super) delivery: Option<Delivery>,
}

impl Started {
    /// Id of the answer without the prefix of its wire.
    pub(super) fn id(&self) -> String {
        answer_id(self.execution, self.leg)
    }

    /// True for one call of a model.
    pub(super) fn is_one_call(&self) -> bool {
        self.kind.of_caller.is_none()
    }

    /// Follows the answer from its begin.
    ///
    /// # Errors
    /// The process has no slot for another stream.
    pub(super) async fn follow(
        self,
        state: &ApiState,
        principal: &Principal,
        render: impl Render + 'static,
    ) -> ApiResult<Following> {
        let source = source(principal, self.execution, (self.after, &self.kind), render.tells_results());
        let moments = Moments::open(state, source).await?;
        Ok(Following { moments, render: Box::new(render), delivery: self.delivery, unstored: None })
    }
}

/// An answer of a run as this caller reads it. It begins after the event of the given number.
pub(super) fn source(
    principal: &Principal,
    execution: ExecutionId,
    (after, kind): (i32, &Kind),
    has_results: bool,
) -> Source {
    Source {
        tenant: principal.tenant(),
        execution,
        after,
        of_caller: kind.of_caller.clone(),
        is_agent: kind.is_agent,
        is_exact: principal.need(Scope::ExecutionsWrite).is_ok(),
        has_results,
    }
}

/// # Errors
/// The request is refused, or Postgres is unavailable: nothing is stored.
pub(super) async fn start(
    state: &ApiState,
    principal: &Principal,
    request: Request,
    in_run: Option<InRun>,
) -> Answer<Started> {
    let reading = state.reads.place(principal.tenant()).await?;
    if let Some(resumed) = resume(state, principal, (&request.asked.items, &request.echo), None).await? {
        return continued(state, principal, resumed).await;
    }
    drop(reading);
    fresh(state, principal, request, in_run).await
}

/// As [`start`], for a request that brings nothing to a run that waits.
///
/// # Errors
/// As those of [`start`].
pub(super) async fn fresh(
    state: &ApiState,
    principal: &Principal,
    request: Request,
    in_run: Option<InRun>,
) -> Answer<Started> {
    // For what is read; writes of many callers are committed together.
    let reading = state.reads.place(principal.tenant()).await?;
    let Some(in_run) = in_run else {
        let plan = plan(state, principal, request).await?;
        drop(reading);
        return alone(state, principal, plan).await;
    };
    let content = request.content();
    let place = Place::find(state, principal, in_run, content).await?;
    let plan = plan(state, principal, request).await?;
    drop(reading);
    within(state, principal, plan, place).await
}

/// The answer that goes on in a run.
pub(super) async fn continued(state: &ApiState, principal: &Principal, resumed: Resumed) -> Answer<Started> {
    let Resumed { execution, leg } = resumed;
    let Recorded { kind, .. } = recorded(state, principal, execution).await?;
    let created_at = leg.created_at.timestamp();
    Ok(Started { execution, leg: leg.leg, after: leg.after_seq, created_at, kind, delivery: None })
}

/// Stores a run of its own.
pub(super) async fn alone(state: &ApiState, principal: &Principal, plan: Plan) -> Answer<Started> {
    let Plan { execution, files, kind, .. } = plan;
    let queue = execution.queue.clone();
    let (submitted, beginning) = match files.as_slice() {
        [] => state.submitter.submit_and_tell(execution).await?,
        files => state.store.submit_with_files(&execution, files).await?.ok_or_else(|| gone("/input"))?,
    };
    let id = match submitted {
        Submitted::Created(id) => {
            state.publisher.wake(&queue, id);
            id
        }
        Submitted::Existing(id) => id,
        Submitted::KeyReused(id) => return Err(IdempotencyError::IdempotencyKeyReused(Some(id)).into()),
    };
    let created_at = match beginning {
        Some(beginning) => beginning.created_at.timestamp(),
        None => recorded(state, principal, id).await?.created_at,
    };
    Ok(Started { execution: id, leg: 0, after: 0, created_at, kind, delivery: None })
}

/// Finds the answer in its durable run, or stores its run there.
async fn within(state: &ApiState, principal: &Principal, plan: Plan, mut place: Place) -> Answer<Started> {
    let Plan { execution, files, kind, is_stored } = plan;
    let mut answer = state.store.begin_run_call_with_files(&place.request(), (&execution, &files)).await;
    if matches!(answer, Err(StoreError::NotFound(_))) {
        place = place.anew(state, principal).await?;
        answer = state.store.begin_run_call_with_files(&place.request(), (&execution, &files)).await;
    }
    if !is_stored && !matches!(answer, Ok(RunAnswer::New { .. })) {
        // This execution was not made, so that its mark is of nothing.
        state.store.let_go_unstored(&[execution.id]).await?;
    }
    let (id, occurrence, created_at) = match answer? {
        RunAnswer::New { execution: id, occurrence, created_at } => {
            state.publisher.wake(&execution.queue, id);
            (id, occurrence, created_at.timestamp())
        }
        RunAnswer::Known { execution: id, occurrence, .. } => {
            (id, occurrence, recorded(state, principal, id).await?.created_at)
        }
        RunAnswer::Ended(status) => {
            let message = format!(
                "the run `{}` is {}; start it again with `longhaul run --key …`, or take another key",
                place.of.key,
                status.as_str()
            );
            return Err(Refused::conflict(message, "run_ended"));
        }
        RunAnswer::FileGone => return Err(gone("/input").into()),
        RunAnswer::DeadlinePassed => {
            return Err(Refused::conflict(
                format!("the deadline of the run `{}` has passed", place.of.key),
                "run_ended",
            ));
        }
        RunAnswer::TooMany(limit) => {
            let message =
                format!("the run `{}` has {} {}, the most of one run", place.of.key, limit.most(), limit.as_str());
            return Err(Fault { kind: FaultKind::Conflict, message, param: None, code: Some("run_full".into()) }.into());
        }
    };
    let delivery = Some(Delivery::new(state.store.clone(), place, occurrence));
    Ok(Started { execution: id, leg: 0, after: 0, created_at, kind, delivery })
}
