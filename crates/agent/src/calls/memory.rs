//! The agent's memory in its execution: what the first prompt of a conversation recalls, and the tools `remember` and
//! `recall` (docs/design/memory.md).

use longhaul_domain::{CallError, CallErrorKind, EpisodeId, message::BYTES_PER_TOKEN};
use longhaul_sdk::{
    Step,
    context::{ContextUnavailable, Memories},
    spec::{MAX_EPISODE_CHARS, MemorySpec},
};
use longhaul_store::{
    StoreError,
    database::retry::patiently,
    memory::{FoundEpisode, MemoryPlace, Note, Remembered},
};
use serde::Deserialize;
use serde_json::json;

use crate::{
    Agent,
    indent::indented,
    journal::{Writer, from_store},
    ready_call::{HostToolAnswer, ReadyCall},
};

/// Looks for memories while others are being forgotten.
const TRIES: usize = 3;
const WITHOUT_MEMORY: &str = "this execution has no memory";
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
    /// The newest episodes, and memories that fit `message`, within the limits of `spec`. What is returned is noted as
    /// recalled.
    pub(crate) async fn recall_for(
        &self,
        spec: &MemorySpec,
        place: &MemoryPlace,
        message: &str,
    ) -> Result<Memories, ContextUnavailable> {
        let Some(indexes) = &self.deps.tools.indexes else {
            return Err(ContextUnavailable("this worker has no retrieval".into()));
        };
        let found = async {
            let query = indexes.memory_query(place, message, spec.recall_top_k).await?;
            self.noting(|| async {
                let recent = self.deps.store.recent_episodes(place, spec.recent_episodes.into()).await?;
                let recalled = indexes.recall(place, &query).await?;
                let is_new = |id: EpisodeId| !recent.iter().any(|episode| episode.id == id);
                let found = recalled.episodes.into_iter().filter(|episode| is_new(episode.id));
                let relevant = found.map(|episode| (episode.content, vec![episode.id])).chain(recalled.facts);
                Ok(fitting(&recent, relevant, spec.prompt_tokens as usize * BYTES_PER_TOKEN))
            })
            .await
        };
        let found = found.await.map_err(|error| ContextUnavailable(error.to_string()))?;
        found.ok_or_else(|| ContextUnavailable("memories are being forgotten".into()))
    }

    /// What `find` returns, once its episodes are noted as recalled. `None` if each time one of them was forgotten
    /// meanwhile.
    async fn noting<T, F>(&self, find: impl Fn() -> F) -> Result<Option<T>, StoreError>
    where
        F: Future<Output = Result<(T, Vec<EpisodeId>), StoreError>>,
    {
        for _ in 0..TRIES {
            let (found, ids) = find().await?;
            if ids.is_empty() || self.deps.store.note_recalls(&ids, self.id, self.scope.session).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
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
    format!("{}{cut}", indented(&text[..end]))
}

/// Writes what the call asks to remember.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(super) async fn remember(
    agent: &Agent,
    journal: &Writer,
    memory: Option<&MemoryPlace>,
    call: &ReadyCall,
) -> Step<HostToolAnswer> {
    let refuse = |kind, reason: String| Ok(call.refused(&agent.toolbox, &CallError::new(kind, reason)));
    let Some(place) = memory else { return refuse(CallErrorKind::Runtime, WITHOUT_MEMORY.to_owned()) };
    let RememberArguments { content } = match Deserialize::deserialize(&call.arguments) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(CallErrorKind::Structural, error.to_string()),
    };
    let content = content.trim();
    if content.is_empty() || content.chars().count() > MAX_EPISODE_CHARS {
        let reason = format!("`content` has 1 to {MAX_EPISODE_CHARS} characters");
        return refuse(CallErrorKind::Structural, reason);
    }
    let (store, lease) = (journal.deps.store.clone(), journal.held_lease());
    let note = Note { place, session: journal.scope.session, call_key: &call.key, content };
    let written = patiently(store.trouble(), || store.remember(lease, &note));
    match written.await.map_err(from_store)? {
        Remembered::Written => Ok(call.answered(&agent.toolbox, "remembered".to_owned())),
        Remembered::TooMany => {
            refuse(CallErrorKind::Runtime, "this execution has remembered as much as one may".to_owned())
        }
    }
}

/// The memories that fit the query.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(super) async fn recall(
    agent: &Agent,
    journal: &Writer,
    memory: Option<&MemoryPlace>,
    call: &ReadyCall,
) -> Step<HostToolAnswer> {
    let refuse = |kind, reason: String| Ok(call.refused(&agent.toolbox, &CallError::new(kind, reason)));
    let (Some(place), Some(indexes)) = (memory, &journal.deps.tools.indexes) else {
        return refuse(CallErrorKind::Runtime, WITHOUT_MEMORY.to_owned());
    };
    let RecallArguments { query, top_k } = match Deserialize::deserialize(&call.arguments) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(CallErrorKind::Structural, error.to_string()),
    };
    let top_k = top_k.unwrap_or(agent.config.memory.recall_top_k).clamp(1, 20);
    let store = &journal.deps.store;
    let query = patiently(store.trouble(), || indexes.memory_query(place, &query, top_k)).await.map_err(from_store)?;
    let found = patiently(store.trouble(), || {
        journal.noting(|| async {
            let recalled = indexes.recall(place, &query).await?;
            let of_facts = recalled.facts.iter().flat_map(|(_, episodes)| episodes);
            let ids = recalled.episodes.iter().map(|episode| episode.id).chain(of_facts.copied()).collect();
            Ok((recalled, ids))
        })
    });
    let Some(recalled) = found.await.map_err(from_store)? else {
        let reason = "memories are being forgotten; try again".to_owned();
        return refuse(CallErrorKind::Runtime, reason);
    };
    let memories: Vec<String> = recalled.episodes.into_iter().map(|episode| episode.content).collect();
    let facts: Vec<String> = recalled.facts.into_iter().map(|(sentence, _)| sentence).collect();
    Ok(call.answered(&agent.toolbox, json!({ "memories": memories, "facts": facts }).to_string()))
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
