//! Renders a scripted reply as a response of the request's wire format.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures::stream;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    InFlight, Switch,
    captured::{Captured, Dialect},
    reply::{Content, Ev, Gate, Reply, Usage},
};
use crate::http_server::HangUp;

/// One action of the connection.
enum Step {
    Send(Bytes),
    Gate(Gate),
    Pause(Duration),
    Cut,
    Stall,
}

pub(super) async fn response(
    reply: Reply,
    request: &Captured,
    in_flight: Option<InFlight>,
    switch: Option<Switch>,
) -> Response {
    if let Some(delay) = reply.delay {
        sleep(delay).await;
        if switch.as_ref().is_some_and(Switch::is_away) {
            return HangUp::default().into_response();
        }
    }
    let (content_type, steps) = match &reply.content {
        // The guard keeps the request in flight until the client gives up.
        Content::Silence => {
            let _held = in_flight;
            return std::future::pending().await;
        }
        Content::HangUp => return HangUp::default().into_response(),
        Content::Body(content_type, body) => (*content_type, vec![Step::Send(body.clone())]),
        Content::Events(events) if !reply.is_whole && request.streams() => {
            ("text/event-stream", streamed(events, request, &reply))
        }
        Content::Events(events) => ("application/json", whole(events, request, &reply)),
    };
    let mut builder = Response::builder().status(reply.status).header("content-type", content_type);
    for (name, value) in &reply.headers {
        builder = builder.header(name, value);
    }
    let answers = (200..300).contains(&reply.status);
    let steps = chunked(steps, &reply);
    builder
        .body(body(Progress { steps, in_flight, answers, told: reply.on_answered, switch }))
        .unwrap_or_else(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response())
}

/// A response under way.
struct Progress {
    steps: VecDeque<Step>,
    in_flight: Option<InFlight>,
    /// True if its end counts as an answer.
    answers: bool,
    told: Option<Arc<dyn Fn() + Send + Sync>>,
    switch: Option<Switch>,
}

fn body(mut progress: Progress) -> Body {
    // Whole, with its length, where nothing remains to be done or noted in between.
    if let (None, [Step::Send(bytes)]) = (&progress.in_flight, progress.steps.make_contiguous()) {
        let bytes = bytes.clone();
        progress.told.iter().for_each(|told| told());
        return Body::from(bytes);
    }
    Body::from_stream(stream::unfold(progress, |mut progress| async move { Some((progress.next().await?, progress)) }))
}

impl Progress {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            match self.steps.pop_front() {
                Some(Step::Send(_)) if self.switch.as_ref().is_some_and(Switch::is_away) => {
                    self.steps.clear();
                    self.answers = false;
                    return Some(Err(io::Error::other("the model is away")));
                }
                Some(Step::Send(bytes)) => {
                    if !self.steps.iter().any(|step| matches!(step, Step::Send(_) | Step::Cut)) {
                        self.told.take().into_iter().for_each(|told| told());
                    }
                    return Some(Ok(bytes));
                }
                Some(Step::Gate(gate)) => gate.pass().await,
                Some(Step::Pause(pause)) => sleep(pause).await,
                Some(Step::Stall) => std::future::pending().await,
                // A moment, so that the bytes sent before are not lost with the connection.
                Some(Step::Cut) => {
                    sleep(Duration::from_millis(20)).await;
                    self.steps.clear();
                    self.answers = false;
                    return Some(Err(io::Error::other("cut")));
                }
                None => {
                    if self.answers {
                        self.in_flight.iter().for_each(InFlight::answered);
                    }
                    return None;
                }
            }
        }
    }
}

fn chunked(steps: Vec<Step>, reply: &Reply) -> VecDeque<Step> {
    let mut out = VecDeque::new();
    for step in steps {
        let Step::Send(bytes) = step else {
            out.push_back(step);
            continue;
        };
        let size = reply.chunk_bytes.unwrap_or(bytes.len()).max(1);
        let mut rest = bytes;
        while !rest.is_empty() {
            out.push_back(Step::Send(rest.split_to(size.min(rest.len()))));
            out.extend(reply.pause.map(Step::Pause));
        }
    }
    out
}

fn streamed(events: &[Ev], request: &Captured, reply: &Reply) -> Vec<Step> {
    let mut writer = Writer { dialect: request.dialect, crlf: reply.crlf, usage: reply.usage, blocks: 0, calls: 0 };
    let mut steps = vec![Step::Send(writer.start().into())];
    for event in events {
        steps.push(match event {
            Ev::Text(text) => Step::Send(writer.text(text).into()),
            Ev::Call { id, name, arguments } => Step::Send(writer.call(id, name, arguments).into()),
            Ev::Finish(reason) => Step::Send(writer.finish(reason).into()),
            Ev::Error(error) => Step::Send(writer.error(error).into()),
            Ev::Raw(text) => Step::Send(text.clone().into()),
            Ev::Gate(gate) => Step::Gate(gate.clone()),
            Ev::Cut => Step::Cut,
            Ev::Stall => Step::Stall,
            Ev::End => return steps,
        });
    }
    steps
}

/// Writes server-sent events of one format.
struct Writer {
    dialect: Dialect,
    crlf: bool,
    usage: Option<Usage>,
    blocks: usize,
    calls: usize,
}

impl Writer {
    fn event(&self, out: &mut String, data: &Value) {
        let end = if self.crlf { "\r\n" } else { "\n" };
        if let (Dialect::Anthropic, Some(kind)) = (self.dialect, data["type"].as_str()) {
            out.push_str(&format!("event: {kind}{end}"));
        }
        out.push_str(&format!("data: {data}{end}{end}"));
    }

    fn events(&self, all: &[Value]) -> Vec<u8> {
        let mut out = String::new();
        for data in all {
            self.event(&mut out, data);
        }
        out.into_bytes()
    }

    fn start(&self) -> Vec<u8> {
        match self.dialect {
            Dialect::OpenAi => self.events(&[openai_chunk(&json!({ "role": "assistant", "content": "" }), None)]),
            Dialect::Anthropic => {
                let usage = self.usage.map(|usage| anthropic_usage(Usage { output: 1, ..usage }));
                let message = json!({ "id": "msg", "type": "message", "model": "fake", "content": [], "usage": usage });
                self.events(&[json!({ "type": "message_start", "message": message }), json!({ "type": "ping" })])
            }
        }
    }

    fn text(&mut self, text: &str) -> Vec<u8> {
        match self.dialect {
            Dialect::OpenAi => self.events(&[openai_chunk(&json!({ "content": text }), None)]),
            Dialect::Anthropic => {
                self.block(&json!({ "type": "text", "text": "" }), &[json!({ "type": "text_delta", "text": text })])
            }
        }
    }

    /// Sends the arguments in two halves, split as close to the middle as characters allow.
    fn call(&mut self, id: &str, name: &str, arguments: &str) -> Vec<u8> {
        let middle = (0..=arguments.len() / 2).rev().find(|at| arguments.is_char_boundary(*at)).unwrap_or(0);
        let (first, second) = arguments.split_at(middle);
        match self.dialect {
            Dialect::OpenAi => {
                let index = self.calls;
                self.calls += 1;
                let delta = |call: Value| openai_chunk(&json!({ "tool_calls": [call] }), None);
                let begin = json!({ "index": index, "id": id, "type": "function",
                    "function": { "name": name, "arguments": "" } });
                let more = |text: &str| delta(json!({ "index": index, "function": { "arguments": text } }));
                self.events(&[delta(begin), more(first), more(second)])
            }
            Dialect::Anthropic => {
                let delta = |text: &str| json!({ "type": "input_json_delta", "partial_json": text });
                let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                self.block(&block, &[delta(""), delta(first), delta(second)])
            }
        }
    }

    fn block(&mut self, block: &Value, deltas: &[Value]) -> Vec<u8> {
        let index = self.blocks;
        self.blocks += 1;
        let mut all = vec![json!({ "type": "content_block_start", "index": index, "content_block": block })];
        all.extend(deltas.iter().map(|delta| json!({ "type": "content_block_delta", "index": index, "delta": delta })));
        all.push(json!({ "type": "content_block_stop", "index": index }));
        self.events(&all)
    }

    fn finish(&self, reason: &str) -> Vec<u8> {
        match self.dialect {
            Dialect::OpenAi => {
                let mut out = String::new();
                self.event(&mut out, &openai_chunk(&json!({}), Some(reason)));
                if let Some(usage) = self.usage {
                    self.event(&mut out, &json!({ "choices": [], "usage": openai_usage(usage) }));
                }
                out.push_str(if self.crlf { "data: [DONE]\r\n\r\n" } else { "data: [DONE]\n\n" });
                out.into_bytes()
            }
            Dialect::Anthropic => {
                let usage = self.usage.map(|usage| json!({ "output_tokens": usage.output }));
                let delta = json!({ "stop_reason": anthropic_reason(reason) });
                let delta = json!({ "type": "message_delta", "delta": delta, "usage": usage });
                self.events(&[delta, json!({ "type": "message_stop" })])
            }
        }
    }

    fn error(&self, error: &Value) -> Vec<u8> {
        self.events(&[json!({ "type": "error", "error": error })])
    }
}

fn openai_chunk(delta: &Value, finish: Option<&str>) -> Value {
    json!({ "id": "c", "object": "chat.completion.chunk", "model": "fake",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
}

fn openai_usage(usage: Usage) -> Value {
    let Usage { input, output, cache } = usage;
    let mut written = json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output });
    if let Some(cache) = cache {
        written["prompt_tokens_details"] = json!({ "cached_tokens": cache.read });
    }
    written
}

/// The format counts cached input apart.
fn anthropic_usage(usage: Usage) -> Value {
    let Usage { input, output, cache } = usage;
    let Some(cache) = cache else { return json!({ "input_tokens": input, "output_tokens": output }) };
    json!({
        "input_tokens": cache.prompt - cache.read - cache.written, "output_tokens": output,
        "cache_read_input_tokens": cache.read, "cache_creation_input_tokens": cache.written,
    })
}

fn anthropic_reason(reason: &str) -> &str {
    match reason {
        "stop" => "end_turn",
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        other => other,
    }
}

/// Renders the same reply in one piece. A cut or a stall happens half-way through it.
fn whole(events: &[Ev], request: &Captured, reply: &Reply) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut text, mut calls, mut reason, mut breaks) = (String::new(), Vec::new(), "stop", None);
    for event in events {
        match event {
            Ev::Text(more) => text.push_str(more),
            Ev::Call { id, name, arguments } => calls.push((id, name, arguments)),
            Ev::Finish(finish) => reason = finish,
            Ev::Error(error) => {
                return vec![Step::Send(json!({ "type": "error", "error": error }).to_string().into())];
            }
            Ev::Raw(raw) => return vec![Step::Send(raw.clone().into())],
            Ev::Gate(gate) => steps.push(Step::Gate(gate.clone())),
            Ev::Cut => breaks = Some(Step::Cut),
            Ev::Stall => breaks = Some(Step::Stall),
            Ev::End => {}
        }
    }
    let body = match request.dialect {
        Dialect::OpenAi => {
            let function = |name: &str, arguments: &str| json!({ "name": name, "arguments": arguments });
            let calls: Vec<Value> = calls
                .into_iter()
                .map(|(id, name,
                    arguments)| json!({ "id": id, "type": "function", "function": function(name, arguments) }))
                .collect();
            let message = json!({ "role": "assistant", "content": text, "tool_calls": calls });
            json!({ "id": "c", "model": "fake",
                "choices": [{ "index": 0, "message": message, "finish_reason": reason }],
                "usage": reply.usage.map(openai_usage) })
        }
        Dialect::Anthropic => {
            let mut content = Vec::new();
            if !text.is_empty() {
                content.push(json!({ "type": "text", "text": text }));
            }
            content.extend(calls.into_iter().map(|(id, name, arguments)| {
                let input: Value = serde_json::from_str(arguments).unwrap_or_default();
                json!({ "type": "tool_use", "id": id, "name": name, "input": input })
            }));
            let usage = reply.usage.map_or(json!({}), anthropic_usage);
            json!({ "type": "message", "model": "fake", "content": content, "stop_reason": anthropic_reason(reason),
                "usage": usage })
        }
    };
    let mut bytes = body.to_string().into_bytes();
    if let Some(breaks) = breaks {
        bytes.truncate(bytes.len() / 2);
        steps.extend([Step::Send(bytes.into()), breaks]);
    } else {
        steps.push(Step::Send(bytes.into()));
    }
    steps
}
