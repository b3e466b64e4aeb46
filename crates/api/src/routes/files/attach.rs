//! The files that an input names, checked before it is stored.

use std::collections::BTreeSet;

use longhaul_domain::{
    FileId, TenantId,
    input_parts::{self, MAX_BYTES, MAX_FILES},
};
use serde_json::Value;

use crate::{
    error::{ApiError, ApiResult, Violation},
    routes::executions::ExecutionError,
    state::ApiState,
};

/// The uploads that an input of the definition `agent` names. `place` maps a JSON Pointer into the input to one into
/// the request.
///
/// # Errors
/// A file is unknown, or there are too many files or bytes.
pub(crate) async fn named_files(
    state: &ApiState,
    tenant: TenantId,
    input: &Value,
    place: impl Fn(&str) -> String,
) -> ApiResult<Vec<FileId>> {
    let named = input_parts::files(input);
    if named.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<FileId> = named.iter().filter_map(|(_, id)| *id).collect::<BTreeSet<_>>().into_iter().collect();
    if named.len() > MAX_FILES {
        let (at, _) = &named[MAX_FILES];
        return Err(ExecutionError::InvalidInput(vec![Violation::new(
            place(at),
            format!("is one file more than {MAX_FILES}"),
        )])
        .into());
    }
    let found = state.store.find_uploads(tenant, &ids).await?;
    let is_known = |id: &Option<FileId>| id.is_some_and(|id| found.iter().any(|file| file.id == id));
    let unknown: Vec<Violation> = named
        .iter()
        .filter(|(_, id)| !is_known(id))
        .map(|(at, _)| Violation::new(place(at), "is no uploaded file, or it has expired"))
        .collect();
    if !unknown.is_empty() {
        return Err(ExecutionError::InvalidInput(unknown).into());
    }
    let bytes: u64 = found.iter().map(|file| file.bytes).sum();
    if bytes > MAX_BYTES {
        let message = format!("the files have {bytes} bytes together, more than {MAX_BYTES}");
        return Err(ExecutionError::InvalidInput(vec![Violation::new(place(&named[0].0), message)]).into());
    }
    Ok(ids)
}

/// The violation of an upload that vanished after it was checked.
pub(crate) fn gone(at: &str) -> ApiError {
    let named = Violation::new(at, "names a file that was deleted or has expired");
    ExecutionError::InvalidInput(vec![named]).into()
}
