//! The ledger of an execution: every call that may have changed something, and the known state of its effect.
//! Read from the journal's call steps, whose bodies the worker writes (`agent::journal::calls`).

use chrono::{DateTime, Utc};
use longhaul_sdk::ToolEffect;
use serde::Deserialize;
use strum::{IntoStaticStr, VariantArray};

use crate::{
    StoreError,
    history::{body, read::RecordedStep},
};

/// Known state of a call's effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum EffectState {
    /// It may have begun; its end is not known.
    Intended,
    /// It certainly did not run: it was withdrawn before it began.
    Withdrawn,
    /// Its tool returned a result.
    Done,
    /// Its tool returned an error. It may have taken effect in part.
    Failed,
    /// A worker died while it ran, and its tool confirmed the effect.
    Reconciled,
    /// It may have taken effect: a worker or its tool server died while it ran, or it took longer than it may.
    Unknown,
}

impl EffectState {
    /// Name as shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// One call that may have changed something.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerEntry {
    /// Number of its step.
    pub seq: i32,
    /// Attempt that recorded it; 0 if it was copied.
    pub attempt: i32,
    pub tool: String,
    /// Effect class, which decides about repeats.
    pub effect: ToolEffect,
    pub state: EffectState,
    /// Idempotency key given to the tool.
    pub idempotency_key: Option<String>,
    /// Beginning of the result.
    pub preview: Option<String>,
    /// Time at which it began, or was recorded as an intent.
    pub started_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
}

/// Fields of a call's body that the ledger reads.
#[derive(Deserialize)]
struct CallBody {
    #[serde(default)]
    is_error: bool,
    effect: Option<ToolEffect>,
    idempotency_key: Option<String>,
    resolution: Option<String>,
}

impl LedgerEntry {
    /// Entry of a step that was read with its body; `None` for a step that changed nothing.
    ///
    /// # Errors
    /// The body cannot be read.
    pub fn of(step: RecordedStep) -> Result<Option<Self>, StoreError> {
        if step.kind != "call" {
            return Ok(None);
        }
        let bytes = body::decode(&step.body)?;
        let body: CallBody = serde_json::from_slice(&bytes)
            .map_err(|error| StoreError::Corrupt(format!("the body of a call cannot be read: {error}")))?;
        let Some(effect) = body.effect.filter(|effect| *effect != ToolEffect::ReadOnly) else { return Ok(None) };
        let state = match (step.state.as_str(), body.resolution.as_deref()) {
            ("intent", _) => EffectState::Intended,
            ("spent", _) if step.failure_code.is_none() => EffectState::Withdrawn,
            (_, Some("reconciled")) => EffectState::Reconciled,
            (_, Some(_)) => EffectState::Unknown,
            (_, None) if body.is_error => EffectState::Failed,
            (_, None) => EffectState::Done,
        };
        Ok(Some(Self {
            seq: step.seq,
            attempt: step.attempt,
            tool: step.name.unwrap_or_default(),
            effect,
            state,
            idempotency_key: body.idempotency_key,
            preview: step.preview,
            started_at: step.started_at,
            finished_at: step.finished_at,
        }))
    }
}
