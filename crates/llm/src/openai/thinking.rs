//! Reasoning that a model writes into the text of its reply, as `<think>…</think>` in front of the answer. Servers
//! without a reasoning parser leave it there.

/// Names of the tags. Only one at the very beginning of the text counts.
const TAGS: [&str; 5] = ["think", "thinking", "thought", "reasoning", "reason"];

/// Takes reasoning off a text that arrives in pieces.
#[derive(Debug, Default)]
pub(super) struct Thinking {
    state: State,
    /// All text, as it was written, while reasoning may be in front of it.
    written: String,
    /// Bytes of it that were given out or skipped.
    passed: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The text so far may be the beginning of a tag.
    #[default]
    Undecided,
    /// Inside the tag of this index.
    Inside(usize),
    /// After a tag, before the answer.
    Between,
    Answer,
}

impl Thinking {
    /// The answer's part of a further piece.
    pub(super) fn strip(&mut self, piece: String) -> String {
        if self.state == State::Answer && self.written.is_empty() {
            return piece;
        }
        self.written.push_str(&piece);
        loop {
            let rest = &self.written[self.passed..];
            match self.state {
                State::Undecided => {
                    let text = rest.trim_start();
                    if let Some(tag) = TAGS.iter().position(|tag| text.starts_with(&format!("<{tag}>"))) {
                        self.passed = self.written.len() - text.len() + TAGS[tag].len() + 2;
                        self.state = State::Inside(tag);
                    } else if text.is_empty() || TAGS.iter().any(|tag| format!("<{tag}>").starts_with(text)) {
                        return String::new();
                    } else {
                        self.state = State::Answer;
                        return std::mem::take(&mut self.written).split_off(std::mem::take(&mut self.passed));
                    }
                }
                State::Inside(tag) => {
                    let end = format!("</{}>", TAGS[tag]);
                    let Some(at) = rest.find(&end) else {
                        // What was looked through is not looked through again, but for the beginning of a tag.
                        let from = self.written.len().saturating_sub(end.len());
                        self.passed = self.passed.max(self.written.floor_char_boundary(from));
                        return String::new();
                    };
                    self.passed += at + end.len();
                    self.state = State::Between;
                }
                State::Between => {
                    self.passed = self.written.len() - rest.trim_start().len();
                    if self.passed == self.written.len() {
                        return String::new();
                    }
                    self.state = State::Answer;
                }
                State::Answer => {
                    let answer = rest.to_owned();
                    self.passed = self.written.len();
                    return answer;
                }
            }
        }
    }

    /// Ends the text: the part of the answer that was held back, and the whole text as it was written if reasoning was
    /// taken off.
    pub(super) fn end(self) -> (String, Option<String>) {
        match self.state {
            State::Undecided => (self.written, None),
            State::Answer if self.written.is_empty() => (String::new(), None),
            State::Inside(_) | State::Between | State::Answer => (String::new(), Some(self.written)),
        }
    }
}

/// The answer behind reasoning whose opening tag the server's template has put into the prompt. A closing tag counts
/// if it stands alone on a line and no opening one is before it.
pub(super) fn after_closing_tag(text: &str) -> Option<&str> {
    TAGS.iter().find_map(|tag| {
        let (reasoning, answer) = text.split_once(&format!("</{tag}>"))?;
        let is_alone = reasoning.is_empty() || reasoning.ends_with('\n');
        let is_line = is_alone && (answer.is_empty() || answer.starts_with('\n') || answer.starts_with("\r\n"));
        (is_line && !reasoning.contains(&format!("<{tag}>"))).then(|| answer.trim_start())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(text: &str, size: usize) -> (String, Option<String>) {
        let mut thinking = Thinking::default();
        let pieces: Vec<char> = text.chars().collect();
        let mut told: String = pieces.chunks(size).map(|piece| thinking.strip(piece.iter().collect())).collect();
        let (held, written) = thinking.end();
        told.push_str(&held);
        (told, written)
    }

    #[test]
    fn reasoning_in_front_is_taken_off_in_any_pieces() {
        for (text, answer) in [
            ("<think>why é</think>\n\n{\"a\":1}", "{\"a\":1}"),
            ("\n <thinking>a<b></think></thinking> x </think>", "x </think>"),
            ("<think></think>y", "y"),
            ("<think>cut off", ""),
        ] {
            for size in 1..=text.len() {
                assert_eq!(stripped(text, size), (answer.to_owned(), Some(text.to_owned())), "{text} by {size}");
            }
        }
    }

    #[test]
    fn long_reasoning_is_looked_through_once() {
        let mut thinking = Thinking::default();
        assert_eq!(thinking.strip(format!("<think>{}", "é".repeat(1_000))), "");
        assert!(thinking.passed > 1_900, "{}", thinking.passed);
        assert_eq!(thinking.strip("</thi".to_owned()) + &thinking.strip("nk>yes".to_owned()), "yes");
    }

    #[test]
    fn other_text_stays_as_it_is() {
        for text in ["", " a", "<thin", "<thinker>a</thinker>", "a <think>b</think>", "<", "\n<p>x</p>"] {
            for size in 1..=text.len().max(1) {
                assert_eq!(stripped(text, size), (text.to_owned(), None), "{text} by {size}");
            }
        }
    }

    #[test]
    fn closing_tag_alone_on_a_line_ends_reasoning() {
        assert_eq!(after_closing_tag("why\n</think>\n\nyes"), Some("yes"));
        assert_eq!(after_closing_tag("</think>\nyes"), Some("yes"));
        for text in ["write `</think>` there", "<think>\na\n</think>\nb", "plain", "a</think>\nb"] {
            assert_eq!(after_closing_tag(text), None, "{text}");
        }
    }
}
