//! Texts of others within a text for a model.

/// Characters that a model may read as the end of a line.
const LINE_ENDS: [char; 7] = ['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'];

/// A text as an item of a list: its lines look like no other item and no heading.
pub(crate) fn indented(text: &str) -> String {
    text.split(LINE_ENDS).collect::<Vec<_>>().join("\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_of_a_line_is_indented() {
        assert_eq!(indented("a\rb\u{2028}- c\u{85}\n"), "a\n  b\n  - c\n  \n  ");
    }
}
