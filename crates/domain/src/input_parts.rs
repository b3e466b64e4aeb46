//! The input of the built-in definition `agent`, `{prompt}` or `{messages}`, as the parts of a user's message. A
//! message's `content` is a text or a list of `{"type": "text", "text"}` and `{"type": "file", "file_id"}`.

use serde_json::Value;

use super::{
    FileId,
    message::{FileKind, FileRef, Part},
};

/// Most files of one input.
pub const MAX_FILES: usize = 20;
/// Most bytes of the files of one input.
pub const MAX_BYTES: u64 = 100 * 1024 * 1024;
/// Most parts of one message.
pub const MAX_PARTS: usize = 100;

/// The file ids in an input, with a JSON Pointer to each. An id that is malformed is `None`.
#[must_use]
pub fn files(input: &Value) -> Vec<(String, Option<FileId>)> {
    let mut found = Vec::new();
    let messages = input.get("messages").and_then(Value::as_array);
    for (i, message) in messages.into_iter().flatten().enumerate() {
        let parts = message.get("content").and_then(Value::as_array);
        for (j, part) in parts.into_iter().flatten().enumerate() {
            if let Some(id) = part.get("file_id") {
                let id = id.as_str().and_then(|id| id.parse().ok());
                found.push((format!("/messages/{i}/content/{j}/file_id"), id));
            }
        }
    }
    found
}

/// True if a message of the input has its content as a list.
#[must_use]
pub fn has_lists(input: &Value) -> bool {
    let messages = input.get("messages").and_then(Value::as_array);
    messages.into_iter().flatten().any(|message| message.get("content").is_some_and(Value::is_array))
}

/// The parts of an input: its texts as one, cut where a file stands. Several messages are told apart by their roles.
///
/// # Errors
/// The id of a file that is not among `known`.
pub fn parts(input: &Value, known: &[FileRef]) -> Result<Vec<Part>, String> {
    let mut parts = Parts::default();
    if let Some(prompt) = input.get("prompt").and_then(Value::as_str) {
        parts.text(prompt);
    }
    let messages = input.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (at, message) in messages.iter().enumerate() {
        if at > 0 {
            parts.text("\n\n");
        }
        if messages.len() > 1 {
            parts.text(message.get("role").and_then(Value::as_str).unwrap_or_default());
            parts.text(": ");
        }
        match message.get("content") {
            Some(Value::Array(content)) => parts.content(content, known)?,
            content => parts.text(content.and_then(Value::as_str).unwrap_or_default()),
        }
    }
    Ok(parts.finish())
}

/// Parts under construction.
#[derive(Default)]
struct Parts {
    done: Vec<Part>,
    text: String,
}

impl Parts {
    fn text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn content(&mut self, content: &[Value], known: &[FileRef]) -> Result<(), String> {
        let mut after_text = false;
        for part in content {
            if let Some(text) = part.get("text").and_then(Value::as_str) {
                if after_text {
                    self.text("\n");
                }
                self.text(text);
                after_text = true;
            } else if let Some(id) = part.get("file_id").and_then(Value::as_str) {
                let is_named =
                    |file: &&FileRef| file.id.is_some_and(|known| id.parse().is_ok_and(|id: FileId| known == id));
                let file = known.iter().find(is_named).ok_or_else(|| id.to_owned())?;
                self.file(file.clone());
                after_text = false;
            }
        }
        Ok(())
    }

    fn file(&mut self, file: FileRef) {
        self.flush();
        self.done.push(match file.kind() {
            FileKind::Image => Part::Image(file),
            FileKind::Pdf | FileKind::Text | FileKind::Other => Part::File(file),
        });
    }

    fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        let text = if self.done.is_empty() { text.as_str() } else { text.trim_start_matches('\n') };
        if !text.is_empty() {
            self.done.push(Part::Text(text.to_owned()));
        }
    }

    fn finish(mut self) -> Vec<Part> {
        self.flush();
        if self.done.is_empty() {
            self.done.push(Part::Text(String::new()));
        }
        self.done
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file(id: FileId, media_type: &str) -> FileRef {
        FileRef { hash: "ab".into(), media_type: media_type.into(), bytes: 1, id: Some(id), name: None }
    }

    #[test]
    fn files_stand_where_they_were_named() {
        let (picture, paper) = (FileId::random(), FileId::random());
        let known = [file(picture, "image/png"), file(paper, "application/pdf")];
        let input = json!({"messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "file", "file_id": picture},
            ]},
            {"role": "assistant", "content": "seen"},
            {"role": "user", "content": [{"type": "file", "file_id": paper}, {"type": "text", "text": "and this?"}]},
        ]});
        let expected = [
            Part::Text("user: a\nb".into()),
            Part::Image(known[0].clone()),
            Part::Text("assistant: seen\n\nuser: ".into()),
            Part::File(known[1].clone()),
            Part::Text("and this?".into()),
        ];
        assert_eq!(parts(&input, &known).unwrap(), expected);
        assert_eq!(parts(&input, &known[..1]), Err(paper.to_string()));
        let at: Vec<_> = files(&input).into_iter().map(|(at, id)| (at, id.unwrap())).collect();
        let expected = [("/messages/0/content/2/file_id", picture), ("/messages/2/content/0/file_id", paper)];
        assert_eq!(at, expected.map(|(at, id)| (at.to_owned(), id)));
    }

    #[test]
    fn texts_read_as_the_prompt_renders_them() {
        let text = |input: Value| parts(&input, &[]).unwrap();
        assert_eq!(text(json!({"prompt": "p"})), [Part::Text("p".into())]);
        assert_eq!(text(json!({"messages": [{"role": "user", "content": "m"}]})), [Part::Text("m".into())]);
        let two = json!({"messages": [{"role": "user", "content": "m"}, {"role": "assistant", "content": "n"}]});
        assert_eq!(text(two), [Part::Text("user: m\n\nassistant: n".into())]);
        assert_eq!(text(json!({})), [Part::Text(String::new())]);
    }
}
