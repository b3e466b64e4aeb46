//! The text of a reply as portions: their state, size and form (`record_text` says when they are committed).

use std::time::Duration;

/// Shortest time between two commits of a reply's text: twenty a second read as fluent writing, and more would cost a
/// commit for few words each.
pub(super) const RECORD_EVERY: Duration = Duration::from_millis(50);
/// Most bytes of one portion. Readers are told hundreds of events at once, so that this bounds their memory.
const MAX_PORTION_BYTES: usize = 8 * 1024;

/// Recorded portions of a turn whose reply is not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Portions {
    /// An earlier attempt may have recorded some.
    Unread,
    None,
    /// There are some of the turn with this number.
    Of(u32),
}

/// The text as events have it: Postgres stores no NUL. Offsets count the bytes of this form.
pub(super) fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// The text in parts of limited size, each with its offset.
pub(super) fn portions(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let rest = text.get(offset..).filter(|rest| !rest.is_empty())?;
        let portion = &rest[..rest.floor_char_boundary(MAX_PORTION_BYTES)];
        let at = offset;
        offset += portion.len();
        Some((at, portion))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_are_bounded_and_lose_nothing() {
        let text = "aé€".repeat(40_000);
        let parts: Vec<_> = portions(&text).collect();
        assert!(parts.len() > 1 && parts.iter().all(|(_, part)| part.len() <= MAX_PORTION_BYTES));
        let mut end = 0;
        for (offset, part) in &parts {
            assert_eq!(*offset, end);
            end += part.len();
        }
        assert_eq!(parts.iter().map(|(_, part)| *part).collect::<String>(), text);
        assert_eq!(portions("").count(), 0);
    }
}
