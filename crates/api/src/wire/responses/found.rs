//! Finds a response by its id.

use longhaul_domain::{ExecutionId, ExecutionStatus};
use longhaul_store::wires::Leg;
use longhaul_wire::responses::{ResponseId, Stream};
use serde_json::Value;

use super::{
    super::{
        moments::{Moments, Source, recorded as recorded_moments},
        record::{Recorded, recorded},
        refused::{Answer, no_response},
        render::Render,
        start::source,
    },
    Responses,
    kept::Kept,
};
use crate::{auth::Principal, error::ApiResult, state::ApiState};

/// A response that the caller may read.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) id: ResponseId,
    pub(super) execution: ExecutionId,
    pub(super) record: Recorded,
    pub(super) kept: Kept,
    pub(super) leg: Option<Leg>,
}

/// # Errors
/// It does not exist, is another tenant's, was not stored, or was deleted.
pub(super) async fn find(state: &ApiState, principal: &Principal, text: &str) -> Answer<Found> {
    let found = find_any(state, principal, text).await?;
    if found.record.is_readable { Ok(found) } else { Err(no_response(text)) }
}

/// As [`find`], but also one that is not stored and is not erased yet.
///
/// # Errors
/// As those of [`find`].
pub(super) async fn find_any(state: &ApiState, principal: &Principal, text: &str) -> Answer<Found> {
    let id: ResponseId = text.parse().map_err(|_| no_response(text))?;
    let execution: ExecutionId = id.execution().parse().map_err(|_| no_response(text))?;
    let record =
        recorded(state, principal, execution).await.map_err(|refused| refused.or_missing(no_response(text)))?;
    let leg = match id.leg() {
        0 => None,
        number => {
            let legs = state.store.legs(execution).await?;
            let leg = legs.into_iter().find(|leg| u32::try_from(leg.leg).is_ok_and(|of| of == number));
            Some(leg.ok_or_else(|| no_response(text))?)
        }
    };
    let kept = Kept::read(leg.as_ref().map_or(&record.run.request, |leg| &leg.request))
        .map_err(|refused| refused.or_missing(no_response(text)))?;
    Ok(Found { id, execution, record, kept, leg })
}

impl Found {
    fn source(&self, principal: &Principal) -> Source {
        let after = self.leg.as_ref().map_or(0, |leg| leg.after_seq);
        source(principal, self.execution, (after, &self.record.kind), false)
    }

    pub(super) fn render(&self) -> Responses {
        let created_at = self.leg.as_ref().map_or(self.record.created_at, |leg| leg.created_at.timestamp());
        let one_call = self.record.kind.of_caller.is_none();
        Responses(Stream::new(self.kept.header(&self.id, created_at, one_call)))
    }

    /// # Errors
    /// The process has no slot for another stream.
    pub(super) async fn moments(&self, state: &ApiState, principal: &Principal) -> ApiResult<Moments> {
        Moments::open(state, self.source(principal)).await
    }

    /// The response as it stands.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(super) async fn object(&self, state: &ApiState, principal: &Principal) -> Answer<Value> {
        let mut render = self.render();
        render.begin();
        for (moment, at) in recorded_moments(state, self.source(principal)).await? {
            if render.is_over() {
                break;
            }
            let _ = render.push(&moment, at);
        }
        Ok(render.object())
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.record.status, ExecutionStatus::Finished | ExecutionStatus::Failed)
    }
}
