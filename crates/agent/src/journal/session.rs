//! The transcript of a session, which precedes the messages of an execution in it (docs/design/sessions.md).
//!
//! The execution pins the number of the last message before its own, so that a resume sends the same request; it
//! journals its own messages only.

use longhaul_domain::SessionId;
use longhaul_sdk::Step;
use longhaul_store::database::retry::patiently;
use serde::{Deserialize, Serialize};

use super::{Journal, from_store, recorded_message};

/// A part of a session's transcript: all messages through `through`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionPin {
    id: SessionId,
    through: i32,
}

impl Journal {
    /// Completes the transcript of the session with what its ended executions said, and puts it before the messages
    /// of this execution.
    pub(super) async fn join_session(&mut self, session: SessionId) -> Step<SessionPin> {
        let store = self.writer.deps.store.clone();
        let through = patiently(store.trouble(), || store.fold_session(session)).await.map_err(from_store)?;
        let pin = SessionPin { id: session, through };
        self.recall_session(pin).await?;
        Ok(pin)
    }

    /// Puts the pinned part of the session's transcript before the messages of this execution.
    pub(super) async fn recall_session(&mut self, pin: SessionPin) -> Step<()> {
        let store = self.writer.deps.store.clone();
        let context = patiently(store.trouble(), || store.session_context(pin.id, pin.through));
        for bytes in context.await.map_err(from_store)? {
            let (message, hash) = recorded_message(&bytes.into())?;
            self.transcript.replay_message(message, hash);
        }
        Ok(())
    }
}
