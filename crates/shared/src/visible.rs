//! Texts of models, callers and tenants, as people see them: in messages, in terminals and on the page.

/// Replaces characters that would show a text other than it is, controls and those that turn or hide text, with their
/// code: a person decides on what is shown. Line breaks and tabs stay.
pub fn visible(text: &str) -> impl Iterator<Item = char> {
    text.chars().flat_map(|c| {
        let is_shown = matches!(c, '\n' | '\t') || !(c.is_control() || hides(c));
        let code = (!is_shown).then(|| c.escape_unicode());
        is_shown.then_some(c).into_iter().chain(code.into_iter().flatten())
    })
}

/// JSON in which such characters are written as JSON escapes: the same value, and nothing is hidden.
#[must_use]
pub fn json(serialized: String) -> String {
    if !serialized.chars().any(hides_in_json) {
        return serialized;
    }
    let mut shown = String::with_capacity(serialized.len());
    for c in serialized.chars() {
        if hides_in_json(c) {
            let mut units = [0; 2];
            shown.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// True of such characters that a serializer leaves as they are.
fn hides_in_json(c: char) -> bool {
    hides(c) || matches!(c, '\u{7f}'..='\u{9f}')
}

/// True of characters without width, and of those that change the direction of text.
fn hides(c: char) -> bool {
    matches!(c, '\u{00ad}' | '\u{061c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// A text on one line.
#[must_use]
pub fn line(text: &str) -> String {
    visible(text).map(|c| if c.is_whitespace() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_shown_as_codes() {
        let shown: String = visible("pay \u{202e}001\u{200b}\r\n\tto a\0b").collect();
        assert_eq!(shown, "pay \\u{202e}001\\u{200b}\\u{d}\n\tto a\\u{0}b");
        assert_eq!(line("a\nb"), "a b");
        let value = serde_json::json!({ "to": "A\u{202e}\u{e0041}\u{9b}B\n" });
        let text = json(serde_json::to_string_pretty(&value).unwrap());
        assert!(text.contains(r#""A\u202e\udb40\udc41\u009bB\n""#), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
