//! The answer to a chat-completions request, whole and as a stream of chunks.

use longhaul_domain::ToolCall;
use serde_json::{Value, json};

use crate::{
    Broken, Fault, Frame, Moment, Render, Tokens,
    answer::{Addition, Answer, Header},
};

/// The answer, built from the moments of a run.
#[derive(Debug, Clone)]
pub struct Stream {
    header: Header,
    answer: Answer,
    /// Calls already told.
    calls: usize,
}

impl Stream {
    #[must_use]
    pub fn new(header: Header) -> Self {
        let answer = Answer::new(header.one_call);
        Self { header, answer, calls: 0 }
    }
}

impl Render for Stream {
    fn begin(&mut self) -> Vec<Frame> {
        vec![self.chunk(&json!({ "role": "assistant", "content": "", "refusal": null }), None)]
    }

    fn push(&mut self, moment: &Moment, _: i64) -> Result<Vec<Frame>, Broken> {
        let added = self.answer.push(moment).map_err(|_| Broken::default())?;
        let mut frames = Vec::new();
        for addition in added {
            match addition {
                Addition::Text(text) => frames.push(self.chunk(&json!({ "content": text }), None)),
                // The format has no place for it.
                Addition::Native(_) => {}
                Addition::Call(call) => {
                    let mut delta = tool_call(&call);
                    delta["index"] = json!(self.calls);
                    self.calls += 1;
                    frames.push(self.chunk(&json!({ "tool_calls": [delta] }), None));
                }
                Addition::End => frames.extend(self.end()),
            }
        }
        Ok(frames)
    }

    fn object(&self) -> Value {
        let text = self.answer.text();
        let content = if text.is_empty() && !self.answer.calls.is_empty() { Value::Null } else { json!(text) };
        let mut message = json!({ "role": "assistant", "content": content, "refusal": null, "annotations": [] });
        if !self.answer.calls.is_empty() {
            message["tool_calls"] = self.answer.calls.iter().map(tool_call).collect();
        }
        let finish_reason = self.finish_reason();
        let choice = json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason });
        json!({
            "id": self.id(),
            "object": "chat.completion",
            "created": self.header.created_at,
            "model": self.header.model,
            "choices": [choice],
            "usage": usage(self.answer.tokens),
        })
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
    fn end(&self) -> Vec<Frame> {
        let mut frames = vec![self.chunk(&json!({}), Some(self.finish_reason()))];
        if self.header.include_usage {
            let mut chunk = self.bare();
            chunk["choices"] = json!([]);
            chunk["usage"] = usage(self.answer.tokens);
            frames.push(frame(&chunk));
        }
        frames.push(Frame { event: None, data: "[DONE]".into() });
        frames
    }

    fn finish_reason(&self) -> &'static str {
        match (self.answer.is_cut, self.answer.calls.is_empty()) {
            (true, _) => "length",
            (false, false) => "tool_calls",
            (false, true) => "stop",
        }
    }

    fn id(&self) -> String {
        format!("chatcmpl-{}", self.header.id)
    }

    fn bare(&self) -> Value {
        json!({
            "id": self.id(),
            "object": "chat.completion.chunk",
            "created": self.header.created_at,
            "model": self.header.model,
        })
    }

    fn chunk(&self, delta: &Value, finish_reason: Option<&str>) -> Frame {
        let mut chunk = self.bare();
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason });
        chunk["choices"] = json!([choice]);
        if self.header.include_usage {
            chunk["usage"] = Value::Null;
        }
        frame(&chunk)
    }
}

fn frame(chunk: &Value) -> Frame {
    Frame { event: None, data: chunk.to_string() }
}

fn tool_call(call: &ToolCall) -> Value {
    let function = json!({ "name": call.name, "arguments": call.arguments });
    json!({ "id": call.id, "type": "function", "function": function })
}

fn usage(tokens: Tokens) -> Value {
    json!({
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input.saturating_add(tokens.output),
        "prompt_tokens_details": { "cached_tokens": tokens.cached, "audio_tokens": 0 },
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        ReplyCall, Runner, WantedKind,
        answer::tests::{any_moments, call, failed, finished, header, replied, text, wanted},
    };

    /// The frames of a whole stream, or where it broke.
    fn told(stream: &mut Stream, moments: &[Moment]) -> Result<Vec<Frame>, Broken> {
        let mut frames = stream.begin();
        for moment in moments {
            frames.extend(stream.push(moment, 0)?);
        }
        Ok(frames)
    }

    fn chunks(frames: &[Frame]) -> Vec<Value> {
        let (done, chunks) = frames.split_last().unwrap();
        assert_eq!(done.data, "[DONE]");
        chunks.iter().map(|frame| serde_json::from_str(&frame.data).unwrap()).collect()
    }

    fn content(chunks: &[Value]) -> String {
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
    }

    #[test]
    fn calls_of_a_model_call_end_it() {
        let mut stream = Stream::new(header(true));
        let calls = vec![ReplyCall { call: call("c", "f"), by: Runner::Caller }];
        let moments = [text(1, "so"), Moment::Reply(replied(1, "so", calls)), finished("")];
        let chunks = chunks(&told(&mut stream, &moments).unwrap());
        let delta = &chunks[2]["choices"][0]["delta"]["tool_calls"][0];
        assert_eq!((&delta["index"], &delta["id"]), (&json!(0), &json!("c")));
        assert_eq!(delta["function"]["arguments"], r#"{"a":1e2}"#);
        assert_eq!(chunks[3]["choices"][0]["finish_reason"], "tool_calls");
        assert_eq!((&chunks[4]["choices"], &chunks[4]["usage"]["total_tokens"]), (&json!([]), &json!(14)));
        let object = stream.object();
        assert_eq!(object["choices"][0]["message"]["tool_calls"][0]["id"], "c");
        assert_eq!(object["choices"][0]["message"]["content"], "so");
    }

    #[test]
    fn waiting_run_asks_for_results_and_decisions() {
        let mut stream = Stream::new(header(false));
        let waits = Moment::Waits(vec![wanted(WantedKind::Result), wanted(WantedKind::Approval)]);
        let calls = vec![ReplyCall { call: call("hidden", "f"), by: Runner::Worker }];
        told(&mut stream, &[Moment::Reply(replied(1, "", calls)), waits]).unwrap();
        let message = &stream.object()["choices"][0]["message"];
        assert_eq!((&message["content"], message["tool_calls"].as_array().unwrap().len()), (&Value::Null, 2));
        let approval = &message["tool_calls"][1];
        assert_eq!(approval["id"], "appr_0192f0aa111172228333444455556666");
        let arguments: Value = serde_json::from_str(approval["function"]["arguments"].as_str().unwrap()).unwrap();
        assert_eq!((&arguments["tool"], arguments["arguments"]["a"].as_f64()), (&json!("f"), Some(100.0)));
    }

    #[test]
    fn failed_run_breaks_its_stream() {
        let mut stream = Stream::new(header(false));
        let broken = told(&mut stream, &[text(1, "a"), failed()]).unwrap_err();
        assert!(stream.failure().is_some() && stream.is_over() && broken.frames.is_empty());
    }

    proptest! {
        #[test]
        fn streams_are_whole_or_broken((one_call, moments) in any_moments()) {
            let mut stream = Stream::new(header(one_call));
            let frames = told(&mut stream, &moments);
            let mut whole = Stream::new(header(one_call));
            for moment in &moments {
                let _ = whole.push(moment, 0);
            }
            prop_assert!(whole.is_over());
            match frames {
                Err(_) => {
                    let is_void = moments.iter().any(|moment| matches!(moment, Moment::Void { .. }));
                    prop_assert!(stream.failure().is_some() || is_void);
                }
                Ok(frames) => {
                    let chunks = chunks(&frames);
                    let object = whole.object();
                    prop_assert!(whole.failure().is_none());
                    let message = &object["choices"][0]["message"];
                    prop_assert_eq!(content(&chunks), message["content"].as_str().unwrap_or_default());
                    prop_assert_eq!(&chunks[0]["choices"][0]["delta"]["role"], "assistant");
                    let calls = chunks.iter().filter(|chunk| chunk["choices"][0]["delta"]["tool_calls"].is_array());
                    prop_assert_eq!(calls.count(), message["tool_calls"].as_array().map_or(0, Vec::len));
                    let ends: Vec<_> = chunks
                        .iter()
                        .filter_map(|chunk| chunk["choices"][0]["finish_reason"].as_str())
                        .collect();
                    prop_assert_eq!(ends, [object["choices"][0]["finish_reason"].as_str().unwrap()]);
                }
            }
        }
    }
}
