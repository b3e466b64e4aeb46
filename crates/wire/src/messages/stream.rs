//! The answer to a messages request, whole and as a stream of events.

use longhaul_domain::ToolCall;
use serde_json::{Value, json};

use super::fault;
use crate::{
    Broken, Fault, Frame, Moment, Render, Tokens,
    answer::{Addition, Answer, Header, kind_of, text_of},
};

/// The answer, built from the moments of a run.
#[derive(Debug, Clone)]
pub struct Stream {
    header: Header,
    answer: Answer,
    /// Index of the next block.
    next: usize,
    /// Index of the block of text that is open.
    open: Option<usize>,
}

impl Stream {
    #[must_use]
    pub fn new(header: Header) -> Self {
        let answer = Answer::new(header.one_call);
        Self { header, answer, next: 0, open: None }
    }
}

impl Render for Stream {
    fn begin(&mut self) -> Vec<Frame> {
        let message = self.message(&[], None, Tokens::default());
        vec![frame("message_start", &json!({ "type": "message_start", "message": message }))]
    }

    fn push(&mut self, moment: &Moment, _: i64) -> Result<Vec<Frame>, Broken> {
        let added = self.answer.push(moment).map_err(|fault| Broken { frames: self.error(fault.as_ref()) })?;
        let mut frames = Vec::new();
        for addition in added {
            match addition {
                Addition::Text(text) => self.text(&text, &mut frames),
                Addition::Native(block) => self.native(&block, &mut frames),
                Addition::Call(call) => self.call(&call, &mut frames),
                Addition::End => self.end(&mut frames),
            }
        }
        Ok(frames)
    }

    fn object(&self) -> Value {
        let mut content: Vec<Value> = match &self.answer.native {
            Some(blocks) => blocks.iter().map(told_block).collect(),
            None => Vec::new(),
        };
        let text = self.answer.text();
        if content.is_empty() && !text.is_empty() {
            content.push(text_block(&text));
        }
        content.retain(|block| text_of(block) != Some(""));
        content.extend(self.answer.calls.iter().map(|call| tool_use(call, input(call))));
        self.message(&content, Some(self.stop_reason()), self.answer.tokens)
    }

    fn is_over(&self) -> bool {
        self.answer.is_over
    }

    fn failure_is_told(&self) -> bool {
        false
    }

    fn failure(&self) -> Option<Fault> {
        self.answer.failure.clone()
    }
}

impl Stream {
    fn text(&mut self, text: &str, frames: &mut Vec<Frame>) {
        let index = match self.open {
            Some(index) => index,
            None => {
                let index = self.start(&text_block(""), frames);
                self.open = Some(index);
                index
            }
        };
        frames.push(delta(index, &json!({ "type": "text_delta", "text": text })));
    }

    fn native(&mut self, block: &Value, frames: &mut Vec<Frame>) {
        self.close(frames);
        if kind_of(block) != "thinking" {
            let index = self.start(block, frames);
            frames.push(stop(index));
            return;
        }
        let part = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        let index = self.start(&json!({ "type": "thinking", "thinking": "", "signature": "" }), frames);
        if !part("thinking").is_empty() {
            frames.push(delta(index, &json!({ "type": "thinking_delta", "thinking": part("thinking") })));
        }
        frames.push(delta(index, &json!({ "type": "signature_delta", "signature": part("signature") })));
        frames.push(stop(index));
    }

    fn call(&mut self, call: &ToolCall, frames: &mut Vec<Frame>) {
        self.close(frames);
        let index = self.start(&tool_use(call, json!({})), frames);
        // The text that the model wrote: its numbers and the order of its members stay.
        let arguments = match serde_json::from_str::<Value>(&call.arguments) {
            Ok(Value::Object(_)) => call.arguments.clone(),
            _ => input(call).to_string(),
        };
        frames.push(delta(index, &json!({ "type": "input_json_delta", "partial_json": arguments })));
        frames.push(stop(index));
    }

    fn end(&mut self, frames: &mut Vec<Frame>) {
        self.close(frames);
        let delta = json!({
            "stop_reason": self.stop_reason(),
            "stop_sequence": null,
            "stop_details": null,
            "container": null,
        });
        let usage = counted(self.answer.tokens);
        frames.push(frame("message_delta", &json!({ "type": "message_delta", "delta": delta, "usage": usage })));
        frames.push(frame("message_stop", &json!({ "type": "message_stop" })));
    }

    /// Begins a block. Returns its index.
    fn start(&mut self, block: &Value, frames: &mut Vec<Frame>) -> usize {
        let index = self.next;
        self.next += 1;
        let data = json!({ "type": "content_block_start", "index": index, "content_block": block });
        frames.push(frame("content_block_start", &data));
        index
    }

    fn close(&mut self, frames: &mut Vec<Frame>) {
        frames.extend(self.open.take().map(stop));
    }

    /// The frames before a stream breaks because the run failed.
    fn error(&self, failure: Option<&Fault>) -> Vec<Frame> {
        let event = |failure| frame("error", &fault::body(failure, &format!("req_{}", self.header.id)));
        failure.map(event).into_iter().collect()
    }

    fn stop_reason(&self) -> &'static str {
        match (self.answer.is_cut, self.answer.calls.is_empty()) {
            (true, _) => "max_tokens",
            (false, false) => "tool_use",
            (false, true) => "end_turn",
        }
    }

    fn message(&self, content: &[Value], stop_reason: Option<&str>, tokens: Tokens) -> Value {
        let mut usage = counted(tokens);
        usage["cache_creation"] =
            json!({ "ephemeral_5m_input_tokens": tokens.cache_write, "ephemeral_1h_input_tokens": 0 });
        usage["inference_geo"] = Value::Null;
        usage["service_tier"] = json!("standard");
        json!({
            "id": format!("msg_{}", self.header.id),
            "type": "message",
            "role": "assistant",
            "model": self.header.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": null,
            "stop_details": null,
            "container": null,
            "usage": usage,
        })
    }
}

/// The tokens; `input_tokens` is the input that was neither read from a cache nor written to one.
fn counted(tokens: Tokens) -> Value {
    json!({
        "input_tokens": tokens.input.saturating_sub(tokens.cached).saturating_sub(tokens.cache_write),
        "output_tokens": tokens.output,
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens_details": null,
        "server_tool_use": null,
    })
}

fn told_block(block: &Value) -> Value {
    text_of(block).map_or_else(|| block.clone(), text_block)
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text, "citations": null })
}

fn tool_use(call: &ToolCall, input: Value) -> Value {
    let caller = json!({ "type": "direct" });
    json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input, "caller": caller })
}

/// The arguments as an object; text that is none becomes its only member.
fn input(call: &ToolCall) -> Value {
    match serde_json::from_str(&call.arguments) {
        Ok(Value::Object(members)) => Value::Object(members),
        _ => json!({ "arguments": call.arguments }),
    }
}

fn frame(event: &'static str, data: &Value) -> Frame {
    Frame { event: Some(event), data: data.to_string() }
}

fn delta(index: usize, delta: &Value) -> Frame {
    frame("content_block_delta", &json!({ "type": "content_block_delta", "index": index, "delta": delta }))
}

fn stop(index: usize) -> Frame {
    frame("content_block_stop", &json!({ "type": "content_block_stop", "index": index }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        Reply, ReplyCall, Runner,
        answer::tests::{any_moments, call, failed, finished, header, replied, text, thinking},
    };

    fn told(stream: &mut Stream, moments: &[Moment]) -> Result<Vec<Value>, Broken> {
        let mut frames = stream.begin();
        for moment in moments {
            frames.extend(stream.push(moment, 0)?);
        }
        let event = |frame: &Frame| {
            let data: Value = serde_json::from_str(&frame.data).unwrap();
            assert_eq!(data["type"], frame.event.unwrap());
            data
        };
        Ok(frames.iter().map(event).collect())
    }

    /// The content as a client assembles it.
    fn assembled(events: &[Value]) -> Vec<Value> {
        let mut blocks: Vec<Value> = Vec::new();
        let mut open = false;
        for event in events {
            let last = blocks.len().wrapping_sub(1);
            match event["type"].as_str().unwrap() {
                "content_block_start" => {
                    assert!(!open);
                    assert_eq!(event["index"], blocks.len());
                    blocks.push(event["content_block"].clone());
                    open = true;
                }
                "content_block_delta" => {
                    assert!(open);
                    assert_eq!(event["index"], last);
                    for (name, into) in [("text", "text"), ("thinking", "thinking"), ("signature", "signature")] {
                        if let Some(text) = event["delta"][name].as_str() {
                            blocks[last][into] = json!(blocks[last][into].as_str().unwrap().to_owned() + text);
                        }
                    }
                    if let Some(arguments) = event["delta"]["partial_json"].as_str() {
                        blocks[last]["input"] = serde_json::from_str(arguments).unwrap();
                    }
                }
                "content_block_stop" => {
                    assert!(std::mem::replace(&mut open, false));
                }
                _ => {}
            }
        }
        assert!(!open);
        blocks
    }

    fn thoughtful() -> Moment {
        let calls = vec![ReplyCall { call: call("c", "f"), by: Runner::Caller }];
        Moment::Reply(Reply { native: Some(thinking()), ..replied(1, "so", calls) })
    }

    #[test]
    fn untold_thinking_keeps_its_place() {
        let mut stream = Stream::new(header(true));
        let events = told(&mut stream, &[thoughtful(), finished("so")]).unwrap();
        let content = assembled(&events);
        let kinds: Vec<_> = content.iter().map(kind_of).collect();
        assert_eq!(kinds, ["thinking", "redacted_thinking", "text", "tool_use"]);
        assert_eq!(stream.object()["content"], json!(content));
        assert_eq!(stream.object()["stop_reason"], "tool_use");
        assert_eq!(stream.object()["usage"]["input_tokens"], 5);
    }

    #[test]
    fn thinking_follows_text_that_was_told() {
        let mut stream = Stream::new(header(true));
        let content = assembled(&told(&mut stream, &[text(1, "s"), thoughtful(), finished("so")]).unwrap());
        let kinds: Vec<_> = content.iter().map(kind_of).collect();
        assert_eq!(kinds, ["text", "thinking", "redacted_thinking", "tool_use"]);
        assert_eq!(content[0]["text"], "so");
    }

    #[test]
    fn arguments_that_are_no_object_are_wrapped() {
        let odd = ToolCall { arguments: "[1".into(), ..call("c", "f") };
        assert_eq!(input(&odd), json!({ "arguments": "[1" }));
    }

    #[test]
    fn failed_run_ends_with_an_error_event() {
        let mut stream = Stream::new(header(false));
        let broken = told(&mut stream, &[text(1, "a"), failed()]).unwrap_err();
        assert_eq!(broken.frames.len(), 1);
        assert_eq!(broken.frames[0].event, Some("error"));
        assert!(broken.frames[0].data.contains("overloaded_error"));
    }

    proptest! {
        #[test]
        fn streams_are_whole_or_broken((one_call, moments) in any_moments()) {
            let mut stream = Stream::new(header(one_call));
            let events = told(&mut stream, &moments);
            let mut whole = Stream::new(header(one_call));
            for moment in &moments {
                let _ = whole.push(moment, 0);
            }
            prop_assert!(whole.is_over());
            if let Ok(events) = events {
                let object = whole.object();
                prop_assert_eq!(json!(assembled(&events)), object["content"].clone());
                let kinds: Vec<_> = events.iter().map(kind_of).collect();
                prop_assert_eq!((kinds[0], kinds[kinds.len() - 1]), ("message_start", "message_stop"));
                let end = &events[events.len() - 2];
                prop_assert_eq!(&end["delta"]["stop_reason"], &object["stop_reason"]);
                prop_assert_eq!(&end["usage"]["output_tokens"], &object["usage"]["output_tokens"]);
            } else {
                let is_void = moments.iter().any(|moment| matches!(moment, Moment::Void { .. }));
                prop_assert!(whole.failure().is_some() || is_void);
            }
        }
    }
}
