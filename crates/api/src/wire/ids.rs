//! Ids of runs and calls as the wires spell them.

use longhaul_domain::{ExecutionId, HumanRequestId};
use longhaul_wire::responses::ResponseId;
use uuid::Uuid;

/// Id of a call that waits for the caller: it names the request, so that a result finds its run.
pub(super) fn call_id(request: HumanRequestId) -> String {
    format!("call_{}", request.0.simple())
}

/// The request that the id of a call names.
pub(super) fn request_of(call_id: &str) -> Option<HumanRequestId> {
    id_after(call_id, "call_").map(HumanRequestId)
}

/// The request to decide on that an id of an approval names: a UUID, with or without a prefix.
pub(super) fn approval_of(id: &str) -> Option<HumanRequestId> {
    let id = id.strip_prefix("mcpr_").or_else(|| id.strip_prefix("appr_")).unwrap_or(id);
    Uuid::try_parse(id).ok().map(HumanRequestId)
}

fn id_after(text: &str, prefix: &str) -> Option<Uuid> {
    let hex = text.strip_prefix(prefix)?;
    (hex.len() == 32).then(|| Uuid::try_parse(hex).ok()).flatten()
}

/// The id of an answer: that of its run, and the number of its continuation. As that of a response, without the prefix.
pub(super) fn answer_id(execution: ExecutionId, leg: i32) -> String {
    let hex = execution.0.simple();
    if leg == 0 { hex.to_string() } else { format!("{hex}_{leg}") }
}

/// The run and the continuation that an answer's id names.
pub(super) fn answer_of(id: &str) -> Option<(ExecutionId, i32)> {
    let id: ResponseId = format!("resp_{id}").parse().ok()?;
    Some((id.execution().parse().ok()?, i32::try_from(id.leg()).ok()?))
}
