//! The text of replies, recorded in portions while the model writes it, for runs over wires whose streams are equal for
//! every reader, also a later one (docs/design/wires.md).
//!
//! Invariants: the portions of a turn follow each other without a gap, and the recorded reply begins with them. If
//! their attempt died, their request failed, or the reply was recorded with another text, an event `text_void` precedes
//! what is told next of the turn.

use std::time::Instant;

use longhaul_sdk::Step;
use longhaul_store::database::retry::patiently;
use serde_json::json;

use super::{
    Agent, Writer, from_store,
    portion::{Portions, RECORD_EVERY, portions, storable},
    turn::PendingTurn,
};

impl Writer {
    /// Reads, once in an attempt that resumes a run with recorded text, the turn that an earlier one told last.
    pub(super) async fn find_portions(&mut self, agent: &Agent) -> Step<()> {
        if self.portions != Portions::Unread || !agent.profile.records_text() {
            return Ok(());
        }
        let store = &self.deps.store;
        let told = patiently(store.trouble(), || store.told_turn(self.id)).await.map_err(from_store)?;
        self.portions = told.map_or(Portions::None, Portions::Of);
        Ok(())
    }

    /// Commits what the model has written since the last portion: the first portion at once, then one commit each
    /// [`RECORD_EVERY`] at most.
    ///
    /// # Errors
    /// An interrupt, or a failure of the store.
    pub(crate) async fn record_text(&mut self, asked: &mut PendingTurn) -> Step<()> {
        self.follow_reply(asked);
        let (told, at) = asked.told;
        if at.is_some_and(|at| at.elapsed() < RECORD_EVERY) {
            return Ok(());
        }
        let Some(text) = asked.text.get(told..).filter(|text| !text.is_empty()) else { return Ok(()) };
        if told == 0 {
            self.void_portions();
        }
        for (offset, portion) in portions(text) {
            self.event("text", json!({ "turn": self.turns, "offset": told + offset, "text": portion }));
        }
        asked.told.0 = asked.text.len();
        self.portions = Portions::Of(self.turns);
        self.flush().await?;
        asked.told.1 = Some(Instant::now());
        Ok(())
    }

    /// Adds the event that voids the portions of the current turn, if there are any.
    fn void_portions(&mut self) {
        if self.portions == Portions::Of(self.turns) {
            self.event("text_void", json!({ "turn": self.turns }));
        }
    }

    /// Ends the portions of a turn whose reply is recorded with this text.
    pub(super) fn end_portions(&mut self, asked: &PendingTurn, text: &str) {
        let (told, _) = asked.told;
        // Without a portion of this request, those that there are were told of another one.
        let is_told = || told > 0 && asked.text.get(..told).is_some_and(|told| storable(text).starts_with(told));
        if self.portions == Portions::Of(self.turns) && !is_told() {
            self.void_portions();
        }
        self.portions = Portions::None;
    }
}
