//! The built-in definition `model_call`: one call of a model, for a request over a wire of other clients.

use std::{borrow::Cow, sync::Arc};

use longhaul_agent::{
    Agent,
    conversation::JournaledConversation,
    deps::AgentDeps,
    prepare::{differences::Differences, wire::prepare_call},
};
use longhaul_sdk::{ExecutionResult, Failure, FailureCode, Step};
use longhaul_store::catalogue::definitions::{MODEL_CALL_DEFINITION, PinnedVersions};
use serde_json::json;

/// True for the versions of a model call.
pub(crate) fn is_one(pinned: &PinnedVersions) -> bool {
    pinned.definition.key == MODEL_CALL_DEFINITION
}

/// Prepares the call.
///
/// # Errors
/// The execution has no request, or its model is unknown.
pub(crate) fn prepare(
    pinned: &PinnedVersions,
    mut differences: Differences,
    deps: &AgentDeps,
) -> Result<Arc<Agent>, Failure> {
    let run = differences.wire.take().ok_or_else(|| {
        Failure::permanent(FailureCode::INTERNAL_ERROR, "the model call has no request: it cannot be started by itself")
    })?;
    prepare_call(pinned, differences, run, deps).map(Arc::new)
}

/// Makes the call. Its output is for people and small: the reply itself, with its calls, is the recorded turn.
///
/// # Errors
/// An interrupt, or the failure of the call.
pub(crate) async fn run(conversation: &mut JournaledConversation<'_>) -> Step<ExecutionResult> {
    let reply = conversation.reply_once().await?;
    let response = reply.text.replace('\0', "\u{fffd}");
    Ok(ExecutionResult::Success { output: json!({ "response": response, "calls": reply.calls }) })
}

/// The versions with the output schema of the request instead of the definition's. That of a model call is the
/// provider's business.
pub(crate) fn with_schema<'a>(pinned: &'a PinnedVersions, differences: &Differences) -> Cow<'a, PinnedVersions> {
    let schema = differences.wire.as_ref().and_then(|wire| wire.output_schema.as_ref());
    match schema.filter(|_| !is_one(pinned)) {
        Some(schema) => {
            let mut pinned = pinned.clone();
            pinned.definition.output_schema = Some(schema.clone());
            Cow::Owned(pinned)
        }
        None => Cow::Borrowed(pinned),
    }
}
