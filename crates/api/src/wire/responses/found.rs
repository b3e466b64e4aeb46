//! Finds a response by its id.

use longhaul_domain::{ExecutionId, ExecutionStatus};
use longhaul_wire::responses::{ResponseId, Stream};
use serde_json::Value;

use super::{
    super::{
        moments::{Source, recorded},
        record::{Recorded, answer},
        refused::{Answer, Refused, no_response},
        start::source,
    },
    kept::Kept,
};
use crate::{auth::Principal, state::ApiState};

/// A response that the caller may read.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) id: ResponseId,
    pub(super) execution: ExecutionId,
    pub(super) record: Recorded,
    pub(super) kept: Kept,
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
    let number = i32::try_from(id.leg()).map_err(|_| no_response(text))?;
    let missing = |refused: Refused| refused.or_missing(no_response(text));
    let record = answer(state, principal, (execution, number)).await.map_err(missing)?;
    let kept = Kept::read(record.request()).map_err(missing)?;
    Ok(Found { id, execution, record, kept })
}

impl Found {
    pub(super) fn source(&self, principal: &Principal) -> Source {
        source(principal, self.execution, (self.record.after(), &self.record.kind), false)
    }

    pub(super) fn render(&self) -> Stream {
        let one_call = self.record.kind.of_caller.is_none();
        Stream::new(self.kept.header(&self.id, self.record.asked_at(), one_call))
    }

    /// The response as it stands.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(super) async fn object(&self, state: &ApiState, principal: &Principal) -> Answer<Value> {
        let mut render = self.render();
        render.begin();
        for (moment, at) in recorded(state, self.source(principal)).await? {
            render.push(&moment, at);
        }
        Ok(render.object())
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.record.status, ExecutionStatus::Finished | ExecutionStatus::Failed)
    }
}
