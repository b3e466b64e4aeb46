//! The agent's memory in its execution: what the first prompt of a conversation recalls, and the tools `remember` and
//! `recall` (docs/adr/0054-memory.md).

use longhaul_sdk::{
    Step,
    context::{ContextUnavailable, Memories},
    spec::{MAX_EPISODE_CHARS, MemorySpec},
};
use longhaul_shared::domain::{CallError, CallErrorKind, EpisodeId};
use longhaul_store::{
    database::retry::patiently,
    memory::{FoundEpisode, MemoryPlace, Note, Remembered},
};
use serde::Deserialize;
use serde_json::json;

use super::{
    Agent,
    journal::{Writer, from_store},
    ready_call::{HostToolAnswer, ReadyCall},
};

/// Average bytes of text per token.
const BYTES_PER_TOKEN: usize = 4;
/// Looks for memories while others are being forgotten.
const TRIES: usize = 3;
/// Maximum bytes of one memory in a prompt.
const MAX_ITEM_BYTES: usize = 2_000;

#[derive(Debug, Deserialize)]
struct RememberArguments {
    content: String,
}

#[derive(Debug, Deserialize)]
struct RecallArguments {
    query: String,
    top_k: Option<u32>,
}

impl Writer {
    /// Notes that memory takes what this execution says, if its agent remembers it. Before its prompt is recorded, so
    /// that nothing is said that is not noted.
    ///
    /// # Errors
    /// An interrupt, or a failure of the store.
    pub async fn begin_memory(&mut self, spec: &MemorySpec, depth: i16) -> Step<()> {
        if spec.remembers(self.scope.session.is_some(), depth) {
            let store = self.deps.store.clone();
            let noted = patiently(store.trouble(), || store.note_memory_source(self.id, spec)).await;
            self.memory = noted.map_err(from_store)?;
        }
        Ok(())
    }

    /// The newest episodes, and memories that fit `message`, within the limits of `spec`. What is returned is noted as
    /// recalled.
    pub(super) async fn recall_for(
        &self,
        spec: &MemorySpec,
        place: &MemoryPlace,
        message: &str,
    ) -> Result<Memories, ContextUnavailable> {
        let failed = |error: &dyn std::fmt::Display| ContextUnavailable(error.to_string());
        for _ in 0..TRIES {
            let (memories, ids) = self.found_for(spec, place, message).await?;
            let noted = self.deps.store.note_recalls(&ids, self.id, self.scope.session);
            if ids.is_empty() || noted.await.map_err(|error| failed(&error))? {
                return Ok(memories);
            }
        }
        Err(ContextUnavailable("memories are being forgotten".into()))
    }

    async fn found_for(
        &self,
        spec: &MemorySpec,
        place: &MemoryPlace,
        message: &str,
    ) -> Result<(Memories, Vec<EpisodeId>), ContextUnavailable> {
        let store = &self.deps.store;
        let failed = |error: &dyn std::fmt::Display| ContextUnavailable(error.to_string());
        let recent = store.recent_episodes(place, spec.recent_episodes.into()).await.map_err(|error| failed(&error))?;
        let recalled = match &self.deps.tools.indexes {
            Some(indexes) => indexes.recall(place, message, spec.recall_top_k).await.map_err(|error| failed(&error))?,
            None => return Err(ContextUnavailable("this worker has no retrieval".into())),
        };
        let is_new = |id: EpisodeId| !recent.iter().any(|episode| episode.id == id);
        let found = recalled.episodes.into_iter().filter(|episode| is_new(episode.id));
        let relevant = found.map(|episode| (episode.content, vec![episode.id])).chain(recalled.facts);
        Ok(fitting(&recent, relevant, spec.prompt_tokens as usize * BYTES_PER_TOKEN))
    }
}

/// The memories that fit `room` bytes, and the episodes that they come from. What is relevant has half of it, and the
/// newest episodes what is left.
fn fitting(
    recent: &[FoundEpisode],
    relevant: impl Iterator<Item = (String, Vec<EpisodeId>)>,
    room: usize,
) -> (Memories, Vec<EpisodeId>) {
    let (mut memories, mut ids) = (Memories::default(), Vec::new());
    let mut used = 0;
    for (text, sources) in relevant {
        let item = shown(&text);
        if used + item.len() > room / 2 {
            break;
        }
        used += item.len();
        memories.relevant.push(item);
        ids.extend(sources);
    }
    for episode in recent {
        let item = shown(&episode.content);
        if used + item.len() > room {
            break;
        }
        used += item.len();
        memories.episodes.push(item);
        ids.push(episode.id);
    }
    memories.episodes.reverse();
    (memories, ids)
}

/// A memory as an item of a list, shortened.
fn shown(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_ITEM_BYTES);
    let cut = if end < text.len() { "…" } else { "" };
    format!("{}{cut}", text[..end].replace('\n', "\n  "))
}

/// Writes what the call asks to remember.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(super) async fn remember(agent: &Agent, journal: &mut Writer, call: &ReadyCall) -> Step<HostToolAnswer> {
    let Some(place) = journal.memory.clone() else { return Ok(without_memory(agent, call)) };
    let RememberArguments { content } = match Deserialize::deserialize(&call.arguments) {
        Ok(arguments) => arguments,
        Err(error) => return Ok(refused(agent, call, CallErrorKind::Structural, error.to_string())),
    };
    let content = content.trim().replace('\0', "\u{fffd}");
    if content.is_empty() || content.chars().count() > MAX_EPISODE_CHARS {
        let reason = format!("`content` has 1 to {MAX_EPISODE_CHARS} characters");
        return Ok(refused(agent, call, CallErrorKind::Structural, reason));
    }
    let (store, lease) = (journal.deps.store.clone(), journal.held_lease());
    let note = Note { place: &place, session: journal.scope.session, call_key: &call.key, content: &content };
    let written = patiently(store.trouble(), || store.remember(lease, &note));
    match written.await.map_err(from_store)? {
        Remembered::Written => Ok(answered(agent, call, "remembered".to_owned())),
        Remembered::TooMany => {
            let reason = "this execution has remembered as much as one may".to_owned();
            Ok(refused(agent, call, CallErrorKind::Runtime, reason))
        }
    }
}

/// The memories that fit the query.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(super) async fn recall(agent: &Agent, journal: &Writer, call: &ReadyCall) -> Step<HostToolAnswer> {
    let (Some(place), Some(indexes)) = (&journal.memory, &journal.deps.tools.indexes) else {
        return Ok(without_memory(agent, call));
    };
    let RecallArguments { query, top_k } = match Deserialize::deserialize(&call.arguments) {
        Ok(arguments) => arguments,
        Err(error) => return Ok(refused(agent, call, CallErrorKind::Structural, error.to_string())),
    };
    let top_k = top_k.unwrap_or(agent.config.memory.recall_top_k).clamp(1, 20);
    let store = &journal.deps.store;
    let mut tries = TRIES;
    let recalled = loop {
        let recalled = patiently(store.trouble(), || indexes.recall(place, &query, top_k)).await.map_err(from_store)?;
        let of_facts = recalled.facts.iter().flat_map(|(_, episodes)| episodes);
        let ids: Vec<EpisodeId> = recalled.episodes.iter().map(|episode| episode.id).chain(of_facts.copied()).collect();
        let noted = patiently(store.trouble(), || store.note_recalls(&ids, journal.id, journal.scope.session));
        if ids.is_empty() || noted.await.map_err(from_store)? {
            break recalled;
        }
        tries -= 1;
        if tries == 0 {
            return Ok(refused(
                agent,
                call,
                CallErrorKind::Runtime,
                "memories are being forgotten; try again".to_owned(),
            ));
        }
    };
    let memories: Vec<String> = recalled.episodes.into_iter().map(|episode| episode.content).collect();
    let facts: Vec<String> = recalled.facts.into_iter().map(|(sentence, _)| sentence).collect();
    Ok(answered(agent, call, json!({ "memories": memories, "facts": facts }).to_string()))
}

fn answered(agent: &Agent, call: &ReadyCall, text: String) -> HostToolAnswer {
    HostToolAnswer::Answered(Box::new(agent.toolbox.answer(&call.tool, text)))
}

fn refused(agent: &Agent, call: &ReadyCall, kind: CallErrorKind, reason: String) -> HostToolAnswer {
    let error = CallError::new(kind, reason);
    HostToolAnswer::Answered(Box::new(agent.toolbox.refuse(&error, &call.written.name, &call.written.arguments)))
}

fn without_memory(agent: &Agent, call: &ReadyCall) -> HostToolAnswer {
    refused(agent, call, CallErrorKind::Runtime, "this execution has no memory".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_fit_their_room() {
        let id = |n: u128| format!("ep_{n:032x}").parse::<EpisodeId>().unwrap();
        let episode = |n: u128| FoundEpisode { id: id(n), content: format!("{n}{}", "x".repeat(99)), score: 0.0 };
        let recent: Vec<FoundEpisode> = (1..=9).map(episode).collect();
        let relevant = (10..=19).map(|n| (format!("{n}{}", "y".repeat(98)), vec![id(n)]));
        let (memories, ids) = fitting(&recent, relevant, 500);
        assert_eq!((memories.relevant.len(), memories.episodes.len()), (2, 3));
        assert!(memories.episodes[2].starts_with('1'), "the newest is last: {memories:?}");
        assert_eq!(ids.len(), 5);
        let long = FoundEpisode { id: id(0), content: "ä".repeat(2_000), score: 0.0 };
        assert_eq!(fitting(&[long], std::iter::empty(), 4_000).0.episodes[0].len(), 2_000 + "…".len());
    }
}
