//! An outage of the model.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::json;

/// Makes the model unavailable and available again.
#[derive(Debug, Clone, Default)]
pub struct Switch {
    is_away: Arc<AtomicBool>,
    /// Part of the requests that are concerned; `None` is all of them.
    marker: Option<Arc<str>>,
}

impl Switch {
    pub(super) fn of(model: &str) -> Self {
        // As clients write it, without spaces: a body is searched, not parsed.
        Self { is_away: Arc::default(), marker: Some(format!("\"model\":{}", json!(model)).into()) }
    }

    /// From now on new requests are refused with 503, and earlier ones get no answer or no more of it.
    pub fn take_away(&self) {
        self.is_away.store(true, Ordering::Relaxed);
    }

    pub fn give_back(&self) {
        self.is_away.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    pub(super) fn concerns(&self, body: &[u8]) -> bool {
        let Some(marker) = self.marker.as_deref().map(str::as_bytes) else { return true };
        body.windows(marker.len()).any(|window| window == marker)
    }
}
