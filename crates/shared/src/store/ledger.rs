//! The ledger of an execution: every call that may have changed something, and what is known of its effect. Read from the journal's
//! call steps, whose bodies the worker writes (`worker::agent::journal::calls`).

use chrono::{DateTime, Utc};
use longhaul_sdk::ToolEffect;
use serde::Deserialize;

use super::{StoreError, body, history::RecordedStep};

/// What is known of a call's effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectState {
    /// It may have begun; nothing is known of its end.
    Intended,
    /// It certainly did not run: it was taken back before it began.
    Withdrawn,
    /// Its tool answered with a result.
    Done,
    /// Its tool answered with an error. It may have taken effect in part.
    Failed,
    /// A worker died while it ran, and its tool could say that it had taken effect.
    Reconciled,
    /// It may have taken effect, and nobody can say: a worker died while it ran, its tool server did, or it took longer than it may.
    Unknown,
}

impl EffectState {
    /// The name as shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Intended => "intended",
            Self::Withdrawn => "withdrawn",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Reconciled => "reconciled",
            Self::Unknown => "unknown",
        }
    }
}

/// One call that may have changed something.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerEntry {
    /// Its step.
    pub seq: i32,
    /// The attempt that recorded it; 0 when it was copied.
    pub attempt: i32,
    /// The tool.
    pub tool: String,
    /// What running it twice would do.
    pub effect: ToolEffect,
    /// What is known of it.
    pub state: EffectState,
    /// What its tool was given to recognise a repetition by.
    pub idempotency_key: Option<String>,
    /// The beginning of its result.
    pub preview: Option<String>,
    /// When it began, or was written down to begin.
    pub started_at: DateTime<Utc>,
    /// When it was over.
    pub finished_at: Option<DateTime<Utc>>,
}

/// What the ledger reads of a call's body.
#[derive(Deserialize)]
struct CallBody {
    #[serde(default)]
    is_error: bool,
    effect: Option<ToolEffect>,
    idempotency_key: Option<String>,
    resolution: Option<String>,
}

impl LedgerEntry {
    /// The entry of a step read with its body; none for a step that changed nothing.
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
