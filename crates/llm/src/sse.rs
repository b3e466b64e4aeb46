//! Incremental parser of server-sent events by the WHATWG rules, over chunks of any size.
//!
//! Lines are found in bytes and decoded when complete, so a CRLF or a character split across chunks survives.
//! The buffer is bounded. The crates at hand are not, refuse fields they do not know and drop an event whose final
//! blank line is missing, which some servers leave out.

use super::error::ModelError;

/// Largest single event, in bytes.
const MAX_EVENT_BYTES: usize = 8 * 1024 * 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SseEvent {
    /// Its name; empty if it has none.
    pub(super) name: String,
    /// The data lines, joined by line feeds.
    pub(super) data: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct SseParser {
    /// The line being received.
    line: Vec<u8>,
    /// The name of the event being received.
    name: String,
    /// The data lines of the event being received; `None` before the first.
    data: Option<Vec<u8>>,
    /// True if the last byte was a carriage return, whose line feed may follow in the next chunk.
    after_cr: bool,
    at_start: bool,
    max_event_bytes: usize,
}

impl SseParser {
    pub(super) fn new() -> Self {
        Self::with_cap(MAX_EVENT_BYTES)
    }

    fn with_cap(max_event_bytes: usize) -> Self {
        Self { line: Vec::new(), name: String::new(), data: None, after_cr: false, at_start: true, max_event_bytes }
    }

    /// Parses one chunk and appends the events it completes to `events`.
    pub(super) fn push(&mut self, mut chunk: &[u8], events: &mut Vec<SseEvent>) -> Result<(), ModelError> {
        while let Some(&first) = chunk.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                chunk = &chunk[1..];
                continue;
            }
            let Some(end) = chunk.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
                self.line.extend_from_slice(chunk);
                return self.check_size();
            };
            self.line.extend_from_slice(&chunk[..end]);
            self.check_size()?;
            self.after_cr = chunk[end] == b'\r';
            chunk = &chunk[end + 1..];
            self.end_line(events);
        }
        Ok(())
    }

    /// Returns the event being received when the connection ended, without its final blank line. The WHATWG
    /// rules discard it, but some servers end like this, and the caller can tell if its data is complete.
    pub(super) fn finish(mut self) -> Option<SseEvent> {
        let mut events = Vec::new();
        if !self.line.is_empty() {
            self.end_line(&mut events);
        }
        self.data.map(|data| SseEvent { name: self.name, data })
    }

    fn check_size(&self) -> Result<(), ModelError> {
        let size = self.line.len() + self.data.as_ref().map_or(0, Vec::len);
        if size > self.max_event_bytes {
            return Err(ModelError::TooLarge { limit: self.max_event_bytes });
        }
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<SseEvent>) {
        let line = std::mem::take(&mut self.line);
        let mut text = line.as_slice();
        if std::mem::take(&mut self.at_start) {
            text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        }
        if text.is_empty() {
            let name = std::mem::take(&mut self.name);
            events.extend(self.data.take().map(|data| SseEvent { name, data }));
        } else if let Some(value) = field(text, b"data") {
            match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                none => *none = Some(value.to_vec()),
            }
        } else if let Some(value) = field(text, b"event") {
            self.name = String::from_utf8_lossy(value).into_owned();
        }
        // Reuse the buffer for the next line.
        self.line = line;
        self.line.clear();
    }
}

/// True if a line of a body belongs to an event stream: a field, a comment, or nothing.
pub(super) fn is_line_of_stream(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    line.is_empty()
        || line.starts_with(b":")
        || [&b"data"[..], b"event", b"id", b"retry"].iter().any(|name| field(line, name).is_some())
}

/// The value of a line if it is this field, with or without a value: `database: …` is not the field `data`.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    match line.strip_prefix(name)? {
        [] => Some(&[]),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8], chunk: usize) -> (Vec<String>, Option<String>) {
        let mut parser = SseParser::new();
        let mut events = Vec::new();
        for piece in bytes.chunks(chunk) {
            parser.push(piece, &mut events).unwrap();
        }
        let text = |event: SseEvent| event.name + &String::from_utf8(event.data).unwrap();
        (events.into_iter().map(text).collect(), parser.finish().map(text))
    }

    #[test]
    fn events_survive_every_chunk_size_and_line_ending() {
        for ending in ["\n", "\r\n", "\r"] {
            let stream = [
                "\u{feff}: keep-alive",
                "event: a",
                "data: {\"é\":1}",
                "",
                "id: 7",
                "data:two",
                "data: lines",
                "data",
                "",
                "",
                "database: no",
                "",
                "data: end",
                "",
                "",
            ]
            .join(ending);
            for chunk in 1..=stream.len() {
                let (events, rest) = parse(stream.as_bytes(), chunk);
                assert_eq!(events, ["a{\"é\":1}", "two\nlines\n", "end"], "{ending:?} in chunks of {chunk}");
                assert_eq!(rest, None);
            }
        }
    }

    #[test]
    fn lines_of_a_stream_are_told_from_others() {
        for line in ["", ": comment", "data", "data: x", "event:x", "id: 1", "retry: 5\r"] {
            assert!(is_line_of_stream(line.as_bytes()), "{line}");
        }
        for line in ["database: x", "upstream is gone", "idle"] {
            assert!(!is_line_of_stream(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn unterminated_event_is_returned_only_at_end() {
        assert_eq!(parse(b"data: a\n\ndata: [DONE]", 3), (vec!["a".into()], Some("[DONE]".into())));
        assert_eq!(parse(b"data: a\n\ndata: b\n", 3), (vec!["a".into()], Some("b".into())));
        assert_eq!(parse(b"", 3), (vec![], None));
    }

    #[test]
    fn oversized_event_is_refused_while_it_arrives() {
        let mut parser = SseParser::with_cap(10);
        let mut events = Vec::new();
        parser.push(b"data: 1234\n", &mut events).unwrap();
        parser.push(b"data: ", &mut events).unwrap();
        assert!(matches!(parser.push(b"567", &mut events), Err(ModelError::TooLarge { limit: 10 })));
    }
}
