//! The conversation as the model sees it: append-only messages, a running hash over them, and an estimate of their
//! tokens.

use std::{ops::Range, sync::Arc};

use longhaul_llm::Message;
use longhaul_store::{history::journal::Hash, sessions::ERASED};
use sha2::{Digest, Sha256};

use super::prepare::tool_list::Offer;

/// Divisor of the window: the tail kept by a compression fills at most a third, the rest is room to continue.
const TAIL_SHARE: u64 = 3;

/// SHA-256 over the parts, each prefixed with its length so that different lists of parts have different hashes.
pub(crate) fn hash_parts(parts: &[&[u8]]) -> Hash {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// The messages of one execution.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    messages: Vec<Arc<Message>>,
    hashes: Vec<Hash>,
    chain: Hash,
    tokens: u64,
    counted: Option<Counted>,
}

/// Tokens that a provider reported for a prompt of the first `messages` and the tools of `offer`.
#[derive(Debug, Clone, Copy)]
struct Counted {
    route: usize,
    offer: Offer,
    messages: usize,
    tokens: u64,
}

impl Messages {
    pub(crate) fn push(&mut self, message: Message, hash: Hash) {
        self.chain = hash_parts(&[&self.chain, &hash]);
        self.tokens += message.estimated_tokens();
        self.hashes.push(hash);
        self.messages.push(Arc::new(message));
    }

    pub(crate) fn all(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// Hash of all messages in order.
    pub(crate) fn chain(&self) -> &Hash {
        &self.chain
    }

    /// Estimated tokens of all messages.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Stores the tokens that the route's provider reported for all messages so far.
    pub(crate) fn note_count(&mut self, route: usize, offer: Offer, tokens: u64) {
        self.counted = Some(Counted { route, offer, messages: self.messages.len(), tokens });
    }

    /// The tokens that the same route reported last, and the messages since. `None` if it reported none, or if the
    /// prompt counted then had fewer tools.
    pub(crate) fn counted(&self, route: usize, offer: Offer) -> Option<(u64, &[Arc<Message>])> {
        let is_same =
            |counted: &Counted| counted.route == route && (counted.offer == offer || counted.offer == Offer::All);
        let counted = self.counted.filter(is_same)?;
        Some((counted.tokens, self.messages.get(counted.messages..)?))
    }

    /// Number of messages after the last reply, which the model has not seen.
    pub(crate) fn unseen(&self) -> usize {
        self.messages.iter().rev().take_while(|message| !matches!(***message, Message::Assistant { .. })).count()
    }

    /// Estimated tokens of the messages outside a range.
    pub(crate) fn tokens_without(&self, range: &Range<usize>) -> u64 {
        let inside = self.messages[range.clone()].iter().map(|message| message.estimated_tokens());
        self.tokens.saturating_sub(inside.sum())
    }

    /// Range that a compression may replace: the messages between the task and a tail that fits its share of the
    /// window. The tail never begins with a tool result, so calls stay with their results, and always has the last
    /// `keep` messages. `None` if a compression would gain nothing.
    pub(crate) fn compressible(&self, window: u64, keep: usize) -> Option<Range<usize>> {
        let is_result = |at: usize| matches!(self.messages.get(at).map(|m| &**m), Some(Message::Tool { .. }));
        let head = self.head();
        // The last messages may begin with results; their reply stays with them.
        let mut latest = self.messages.len().saturating_sub(keep);
        while latest > head && is_result(latest) {
            latest -= 1;
        }
        let mut start = latest;
        let mut tail: u64 = self.messages[start..].iter().map(|message| message.estimated_tokens()).sum();
        while start > head {
            tail += self.messages[start - 1].estimated_tokens();
            if tail > window / TAIL_SHARE {
                break;
            }
            start -= 1;
        }
        while start < latest && is_result(start) {
            start += 1;
        }
        (start > head + 1).then_some(head..start)
    }

    /// Number of messages that are never compressed: instructions and task. They are the prefix that a provider's cache
    /// still serves after a compression.
    fn head(&self) -> usize {
        // New instructions follow the tombstones of the messages that brought the first ones.
        let opens = |message: &&Arc<Message>| matches!(***message, Message::System { .. }) || message.text() == ERASED;
        let system = self.messages.iter().take_while(opens).count();
        // A call in the head would lose its result.
        let has_task = self.messages.get(system).is_some_and(|message| message.calls().is_empty());
        system + usize::from(has_task)
    }

    /// Replaces a range by one message.
    pub(crate) fn replace(&mut self, range: Range<usize>, summary: &Message, hash: Hash) {
        let range = range.start.min(self.messages.len())..range.end.min(self.messages.len());
        let kept: Vec<(Arc<Message>, Hash)> = self.messages.drain(..).zip(self.hashes.drain(..)).collect();
        (self.chain, self.tokens, self.counted) = (Hash::default(), 0, None);
        for (at, (message, own)) in kept.into_iter().enumerate() {
            if at == range.start {
                self.push(summary.clone(), hash);
            }
            if !range.contains(&at) {
                self.push(Arc::unwrap_or_clone(message), own);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(messages: Vec<Message>) -> Messages {
        let mut conversation = Messages::default();
        for message in messages {
            let hash = hash_parts(&[&message.to_bytes().unwrap()]);
            conversation.push(message, hash);
        }
        conversation
    }

    fn result(text: &str) -> Message {
        Message::Tool { call_id: "c".into(), name: "t".into(), text: text.into(), files: Vec::new(), is_error: false }
    }

    #[test]
    fn a_compression_keeps_the_task_and_whole_rounds() {
        let long = "x".repeat(400);
        let mut messages = vec![Message::system("s"), Message::user("task")];
        for _ in 0..5 {
            messages.extend([Message::assistant(&*long), result(&long)]);
        }
        let mut conversation = conversation(messages);
        let range = conversation.compressible(900, 0).unwrap();
        conversation.replace(range, &Message::user("summary"), Hash::default());
        let roles: Vec<_> = conversation.all().iter().map(|m| m.role()).collect();
        assert_eq!(roles, ["system", "user", "user", "assistant", "tool"]);
    }

    #[test]
    fn kept_result_stays_with_its_reply() {
        let long = "x".repeat(4_000);
        let messages = vec![
            Message::system("s"),
            Message::user("task"),
            Message::assistant("one"),
            Message::user("go on"),
            Message::assistant("two"),
            Message::user("go on"),
            Message::assistant(&*long),
            result("refused"),
        ];
        assert_eq!(conversation(messages).compressible(900, 1), Some(2..6));
    }

    #[test]
    fn all_instructions_stay_in_the_prefix() {
        let mut messages = vec![Message::system("s"), Message::system("memory"), Message::user("task")];
        messages.extend((0..8).map(|_| Message::user("x".repeat(400))));
        let range = conversation(messages).compressible(900, 0).unwrap();
        assert_eq!(range.start, 3);
    }

    #[test]
    fn short_transcript_is_not_compressible() {
        assert_eq!(conversation(vec![Message::system("s"), Message::user("t")]).compressible(10, 0), None);
    }

    #[test]
    fn a_count_holds_for_its_own_prompt() {
        let mut conversation = conversation(vec![Message::system("s"), Message::user("t")]);
        conversation.note_count(0, Offer::All, 7);
        conversation.push(Message::user("more"), Hash::default());
        let counted =
            |conversation: &Messages, route, offer| conversation.counted(route, offer).map(|(n, m)| (n, m.len()));
        assert_eq!(counted(&conversation, 0, Offer::All), Some((7, 1)));
        assert_eq!(counted(&conversation, 0, Offer::OutputOnly), Some((7, 1)), "fewer tools take fewer tokens");
        assert_eq!(counted(&conversation, 1, Offer::All), None, "another model");
        conversation.note_count(0, Offer::OutputOnly, 9);
        assert_eq!(counted(&conversation, 0, Offer::All), None, "more tools");
        conversation.note_count(0, Offer::All, 9);
        conversation.replace(1..3, &Message::user("summary"), Hash::default());
        assert_eq!(counted(&conversation, 0, Offer::All), None, "another conversation");
    }

    #[test]
    fn the_chain_depends_on_order_and_content() {
        let (a, b) = (Message::user("a"), Message::user("b"));
        let ab = conversation(vec![a.clone(), b.clone()]);
        let ba = conversation(vec![b, a]);
        assert_ne!(ab.chain(), ba.chain());
    }
}
