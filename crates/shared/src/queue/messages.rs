//! What wake-ups and looks look like, for processes of two releases that share a Redis while one replaces the other.
//!
//! A message is a hint, so whoever meets one that it does not know does the most that a hint can ask for:
//! - a wake-up is one element of its list, whatever its bytes: a hint of 16, an execution id or nil, and in one that was passed on a
//!   17th with the number of times. Readers count them, so a later version may say more, or something else, in any other length;
//! - a look is execution ids, concatenated. One of a later version is of a length that no ids have, or begins with an id that nobody
//!   has ([`LATER`]): today's followers read everything, those before it look for executions that do not exist. Both are safe.
//!
//! | version | what changed |
//! |---|---|
//! | 1 | the first |
//!
//! The `v1` in the keys (`keys.rs`) is for what this cannot bridge: another type or meaning of a key.

use uuid::Uuid;

use super::hints::Look;

/// What a look of a later version begins with when its length alone does not tell: 15 bytes that begin no UUIDv7, and the version.
const LATER: [u8; 15] = [0xff; 15];

/// The most workers that pass a wake-up on. Whoever waits longest is woken first, so each meets another worker.
const MAX_HOPS: u8 = 16;

/// The wake-up that names no execution: there is work.
pub(super) fn wakeup() -> [u8; 16] {
    *Uuid::nil().as_bytes()
}

/// The wake-up for `execution`, which is among those that became runnable.
pub(super) fn wakeup_for(execution: Uuid) -> [u8; 16] {
    *execution.as_bytes()
}

/// A wake-up that brought its worker nothing, for another worker of the queue. `None` after [`MAX_HOPS`], and for those of a later
/// version.
pub(super) fn passed_on(wakeup: &[u8]) -> Option<Vec<u8>> {
    let hops = match wakeup {
        [_, .., hops] if wakeup.len() == 17 => *hops,
        _ if wakeup.len() == 16 => 0,
        _ => return None,
    };
    (hops < MAX_HOPS).then(|| [wakeup.get(..16).unwrap_or_default(), &[hops + 1]].concat())
}

/// Says that these executions changed.
pub(super) fn look(executions: &[Uuid]) -> Vec<u8> {
    executions.iter().flat_map(|id| *id.as_bytes()).collect()
}

/// What a message on the channel of looks asks for.
pub(super) fn read_look(message: &[u8]) -> Look {
    let (ids, rest) = message.as_chunks::<16>();
    let is_known = rest.is_empty() && ids.first().is_some_and(|first| !first.starts_with(&LATER));
    if is_known { Look::At(ids.iter().map(|id| Uuid::from_bytes(*id)).collect()) } else { Look::AtEverything }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_of_this_version_come_back_id_by_id() {
        let ids = [Uuid::now_v7(), Uuid::nil(), Uuid::now_v7()];
        assert_eq!(read_look(&look(&ids)), Look::At(ids.into()));
        // The bytes themselves: what a process of the release before this one sends and reads.
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(look(&[one, other]), [*one.as_bytes(), *other.as_bytes()].concat());
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
    fn a_look_of_a_later_version_is_a_look_at_everything() {
        let ids = look(&[Uuid::now_v7(), Uuid::now_v7()]);
        let longer_ids = [ids.as_slice(), b"!"].concat();
        let marked = [LATER.as_slice(), &[2], &ids].concat();
        for later in [&b""[..], b"2", &ids[..31], &longer_ids, &marked] {
            assert_eq!(read_look(later), Look::AtEverything, "{later:?}");
        }
    }
}
