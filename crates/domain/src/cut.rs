//! Text truncated to a size limit, for models and records.

use std::borrow::Cow;

/// Truncates `text` to `max` bytes on a character boundary and appends how many bytes are missing.
pub fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    // Enough for the appended sentence, whose two numbers vary in width.
    let room = max.saturating_sub(64);
    let mut end = room;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(format!("{}… [cut: {} of {} bytes left out]", &text[..end], text.len() - end, text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_on_a_character_boundary() {
        for max in [64, 100, 101, 102, 103] {
            let cut = cut(&"é€😀".repeat(100), max).into_owned();
            assert!(cut.len() <= max, "{max}: {} bytes: {cut}", cut.len());
            assert!(cut.ends_with("bytes left out]"), "{cut}");
        }
        assert_eq!(cut("short", 5), "short");
    }
}
