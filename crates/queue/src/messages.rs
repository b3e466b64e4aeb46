//! Wire format of wake-ups and looks, compatible between two releases that share a Redis during a rolling upgrade.
//!
//! A message is a hint, so a reader treats an unknown one as the strongest hint:
//! - A wake-up is one element of its list: 16 bytes (an execution id or nil), plus a 17th with the hop count once
//!   it was passed on. Readers count elements and ignore unknown contents, so a later version may use any other
//!   length.
//! - A look is a list of concatenated execution ids. A later version uses a length that is no multiple of 16, or
//!   starts with an impossible id ([`LATER`]). Current followers then read everything; older followers look for
//!   executions that do not exist. Both are safe.
//!
//! | version | change |
//! |---|---|
//! | 1 | first version |
//!
//! The `v1` in the keys (`keys.rs`) changes when a key changes its type or meaning.

use std::sync::Arc;

use longhaul_domain::ExecutionId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Prefix of a look of a later version whose length is ambiguous: 15 bytes that begin no UUIDv7, then the version.
const LATER: [u8; 15] = [0xff; 15];

/// Maximum number of workers that pass a wake-up on. Redis serves the longest-waiting client first, so each hop
/// reaches another worker.
const MAX_HOPS: u8 = 16;

/// A notification for followers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// These executions changed.
    At(Arc<[ExecutionId]>),
    /// A model wrote this.
    Text(Arc<[TextDelta]>),
    /// Any execution may have changed: the subscription is new, or the message is from a later release.
    AtEverything,
}

/// A piece of a reply's text, sent while the model writes. Pieces may be lost: the recorded turn has the whole text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextDelta {
    pub execution: ExecutionId,
    /// Number of the turn in its execution, from 1.
    pub turn: u32,
    /// Bytes of the turn's text before this piece.
    pub offset: usize,
    pub text: String,
}

/// A wake-up without an execution id: the queue has work.
pub(super) fn wakeup() -> [u8; 16] {
    *Uuid::nil().as_bytes()
}

/// A wake-up for `execution`, one of those that became runnable.
pub(super) fn wakeup_for(execution: Uuid) -> [u8; 16] {
    *execution.as_bytes()
}

/// Returns the wake-up to push for another worker of the queue after it brought no work here. `None` after
/// [`MAX_HOPS`] hops, and for a wake-up of a later version.
pub(super) fn passed_on(wakeup: &[u8]) -> Option<Vec<u8>> {
    let hops = match wakeup {
        [_, .., hops] if wakeup.len() == 17 => *hops,
        _ if wakeup.len() == 16 => 0,
        _ => return None,
    };
    (hops < MAX_HOPS).then(|| [wakeup.get(..16).unwrap_or_default(), &[hops + 1]].concat())
}

/// Encodes a look at these executions.
pub(super) fn look(executions: &[ExecutionId]) -> Vec<u8> {
    executions.iter().flat_map(|id| *id.0.as_bytes()).collect()
}

/// Decodes a message from the look channel.
pub(super) fn read_look(message: &[u8]) -> Look {
    let (ids, rest) = message.as_chunks::<16>();
    let is_known = rest.is_empty() && ids.first().is_some_and(|first| !first.starts_with(&LATER));
    if is_known {
        Look::At(ids.iter().map(|id| ExecutionId(Uuid::from_bytes(*id))).collect())
    } else {
        Look::AtEverything
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_message_round_trips_every_id() {
        let ids = [Uuid::now_v7(), Uuid::nil(), Uuid::now_v7()].map(ExecutionId);
        assert_eq!(read_look(&look(&ids)), Look::At(ids.into()));
        // Fixed bytes: the previous release sends and reads this format.
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(look(&[ExecutionId(one), ExecutionId(other)]), [*one.as_bytes(), *other.as_bytes()].concat());
        assert_eq!(wakeup_for(one), *one.as_bytes());
        assert_eq!(wakeup(), [0; 16]);
    }

    #[test]
    fn wakeup_is_passed_on_sixteen_times() {
        let id = Uuid::now_v7();
        let mut wakeup = wakeup_for(id).to_vec();
        for hop in 1..=MAX_HOPS {
            wakeup = passed_on(&wakeup).unwrap();
            assert_eq!(wakeup, [id.as_bytes().as_slice(), &[hop]].concat());
        }
        assert_eq!(passed_on(&wakeup), None);
        assert_eq!(passed_on(b"of a later version"), None);
    }

    #[test]
    fn unknown_look_version_looks_at_everything() {
        let ids = look(&[Uuid::now_v7(), Uuid::now_v7()].map(ExecutionId));
        let longer_ids = [ids.as_slice(), b"!"].concat();
        let marked = [LATER.as_slice(), &[2], &ids].concat();
        for later in [&b""[..], b"2", &ids[..31], &longer_ids, &marked] {
            assert_eq!(read_look(later), Look::AtEverything, "{later:?}");
        }
    }
}
